"""What becomes of a rank's processes when their runner, or what stands above it, is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launch.remote.base import processes

RUNNER = """
import os, signal, sys, time
from launch.remote.base import processes
from launch.remote.node.guardian import fork_under_guardian

for _ in range(int(sys.argv[1])):
    status = fork_under_guardian()
    if status is not None:
        os._exit(status)
if sys.argv[2] == "hear":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
processes.become_subreaper()
rank = r'''
trap "" TERM
sleep 1000 &
(setsid env -i sleep 1000 &)
echo ready
sleep 1000
'''
pid, out, err = processes.spawn(["bash", "-c", rank], dict(os.environ), "/")
os.set_blocking(out, True)
assert os.read(out, 10) == b"ready\\n"
print(os.getpid(), flush=True)
if sys.argv[2] == "end":
    processes.end_descendants(5)
    os._exit(7)
if sys.argv[2] == "hear":
    signal.sigwait([signal.SIGTERM])
    processes.end_descendants(5)
    os._exit(8)
time.sleep(1000)
"""


class Tree:
    """A runner, its guardians above it and the processes of its rank below."""

    def __init__(self, guardians: int, does: str = "wait") -> None:
        argv = [sys.executable, "-c", RUNNER, str(guardians), does]
        self.top = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.top.stdout is not None
        self.runner = int(self.top.stdout.readline())
        below = processes.descendants(self.top.pid)
        self.guardians = [self.top.pid, *below[: guardians - 1]]
        self.everything = {pid: processes.start_time(pid) for pid in (self.top.pid, *below)}

    def living(self) -> list[int]:
        """Processes that have not ended, zombies left out."""
        return [pid for pid, start in self.everything.items() if start and _is_living(pid, start)]

    def close(self) -> None:
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)
        assert self.top.stdout is not None
        self.top.stdout.close()
        self.top.wait()


def _is_living(pid: int, start: bytes) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return state[0] not in (b"Z", b"X") and state[19] == start
    return False


@pytest.fixture
def grow() -> Iterator[Callable[..., Tree]]:
    """Make a tree; nothing of it outlives the test."""
    made: list[Tree] = []

    def grow(guardians: int, does: str = "wait") -> Tree:
        made.append(Tree(guardians, does))
        return made[-1]

    yield grow
    for tree in made:
        tree.close()


def ends(tree: Tree, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while tree.living() and time.monotonic() < until:
        tree.top.poll()
        time.sleep(0.02)
    return not tree.living()


@pytest.mark.parametrize("guardians", [1, 2])
def test_a_killed_runner_leaves_nothing(grow: Callable[..., Tree], guardians: int) -> None:
    tree = grow(guardians)
    assert len(tree.living()) >= guardians + 4
    os.kill(tree.runner, signal.SIGKILL)
    assert ends(tree)
    assert tree.top.wait() == 128 + signal.SIGKILL


@pytest.mark.parametrize("survivor", [0, 1, 2])
def test_of_two_guardians_and_a_runner_any_one_suffices(grow: Callable[..., Tree], survivor: int) -> None:
    tree = grow(2, "hear")
    chain = [*tree.guardians, tree.runner]
    for pid in (pid for place, pid in enumerate(chain) if place != survivor):
        with suppress(ProcessLookupError):  # the survivor may have ended it first
            os.kill(pid, signal.SIGKILL)
    assert ends(tree)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_runner_as_sigterm(grow: Callable[..., Tree], number: int) -> None:
    tree = grow(2, "hear")
    os.kill(tree.top.pid, number)
    assert tree.top.wait(10) == 8
    assert ends(tree)


def test_the_exit_status_is_the_runners(grow: Callable[..., Tree]) -> None:
    assert grow(2, "end").top.wait(10) == 7
