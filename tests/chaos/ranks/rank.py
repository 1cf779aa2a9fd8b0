"""What ranks do while something breaks: ``rank.py WHAT [RANK]``.

Each says ``ready``, waits until a file on its node tells it to go on, and does WHAT; where a RANK is named,
that one does it and the others wait: but they do their work when WHAT is to hang or to return early, and fail
after it when WHAT is to lead. Where WHAT is a kind of rank, or ``mixed`` for one of each kind in turn, it is
that and waits. With CHAOS_MPI set it begins with MPI_Init, unless some rank is to end well before others:
MPI_Finalize would wait for those.
"""

import os
import signal
import sys
import time

RANK = os.environ.get("RANK", "")
LINES = 400
KINDS = ("plain", "deaf", "child", "deaf-child")
"""Ranks that do, or do not, end by SIGTERM, and that have, or do not have, processes below them."""
NOBODY_WAITS_LONGER_S = 600


def say(text: str) -> None:
    """One write for a line: torchrun's ranks share a pipe."""
    os.write(1, f"{text}\n".encode())


def wait(path: str = "/nonexistent") -> None:
    until = time.monotonic() + NOBODY_WAITS_LONGER_S
    while not os.access(path, os.F_OK) and time.monotonic() < until:
        time.sleep(0.02)


def heard(number: int, _frame: object) -> None:
    say(f"rank {RANK} does not heed signal {number}")


def leave_a_daemon() -> None:
    """A process in a session of its own, whose parents have gone, and that does not heed SIGTERM."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, b"+")
            wait()
        os._exit(0)
    os.wait()
    os.read(read, 1)


def leave_children() -> None:
    """A child, and a process whose parents have gone, in its own session, without the job's variables."""
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", str(NOBODY_WAITS_LONGER_S)])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", str(NOBODY_WAITS_LONGER_S)], {})
        os._exit(0)


def talk(word: str) -> None:
    for number in range(LINES):
        say(f"{word} {number} {'x' * 1000}")
        time.sleep(0.002)


def begin(what: str) -> None:
    if os.environ.get("CHAOS_MPI") and what not in ("hang", "return", "talk"):
        import mpi4py

        mpi4py.rc.finalize = False  # it would wait at the end of a rank that fails
        from mpi4py import MPI

        assert int(RANK) == MPI.COMM_WORLD.rank
    if what.startswith("stubborn"):
        signal.signal(signal.SIGTERM, heard)
    if what == "daemons":
        leave_a_daemon()
    kind = KINDS[int(RANK) % len(KINDS)] if what == "mixed" else what
    if kind in ("deaf", "deaf-child"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as their children then do
    if kind in ("child", "deaf-child"):
        leave_children()
    if what == "talk":
        talk("before")
    say(f"ready {RANK}")
    wait(f"{os.environ['HOME']}/go-{os.environ['RANKLIFT_JOB_ID']}")


def go_on(what: str, who: str) -> int:
    is_one_of_them = not who or who == RANK
    if what == "hang" and is_one_of_them:
        wait()
    if what == "return" and not is_one_of_them:
        time.sleep(2)
    if what in ("hang", "return"):
        say(f"rank {RANK} has worked")
        return 0
    if what == "lead" and not is_one_of_them:
        time.sleep(0.15)
        say("lost a peer")
        return 1
    if not is_one_of_them or what in ("wait", "daemons", "stubborn", "mixed", *KINDS):
        wait()
    if what == "raise":
        raise RuntimeError("loss is nan")
    if what == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "talk":
        talk("after")
        return 0
    say("loss is nan")
    return 3


if __name__ == "__main__":
    begin(sys.argv[1])
    sys.exit(go_on(sys.argv[1], "".join(sys.argv[2:3])))
