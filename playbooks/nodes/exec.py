"""Commands on nodes: ``exec``."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, InputError, ManyNodesError
from launch.host import Completed
from launch.nodeset import fold
from launch.remote.login import SILENCE_LOGIN
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.options import number
from playbooks.cli.signals import attached
from playbooks.cli.task import command, open_from, seconds, with_address_age
from playbooks.nodes.choose import choose_nodes
from playbooks.project import Stack
from playbooks.ssh.fanout import LIMIT, fan_out_hosts
from playbooks.start import OutputFailed

if TYPE_CHECKING:
    from playbooks.ssh.connection import SshHost

__all__ = ["execute", "run_on"]

_STDIN = 0
_TERM_S, _KILL_S = 1.0, 0.5
"""After Ctrl-C, seconds until SIGKILL and until the end of the wait for it."""
_POLL_S = 0.02
_NOT_FOUND = 127
"""Exit status of a shell that does not find a command."""


@command(
    "exec",
    example='fab exec "nvidia-smi -L" --nodes 0-3,7',
    help={
        "line": "command line, in quotes, where bash on the nodes expands $HOME and *; behind -- each word "
        "reaches the command as it is",
        "fanout": "number of nodes worked on at once",
        "allow-cut": "end with 0 although output was longer than what is kept of it",
        "timeout": "limit for each node in seconds (default: none); 90s, 10m and 2h are accepted too",
    },
    positional=["line"],
)
def execute(  # noqa: PLR0913, PLR0917
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    timeout: str | None = None,
    fanout: str = str(LIMIT),
    allow_cut: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Run a command on nodes; print identical output once, for all nodes that gave it.

    A single node's stdout goes into a file or a pipe as it is. Otherwise the last MiB of each node's stdout
    and stderr is kept; what came before it is counted, and the exit status is 1 unless --allow-cut is given.
    A single node gets stdin, unless that is a terminal; several nodes refuse a stdin that has data.
    The exit status is the command's own where all failures agree, else 1. Ctrl-C, SIGTERM and a
    closed terminal end the command on the nodes that have not answered, and name them.
    """
    limit = None if timeout is None else seconds("--timeout", timeout)
    if not line.strip():
        raise InputError("line", line, "is empty", 'give the command to run, as in fab exec "nvidia-smi -L"')
    at_once = number("--fanout", fanout, "nodes", f"leave it out for {LIMIT}", low=1)
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    stdin = _stdin(wanted)
    if dry_run:
        output.result(f"on {fold(node.name for node in wanted)}: {line}")
        return
    as_it_is = len(wanted) == 1 and not json and not sys.stdout.isatty()
    on_stdout = output.data if as_it_is else None
    results = run_on(chosen, inventory, wanted, line, limit, at_once, stdin, on_stdout)
    if json:
        output.as_json(results)
    elif as_it_is:
        _print_rest(results)
    else:
        output.merged(results)
    if len(wanted) > 1 and _has_data(_STDIN):
        output.progress(
            "stdin was not passed on: it had no data at the start, and only a single node gets it"
        )
    hint = _shell_hint(line, results.values())
    if hint:
        output.progress(hint)
    failed = {result.exit_status for result in results.values() if isinstance(result, Completed)} - {0}
    broken = any(isinstance(result, Exception) for result in results.values())
    if broken and not json:
        raise with_address_age(inventory, ManyNodesError("exec", results))
    if broken or failed:
        raise Exit(code=failed.pop() if len(failed) == 1 and not broken else 1)
    if not allow_cut:
        _refuse_cut(results)


def _print_rest(results: Mapping[str, Completed | Exception]) -> None:
    """Print what a single node has to say beside its stdout, which is written. Raise what kept that from
    being written."""
    for name, found in results.items():
        if isinstance(found, OutputFailed):
            raise found
        if isinstance(found, Completed):
            output.merged({name: replace(found, exit_status=0)})
            if found.exit_status:
                output.progress(f"{name}: exit status {found.exit_status}")


def _refuse_cut(results: Mapping[str, Completed | Exception]) -> None:
    """Raise :class:`~launch.errors.GiveUpError` where not all output of a node was kept."""
    cut = [
        name
        for name, found in results.items()
        if isinstance(found, Completed) and (found.stdout_left_out or found.stderr_left_out)
    ]
    if cut:
        raise GiveUpError(
            f"the output of {fold(cut)} was longer than what is kept of it: write it to a file there, have a "
            "single node's stdout go into a file here, or give --allow-cut"
        )


def _shell_hint(line: str, results: Iterable[Completed | Exception]) -> str:
    """Return how a shell line is given, where nodes did not find a command whose name looks like one.

    >>> _shell_hint("'id; hostname'", [Completed(127, b"", b"")])
    "'id; hostname' is one word behind --, the name of a command: leave out -- to have bash run the line, or \
give -- sh -c 'id; hostname'"
    >>> _shell_hint("'id; hostname'", [Completed(0, b"", b"")])
    ''
    >>> _shell_hint("idd", [Completed(127, b"", b"")])
    ''
    """
    try:
        name = shlex.split(line)[0]
    except (ValueError, IndexError):  # a line that only bash reads
        return ""
    is_quoted = line.startswith(shlex.quote(name)) and shlex.quote(name) != name
    if not is_quoted or all(isinstance(one, Exception) or one.exit_status != _NOT_FOUND for one in results):
        return ""
    word = shlex.quote(name)
    return (
        f"{word} is one word behind --, the name of a command: leave out -- to have bash run the line, or "
        f"give -- sh -c {word}"
    )


def run_on(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    line: str,
    timeout: float | None,
    fanout: int = LIMIT,
    stdin: int | None = None,
    on_stdout: Callable[[bytes], object] | None = None,
) -> dict[str, Completed | Exception]:
    """Run ``line`` on every node; return the end of its output, or the error, by node.

    ``stdin`` is a file descriptor, and ``on_stdout`` gets all of stdout, for a single node.
    """
    from playbooks.ssh.connection import Cluster

    answered = set[str]()

    with Cluster(inventory, stack.folder) as cluster:

        def on_signal(_number: int) -> str:
            return _end_command([cluster.host(node) for node in nodes if node.name not in answered])

        with attached(on_signal):
            # The connection's own limit comes first: its error says more than the fan-out's.
            results = fan_out_hosts(
                cluster.host,
                nodes,
                lambda host: host.run_tail(line, stdin=stdin, timeout=timeout, on_stdout=on_stdout),
                what=line,
                limit=fanout,
                timeout=None if timeout is None else timeout + 1,
                on_result=lambda name, _: answered.add(name),
            )
        printed = {node.name: cluster.host(node).login.printed for node in nodes}
        for note in grouped(
            {name: f"the login prints {words}: {SILENCE_LOGIN}" for name, words in printed.items() if words}
        ):
            output.progress(note)
        return results


def _end_command(hosts: Sequence[SshHost]) -> str:
    """End the command on ``hosts`` by SIGTERM, after a second by SIGKILL; return what came of it."""
    for host in hosts:
        host.command.end("TERM")
    running = _wait(hosts, _TERM_S)
    for host in running:
        host.command.end("KILL")
    running = _wait(running, _KILL_S)
    ended = (
        f"interrupted: no answer yet from {fold(host.name for host in hosts)}; the command was ended there"
    )
    return f"{ended}, but may still run on {fold(host.name for host in running)}" if running else ended


def _wait(hosts: Sequence[SshHost], limit: float) -> list[SshHost]:
    """Wait until the command has ended on all ``hosts``, ``limit`` seconds at most; return the others."""
    deadline = time.monotonic() + limit
    while (running := [host for host in hosts if host.command.is_running]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return running


def _stdin(nodes: Sequence[Node]) -> int | None:
    """Return the descriptor of the stdin that the nodes get, if any.

    Raises :class:`~launch.errors.InputError` for data that several nodes would have to share.
    """
    if len(nodes) == 1:
        return None if os.isatty(_STDIN) else _STDIN
    if _has_data(_STDIN):
        problem = f"has data, which only a single node can get, not {len(nodes)}"
        raise InputError("stdin", None, problem, "choose one with --nodes, or append < /dev/null")
    return None


def _has_data(descriptor: int) -> bool:
    """Return whether a file or a pipe has data now; no for an empty pipe, as under cron, and a terminal."""
    import fcntl
    import struct
    import termios

    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        return os.lseek(descriptor, 0, os.SEEK_CUR) < found.st_size
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return False
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(count)
