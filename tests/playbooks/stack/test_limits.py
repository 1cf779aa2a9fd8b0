"""How long commands wait for nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.project import Stack
from playbooks.stack.limits import CHANGE, WAIT, ready_limit

SETTINGS = {"ranklift:vmSize": "Standard_ND40rs_v2"}
PLAIN = {"ranklift:image": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.202609040"}


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A stack with an HPC image."""
    monkeypatch.setattr(Stack, "settings", lambda _: SETTINGS)
    return Stack("dev", tmp_path, {})


def test_nodes_that_install_their_drivers_get_as_long_more_as_azure_gives_its_own_extensions(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (ready_limit(stack, None, CHANGE), ready_limit(stack, None, WAIT)) == (1800.0, 600.0)
    monkeypatch.setattr(Stack, "settings", lambda _: {**SETTINGS, **PLAIN})
    assert (ready_limit(stack, None, CHANGE), ready_limit(stack, None, WAIT)) == (7200.0, 6000.0)


def test_the_users_limit_wins_and_has_to_be_a_time(stack: Stack) -> None:
    assert ready_limit(stack, "90s", CHANGE) == 90.0
    with pytest.raises(InputError, match="--timeout = 'soon'"):
        ready_limit(stack, "soon", CHANGE)
