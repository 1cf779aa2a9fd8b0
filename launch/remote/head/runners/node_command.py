"""Commands that the head starts on a job's nodes: by a shell on the head, over ssh on the others."""

from __future__ import annotations

import subprocess

from launch.remote.base import timing
from launch.remote.base.records import Plan
from launch.remote.login import marked

__all__ = ["start_on_node"]


def start_on_node(
    plan: Plan, index: int, command: str, *, stdin: int, stderr: int, connect_s: int = timing.SSH_CONNECT_S
) -> subprocess.Popen[bytes]:
    """Start ``command`` of :mod:`launch.remote.cli` on node ``index`` of the plan; return the process, with a
    pipe as stdout, to be read by a :class:`launch.remote.login.Login`, in a session of its own: no signal to
    the supervisor's group reaches it."""
    # A shell line, because only the node's own shell knows its home folder; it has no value of the user's.
    line = marked(f'exec python3 -I -S "$HOME/{plan["remote"]}/__main__.py" {command}')
    argv = ["sh", "-c", line]
    if index != 0:
        argv = ["ssh", *timing.ssh_options(connect_s), "-T", plan["nodes"][index]["name"], line]
    return subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)
