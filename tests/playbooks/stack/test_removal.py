"""A node that a command is about to remove is held by a process there, which lives as long as the command."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory import Inventory
from launch.remote.base.names import is_removal
from launch.remote.node import slots
from playbooks.project import Stack
from playbooks.stack.removal import holder_name, kept_free
from tests.playbooks.server import SshServer, free_port, save_stack

NAME = holder_name("fab scale 3")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "sshd") as running:
        yield running


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack("dev", tmp_path, {})


@pytest.fixture
def inventory(server: SshServer, stack: Stack) -> Inventory:
    """Node 0 runs, nobody listens at node 1, and Azure says that node 2 does not run."""
    ports = {0: server.port, 1: free_port(), 2: free_port()}
    found = save_stack(stack.folder, ports, server.host_key, server.user_key)
    return replace(found, nodes=(*found.nodes[:2], replace(found.nodes[2], state="stopped")))


@pytest.fixture
def taken(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """Who holds slots on node 0."""
    monkeypatch.setenv("HOME", str(server.folder / "home"))
    return lambda: {holder for _, holder in slots.taken_slots(8)}


def test_nodes_are_held_while_it_lasts_and_those_that_do_not_answer_are_named(
    stack: Stack, inventory: Inventory, taken: Callable[[], set[str]]
) -> None:
    with kept_free(stack, inventory, inventory.nodes, NAME, 60) as failed:
        assert taken() == {NAME}
        assert list(failed) == ["node000001"]
        assert "refused" in failed["node000001"]
    deadline = time.monotonic() + 20
    while taken():
        assert time.monotonic() < deadline, "it is held for ever"
        time.sleep(0.02)


def test_a_node_without_python_can_be_given_no_job(
    stack: Stack, inventory: Inventory, server: SshServer, taken: Callable[[], set[str]]
) -> None:
    (server.folder / "home" / ".bashrc").write_text("python3() { return 127; }\n")
    with kept_free(stack, inventory, inventory.nodes[:1], NAME, 60) as failed:
        assert failed == {}
        assert taken() == set()


def test_a_node_whose_slots_cannot_be_held_is_named(
    stack: Stack, inventory: Inventory, server: SshServer
) -> None:
    (server.folder / "home" / ".ranklift").write_text("in the way")
    with kept_free(stack, inventory, inventory.nodes[:1], NAME, 60) as failed:
        assert "Not a directory" in failed["node000000"]


def test_the_name_says_which_command_of_whom() -> None:
    assert NAME.startswith("`fab scale 3` of ")
    assert NAME.endswith(f"(process {os.getpid()})")
    assert is_removal(NAME)
