"""The fork by which a rank's runner outlives the SIGKILL of the launcher that started it."""

from __future__ import annotations

import os

from launch.remote.base.processes import SIGTERM, die_with_parent

__all__ = ["fork_into_own_session"]


def fork_into_own_session() -> int | None:
    """Fork; return None in the child, and the child's exit status in the process that the launcher started.

    When a rank calls MPI_Abort or mpirun goes away, hydra ends what it started by SIGKILL alone. The child
    then gets a SIGTERM, and has time to end its rank's processes and to report their exit.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    os.setsid()
    die_with_parent(SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + SIGTERM)
    return None
