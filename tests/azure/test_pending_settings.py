"""Settings that were changed and not applied yet, when a command changes single nodes."""

from __future__ import annotations

import pytest

from tests.azure.test_scaling import STACK, booted, is_as_configured
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """The stack is up with two nodes; each test leaves it so."""
    workplace.configure(STACK, nodeCount=2)
    workplace.fab("up")
    return workplace


def test_a_setting_that_replaces_all_nodes_waits_for_an_up(cluster: Workplace) -> None:
    before = booted(cluster)
    cluster.configure(STACK, nodeCount=2, image="microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2026013001")
    try:
        for words in (("replace", "0"), ("scale", "3"), ("scale", "1")):
            refused = cluster.fab(*words, status=2)
            assert "replace all nodes (virtualMachineProfile); nothing was changed" in refused.err, refused
        assert booted(cluster) == before
    finally:
        cluster.configure(STACK, nodeCount=2)
    is_as_configured(cluster)


def test_a_node_is_not_removed_while_azure_lacks_the_image_of_another(cluster: Workplace) -> None:
    before = booted(cluster)
    cluster.fab("rehearsal.fault", "image")
    try:
        refused = cluster.fab("replace", "0", status=1)
    finally:
        cluster.fab("rehearsal.fault", "clear")
    assert "stays as it is; nothing was changed:\n  image: Azure does not have" in refused.err, refused
    assert booted(cluster) == before
