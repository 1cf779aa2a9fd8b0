"""Commands that write more than anybody reads: the end is kept here, and what came before is counted."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import FAB, ROOT, fab, write_project


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose stack ``dev`` has two nodes that answer."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, "dev", fabfile=True)
    with SshServer(folder / "sshd") as server:
        ports = dict.fromkeys((0, 1), server.port)
        save_stack(folder / ".ranklift" / "dev", ports, server.host_key, server.user_key)
        yield folder


def test_of_much_output_exec_shows_the_end_and_how_much_came_before(workplace: Path) -> None:
    much = "(head -c 3000000 /dev/zero | tr '\\0' x; echo end)"
    ran = fab(workplace, "exec", f"{much}; {much} >&2", "--nodes", "0")
    assert (len(ran.stdout), ran.stdout[-5:]) == (3_000_004, "xend\n")
    assert ran.stderr.splitlines()[0] == "(2.0 MB left out)"
    ran = fab(workplace, "exec", much, "--nodes", "0-1")
    assert ran.stdout.startswith("node[000000-000001]\n  (2.0 MB left out)\n  xxx")
    found = json.loads(fab(workplace, "exec", much, "--nodes", "0", "--json").stdout)["node000000"]
    assert (found["stdout_left_out"], len(found["stdout"])) == (3_000_004 - (1 << 20), 1 << 20)


def test_a_node_that_never_stops_writing_takes_no_memory_here_and_ends_in_time(workplace: Path) -> None:
    def largest(*words: str) -> tuple[int, str, int]:
        """Exit status, stderr and the most memory in KiB that fab held."""
        with subprocess.Popen(
            [FAB, *words],
            cwd=workplace,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as running:
            assert running.stderr is not None
            shown = running.stderr.read().decode()
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
        return running.returncode, shown, usage.ru_maxrss

    _, _, idle = largest("exec", "true", "--nodes", "0-1")
    for endless in ("yes >&2", "yes"):
        began = time.monotonic()
        status, shown, flooded = largest("exec", endless, "--nodes", "0-1", "--timeout", "4")
        assert time.monotonic() - began < 15
        assert (status, "did not end within 4 s" in shown) == (1, True)
        assert flooded - idle < 30_000
