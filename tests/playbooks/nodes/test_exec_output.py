"""What ``fab exec`` prints of nodes' output, and what it does with more than it keeps."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.playbooks.nodes.test_exec import BYTES, execute
from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import FAB, ROOT, write_project

MUCH = "head -c 3000000 /dev/zero | tr '\\0' x"
CUT = (
    b"error: the output of node%s was longer than what is kept of it: write it to a file there, have a "
    b"single node's stdout go into a file here, or give --allow-cut\n"
)


@pytest.fixture
def workplace(server: SshServer, tmp_path: Path) -> Path:
    """A project whose stack ``dev`` has two nodes."""
    write_project(tmp_path, "dev", fabfile=True)
    save_stack(
        tmp_path / ".ranklift" / "dev", dict.fromkeys((0, 1), server.port), server.host_key, server.user_key
    )
    (tmp_path / "data").write_bytes(BYTES)
    return tmp_path


def run(workplace: Path, line: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    return execute(workplace, line, *options, stdin=subprocess.DEVNULL)


def test_a_single_nodes_stdout_comes_as_it_is_and_whole(workplace: Path) -> None:
    done = run(workplace, f"cat {workplace}/data; echo warning >&2", "-n", "1")
    assert (done.returncode, done.stderr) == (0, b"warning\n")
    assert done.stdout == BYTES


def test_a_single_node_that_fails_adds_nothing_to_its_stdout(workplace: Path) -> None:
    done = run(workplace, r"printf '\377'; echo why >&2; exit 3", "-n", "1")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\xff", b"why\nnode000001: exit status 3\n")


def test_a_reader_that_leaves_ends_the_command(workplace: Path) -> None:
    with subprocess.Popen(["head", "-c", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as head:
        done = subprocess.run(
            [FAB, "exec", "yes", "-n", "1"],
            cwd=workplace,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
            stdin=subprocess.DEVNULL,
            stdout=head.stdin,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_output_of_several_nodes_that_is_cut_is_an_error(workplace: Path, options: tuple[str, ...]) -> None:
    done = run(workplace, MUCH, *options)
    assert (done.returncode, done.stderr) == (1, CUT % b"[000000-000001]")
    assert len(done.stdout) > 1 << 20


def test_cut_stderr_is_an_error_too(workplace: Path) -> None:
    done = run(workplace, f"{{ {MUCH}; }} >&2", "-n", "1")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.endswith(CUT % b"000001")


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_cut_that_is_allowed_is_none(workplace: Path, options: tuple[str, ...]) -> None:
    done = run(workplace, MUCH, "--allow-cut", *options)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_single_nodes_json_says_what_was_cut(workplace: Path) -> None:
    done = run(workplace, MUCH, "-n", "1", "--json")
    assert (done.returncode, done.stderr) == (1, CUT % b"000001")
    (answer,) = json.loads(done.stdout).values()
    assert answer["stdout_left_out"] == 3_000_000 - (1 << 20)
