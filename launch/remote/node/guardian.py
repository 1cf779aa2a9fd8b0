"""The guardian, the parent process of a runner: ends what a runner leaves behind that was killed itself.

The kernel kills a runner's ranks with it, but not what the ranks have started. A guardian is a subreaper:
those processes become its children, whatever session, environment or parents they have, and it kills them. It
needs no message from its runner, and waits in one system call until the runner has ended.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os

from launch.remote.base import processes, timing
from launch.remote.base.processes import SIGCHLD, SIGHUP, SIGINT, SIGTERM

__all__ = ["fork_under_guardian"]

_AWAITED = (SIGHUP, SIGINT, SIGTERM, SIGCHLD)


def fork_under_guardian(*descriptors: int) -> int | None:
    """Fork; return None in the child, which has a session of its own. This process becomes the child's
    guardian and returns its exit status, 128+n for signal n, once nothing below it is left.

    ``descriptors`` are the child's alone: whoever reads a channel learns at once that its runner has ended.
    Signals that end a process are passed on to the child, as SIGTERM; so is the guardian's own end.
    """
    guardian = os.getpid()
    processes.become_subreaper()
    _signal.signal(SIGCHLD, _signal.SIG_DFL)  # where it was ignored, a child's end would be no event
    awaited_before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _AWAITED)
    child = os.fork()
    if child == 0:
        os.setsid()
        processes.die_with_parent(SIGTERM)
        if os.getppid() != guardian:
            os._exit(128 + SIGTERM)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, awaited_before)
        return None
    for descriptor in descriptors:
        os.close(descriptor)
    started = processes.start_time(child)
    status = _wait_for(child)
    if processes.has_children():
        processes.end_descendants(timing.UNKILLABLE_S)
    if status:
        from launch.remote.node.runtimes.docker import end_containers_of  # its ranks are no descendants

        end_containers_of(child, started)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _wait_for(child: int) -> int:
    while True:
        if _signal.sigwait(_AWAITED) != SIGCHLD:
            processes.kill(child, SIGTERM)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
