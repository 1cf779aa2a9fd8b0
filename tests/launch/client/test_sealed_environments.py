"""No job changes what later jobs get: the folders of an environment are read-only on every node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launch.client.environments import Made, remove_from
from launch.code.node_code import remote_id
from tests.launch.client.environment_desk import Desk, environments, folder, left, run_python
from tests.launch.cluster import LocalHost, Node


def writable(node: Node, made: Made) -> list[Path]:
    """What of an environment a program can change without a change of modes."""
    there = (folder(node, made), *folder(node, made).rglob("*"))
    return [path for path in there if not path.is_symlink() and path.stat().st_mode & 0o222]


def test_nothing_is_installed_into_an_environment_that_jobs_share(desk: Desk) -> None:
    made = desk.make()
    for node in desk.cluster.nodes:
        assert writable(node, made) == []
        with pytest.raises(subprocess.CalledProcessError):
            run_python(node, made, "import os, toolkit as t; os.replace(t.__file__, t.__file__ + '.old')")
        assert run_python(node, made, "import toolkit; print(toolkit.ANSWER)", "-O") == "42"  # not compiled


def test_folders_that_killed_processes_left_writable_become_read_only(desk: Desk) -> None:
    made = desk.make()
    for path in (folder(node, made) for node in desk.cluster.nodes[:2]):
        path.chmod(0o755)
        (path / "lib").chmod(0o755)
    (environments(desk.cluster.nodes[0]) / f"{made.record['id']}.nodes").unlink()
    assert desk.make().record == made.record
    assert [writable(node, made) for node in desk.cluster.nodes[:2]] == [[], []]


def test_read_only_folders_can_be_removed(desk: Desk) -> None:
    made = desk.make()
    for node in desk.cluster.nodes[:2]:
        remove_from(LocalHost(node), remote_id(), [made.record["id"]], cache=False)
        assert left(node) == set()
