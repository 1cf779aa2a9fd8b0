"""``make test`` on a bare machine: it sets up what its tests need, and skips none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.bare_root import BareRoot
from tests.setup.bare_debian import bare_archive, bare_debian, make_test

pytestmark = [pytest.mark.setup, pytest.mark.timeout(2700)]

SELECTION = (
    *("tests/images/test_cloud_init.py", "tests/images/test_nfs_server.py", "tests/infra/cluster"),
    *("tests/infra/test_inventory.py", "tests/launch/code/test_snapshot.py", "tests/test_skips.py"),
    *("tests/launch/remote/environment/test_image.py", "tests/launch/remote/environment/test_image_build.py"),
    *("tests/launch/remote/probe/test_mpi_ring.py", "tests/playbooks/data", "tests/rehearsal/blobs"),
    *("tests/rehearsal/test_azurite.py", "tests/rehearsal/test_listener.py", "tests/rehearsal/vms"),
    "tests/tools",
)
"""The tests of what a set-up brings beside the Python packages: Azurite, containers, MPI, nodes."""


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """A bare root of the suite, with the checkout in ``/ranklift``."""
    archive = bare_archive(request.param, tmp_path_factory.mktemp("archive"))
    with bare_debian(request.param, archive, tmp_path_factory.mktemp("fresh")) as root:
        yield root
    archive.unlink()


def test_it_sets_up_what_its_tests_need_and_skips_none(fresh: BareRoot) -> None:
    ran = make_test(fresh, SELECTION)
    assert ran.status == 0, str(ran)
    assert re.findall("^SKIPPED.*", ran.out, re.MULTILINE) == []
    assert re.search(r"= [0-9]{3,} passed in ", ran.out)


def test_the_installed_set_up_is_complete(fresh: BareRoot) -> None:
    assert fresh.run("tools/debian missing --azure", cwd="/ranklift").out == ""
