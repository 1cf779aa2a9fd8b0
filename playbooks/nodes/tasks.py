"""Single nodes and many: ``exec``, ``ssh``, ``push``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import KEY_FILE, KNOWN_HOSTS_FILE, SSH_CONFIG_FILE, Inventory, Node
from launch.errors import InputError, ManyNodesError, MissingTool, NodeUnreachable
from launch.host import Completed
from launch.nodeset import fold
from launch.numbers import counted
from playbooks.cli import output
from playbooks.cli.options import number
from playbooks.cli.task import choose_nodes, command, open_from, seconds
from playbooks.project import Stack
from playbooks.ssh.fanout import LIMIT, fan_out

__all__ = ["execute", "explained", "push", "run_on", "source_folder", "ssh"]


@command(
    "exec",
    example='fab exec "nvidia-smi -L" --nodes 0-3,7',
    help={
        "line": "the command line, in quotes; bash reads it on the nodes",
        "fanout": "nodes worked on at once",
        "timeout": "limit for each node in seconds (default: none); 90s, 10m and 2h are understood too",
    },
    positional=["line"],
)
def execute(
    context: Context,
    line: str,
    nodes: str | None = None,
    stack: str | None = None,
    timeout: str | None = None,
    fanout: str = str(LIMIT),
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Runs a command on nodes; those that gave the same are shown once.

    Of a node's stdout, and of its stderr, the last MiB is kept, and what came before is counted.
    The exit status is the command's own where all failures agree, else 1.
    """
    limit = None if timeout is None else seconds("--timeout", timeout)
    if not line.strip():
        raise InputError("line", line, "is empty", 'give the command to run, as in fab exec "nvidia-smi -L"')
    at_once = number("--fanout", fanout, "nodes", f"leave it out for {LIMIT}", low=1)
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    if dry_run:
        output.result(f"on {fold(node.name for node in wanted)}: {line}")
        return
    results = run_on(chosen, inventory, wanted, line, limit, at_once)
    if json:
        output.as_json(results)
    else:
        output.merged(results)
    failed = {result.exit_status for result in results.values() if isinstance(result, Completed)} - {0}
    broken = any(isinstance(result, Exception) for result in results.values())
    if broken and not json:
        raise explained(inventory, ManyNodesError("exec", results))
    if broken or failed:
        raise Exit(code=failed.pop() if len(failed) == 1 and not broken else 1)


def run_on(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    line: str,
    timeout: float | None,
    fanout: int = LIMIT,
) -> dict[str, Completed | Exception]:
    """``line`` on every node, each connection closed as soon as it has answered."""
    from playbooks.ssh.connection import Cluster

    by_name = {node.name: node for node in nodes}
    with Cluster(inventory, stack.folder) as cluster:

        def run(name: str) -> Completed:
            with cluster.host(by_name[name]) as host:
                return host.run_tail(line, timeout=timeout)

        # The fan-out's own limit is the net under the connection's: the latter knows more to say.
        return fan_out(
            run,
            by_name,
            what=line,
            limit=fanout,
            timeout=None if timeout is None else timeout + 1,
        )


@command(
    "ssh",
    example="fab ssh --node 3",
    help={"node": "instance id (default: the head, the lowest)"},
)
def ssh(context: Context, node: str | None = None, stack: str | None = None, dry_run: bool = False) -> None:
    """Opens a shell on one node.

    It is the ssh on PATH, with the stack's own settings and keys alone.
    """
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, node)[0]
    argv = ["ssh", "-F", str(chosen.folder / SSH_CONFIG_FILE), wanted.name]
    for file in (SSH_CONFIG_FILE, KNOWN_HOSTS_FILE, KEY_FILE):
        if not (chosen.folder / file).is_file():  # ssh would say so, but not what to do
            problem = f"{chosen.folder / file} is not there"
            raise InputError("stack", chosen.name, problem, f"run `fab status --stack {chosen.name}`")
    if dry_run:
        output.command(argv)
        return
    program = shutil.which("ssh")
    if program is None:
        raise MissingTool("ssh", "install OpenSSH's client")
    os.execv(program, argv)  # noqa: S606  (ssh takes over the terminal and the exit status)


@command(
    "push",
    example="fab push --source ~/code/train --nodes 0-3",
    help={
        "source": "the folder to push (default: the repository around the current folder, else that folder)",
        "verify": "let every node read its copy again, and mend it",
    },
)
def push(
    context: Context,
    source: str | None = None,
    nodes: str | None = None,
    stack: str | None = None,
    verify: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Brings code to the nodes; a second push of the same moves nothing.

    What .gitignore and .ranklift-ignore name is left out, and always .git and .ranklift.
    """
    from launch.code.snapshot import plan_snapshot
    from playbooks.nodes.push_each import push_snapshot

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes)
    snapshot = plan_snapshot(source_folder(source), chosen.hashes, chosen.key_numbers())
    if snapshot.notice:
        output.progress(snapshot.notice)
    if dry_run:
        if json:
            output.as_json({"snapshot": snapshot, "nodes": [node.name for node in wanted]})
        else:
            count, size = len(snapshot.entries), output.amount(snapshot.size)
            where = fold(node.name for node in wanted)
            output.result(
                f"snapshot {snapshot.id}: {counted(count, 'file')}, {size}, from {snapshot.root} to {where}"
            )
        return
    report = push_snapshot(chosen, inventory, wanted, snapshot, verify=verify)
    if json:
        # Left out of the report's short form, as one line a node.
        output.as_json({**output.plain(report), "results": report.results})
    else:
        output.result(
            f"snapshot {report.snapshot}: {counted(report.files, 'file')} on {fold(report.results)}; "
            f"{output.amount(report.bytes_sent)} sent in {report.seconds:.1f} s"
        )


def source_folder(given: str | None) -> Path:
    """What ``push`` pushes: ``--source``, else the repository around the current folder, else that folder.

    git itself is not asked: it may be missing, and of a repository that is another user's it tells nothing.
    """
    if given is not None:
        return Path(os.path.expanduser(given))  # noqa: PTH111  (a user there is not stays in the name)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if _is_repository(folder)), here)


def _is_repository(folder: Path) -> bool:
    mark = folder / ".git"
    try:
        return (mark / "HEAD").is_file() or mark.is_file()  # a work tree and a submodule have a file
    except PermissionError:
        return os.path.isdir(mark)  # noqa: PTH112  (False where even that is not to be known)


def explained(inventory: Inventory, error: ManyNodesError) -> ManyNodesError:
    """Says how old the saved addresses are, when it may be them that are wrong."""
    if any(isinstance(failure, NodeUnreachable) for failure in error.errors.values()):
        hint = f"\naddresses are {output.age(inventory.read_at)} old; `fab status` asks Azure again"
        error.args = (f"{error}{hint}",)
    return error
