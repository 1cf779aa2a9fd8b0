"""Looks at many nodes: the code that goes with the call, and what is reported of the findings."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launch.errors import NodeUnreachable
from launch.remote.base import frames
from launch.remote.node.health_gate import read_look
from playbooks.nodes.look import _PROGRAM, _code, errors_of, finding_lines, is_passing
from tests.launch.remote.health.some_findings import DOWN, ECC, HOT, looked
from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import fab, write_project

if TYPE_CHECKING:
    from launch.remote.base.health_records import Look, Promise


ROOT = Path(__file__).parents[3]


@pytest.fixture
def workplace(server: SshServer, tmp_path: Path) -> Path:
    """A project whose stack ``dev`` has one node."""
    write_project(tmp_path, "dev", fabfile=True)
    save_stack(tmp_path / ".ranklift" / "dev", {0: server.port}, server.host_key, server.user_key)
    return tmp_path


def test_a_python_without_anything_of_ours_can_run_the_code_that_goes_along(tmp_path: Path) -> None:
    promise: Promise = {"size": "Standard_Toy_v9"}
    argv = ["python3", "-I", "-S", "-c", _PROGRAM, os.fsdecode(frames.pack(promise))]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, input=_code(), capture_output=True, check=True, env=env, cwd=tmp_path)
    found = read_look(done.returncode, done.stdout)
    assert found["findings"][0]["subject"] == "Standard_Toy_v9"
    assert done.stderr == b""


def imports_of_ours(source: str) -> set[str]:
    """Modules of this project that a module imports when it runs, or later."""
    found = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("launch."):
            inside = f"{ROOT}/{(node.module or '').replace('.', '/')}"
            names = [f"{node.module}.{one.name}" for one in node.names] if Path(inside).is_dir() else []
            found.update(names or [str(node.module)])
    return found


def test_all_that_a_module_of_the_code_imports_goes_along_before_it() -> None:
    before: set[str] = set()
    for name, source in json.loads(zlib.decompress(_code())):
        assert imports_of_ours(source) - before == set(), name
        before.add(name)
    assert "launch.remote.health.nvml" in before


def test_errors_name_what_was_measured_and_the_command_that_replaces_the_node() -> None:
    looks: dict[str, Look | Exception] = {
        "node000000": looked(HOT),
        "node000003": looked(DOWN, ECC, HOT),
        "node000004": NodeUnreachable("x", "y"),
    }
    (error,) = errors_of(looks, {"node000000": 0, "node000003": 7, "node000004": 8}).values()
    down = "mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE (healthagent)"
    reboot = "reboot the node; if it comes back, `fab replace 7`"
    assert str(error) == f"node000003: {down}; `fab replace 7`; {down}; {reboot}"


def test_warnings_of_several_nodes_are_one_line() -> None:
    looks = {"node000000": looked(HOT), "node000001": looked(DOWN, HOT)}
    line = "node[000000-000001]: warning: GPU 1: 95 C; expected: at most 93 C (healthagent); wait"
    assert finding_lines(looks) == [line]


def test_a_link_may_come_up_later_and_an_ecc_error_does_not_pass() -> None:
    assert is_passing(looked(DOWN, HOT))
    assert not is_passing(looked(DOWN, ECC))
    assert is_passing(NodeUnreachable("node000000", "silent"))


BROKEN = {
    "ends every shell": (
        "echo closed; exit 3",
        "before the command, after it had printed 'closed': a",
    ),
    "ends every shell well": ("exit 0", "its login ended before the command: a start-up file"),
    "broken python3": ("export PATH=$HOME/broken:$PATH", "exit status 1: python3: cannot load libpython"),
}


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN)
def test_a_node_at_which_the_look_cannot_run_is_unknown_and_not_sick(
    server: SshServer, workplace: Path, line: str, words: str
) -> None:
    python = server.folder / "home/broken/python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text("#!/bin/sh\necho 'python3: cannot load libpython' >&2\nexit 1\n")
    python.chmod(0o755)
    (server.folder / "home/.bashrc").write_text(line + "\n")
    done = fab(workplace, "check", "--json")
    (found,) = json.loads(done.stdout)["nodes"].values()
    assert (found["verdict"], found["findings"], done.returncode) == ("unknown", [], 1)
    assert words in found["reasons"][0]
    assert "fab replace" not in done.stdout + done.stderr


def test_a_login_that_prints_is_a_finding_beside_the_others(server: SshServer, workplace: Path) -> None:
    (server.folder / "home/.bashrc").write_text("echo; echo Welcome to node 0\n")
    found = json.loads(fab(workplace, "check", "--json").stdout)["nodes"]["node000000"]["findings"]
    assert len(found) > 1
    assert (found[-1]["rule"], found[-1]["level"]) == ("login-output", "warning")
    assert found[-1]["measured"] == "prints 'Welcome to node 0'"
    assert "remove that from the shell's start-up files, such as ~/.bashrc" in found[-1]["remedy"]
