"""Nodes that no new job takes: ``drain``, ``undrain``."""

from __future__ import annotations

import dataclasses
import getpass
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from invoke.context import Context

from infra.inventory import Inventory, Node
from launch.errors import GiveUpError, InputError, ManyNodesError
from launch.nodeset import fold
from launch.remote.node.slots import ASIDE, DRAINED
from playbooks.cli import output
from playbooks.cli.merged_output import grouped
from playbooks.cli.task import command, open_from, with_address_age
from playbooks.nodes.choose import choose_nodes
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

if TYPE_CHECKING:
    from launch.host import Host

__all__ = ["drain", "undrain"]

STEP_S = 20.0
"""Limit of one node's answer."""
_BY_BYTES, _REASON_BYTES = 100, 200
"""Together with the time they fit the bytes of a slot's holder."""
_FILE = DRAINED.lstrip("/")
_IS_DAMAGED = f"[ -h {_FILE} ] || {{ [ -e {_FILE} ] && [ ! -f {_FILE} ]; }}"
_MOVE_ASIDE = f"mv {_FILE} {_FILE}{ASIDE}$$"
"""A job may put anything in the file's place: `cat` would wait for a pipe's writer."""
_DRAIN = f"""\
mkdir -p -m 700 .ranklift || exit
if {_IS_DAMAGED}; then {_MOVE_ASIDE} || exit; fi
if [ ! -s {_FILE} ]; then
  printf 'drained %s by %s\\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" > {_FILE}.$$ && sync {_FILE}.$$ &&
    mv {_FILE}.$$ {_FILE} || {{ rm -f {_FILE}.$$; exit 1; }}
fi
cat {_FILE}
"""
"""Keeps the word of who was first. The time is the node's, as that of jobs which it is compared with."""
_UNDRAIN = f"""\
if {_IS_DAMAGED}; then {_MOVE_ASIDE} && echo drained, but the record is damaged
elif [ -e {_FILE} ]; then cat {_FILE} && rm {_FILE}; fi
"""
_NODES = "names, instance ids and ranges of both: 0-3,node000007; all"


@command(
    "drain",
    example='fab drain 3 --reason "Xid 79 on GPU 5"',
    help={"nodes": _NODES, "reason": "why, for whoever meets the note: one line"},
    positional=["nodes"],
)
def drain(
    context: Context,
    nodes: str,
    reason: str | None = None,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Let no new job take the nodes; what runs there goes on.

    The note is on the node itself, for every operator and every head, and goes with the node when it is
    replaced or installed again. A launch that names a drained node is refused, ``any:N`` passes it over, a
    job that was queued before waits for ``fab undrain``. A node that is drained already keeps its first note;
    with another --reason the exit status is 1 then.
    """
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes, "nodes")
    why = "" if reason is None else f": {_checked_reason(reason)}"
    if dry_run:
        step = f"note on {fold(node.name for node in wanted)} that no new job takes it{why}"
        output.steps([step], json=json)
        return
    by = f"{getpass.getuser()} on {socket.gethostname()}".encode()[:_BY_BYTES].decode("utf-8", "ignore")
    noted = dict(_on_nodes(chosen, inventory, wanted, [_DRAIN, "sh", by + why]))
    for name, text in noted.items():
        if isinstance(text, str) and not text.endswith(why):
            remedy = "the reason is not kept; `fab undrain` first"
            noted[name] = GiveUpError(f"{name}: was drained before, and keeps its note: {text}; {remedy}")
    drained = {name: text for name, text in noted.items() if isinstance(text, str)}
    jobs = _jobs_on(chosen, inventory, [node for node in wanted if node.name in drained])
    if json:
        output.as_json({name: {"drain": text, "jobs": jobs[name]} for name, text in drained.items()})
    else:
        for line in grouped(
            {
                name: "; ".join([text, *(f"{job} goes on" for job in jobs[name])])
                for name, text in drained.items()
            }
        ):
            output.result(line)
    _raise_for_errors(inventory, "fab drain", noted)


@command("undrain", example="fab undrain 3", help={"nodes": _NODES}, positional=["nodes"])
def undrain(
    context: Context, nodes: str, stack: str | None = None, json: bool = False, dry_run: bool = False
) -> None:
    """Let jobs take drained nodes again; those that wait for them start."""
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    wanted = choose_nodes(inventory, nodes, "nodes")
    if dry_run:
        output.steps([f"remove the note of a drain from {fold(node.name for node in wanted)}"], json=json)
        return
    noted = _on_nodes(chosen, inventory, wanted, [_UNDRAIN])
    if json:
        output.as_json({name: {"was": text} for name, text in noted.items() if isinstance(text, str)})
    else:
        known = {name: text for name, text in noted.items() if isinstance(text, str)}
        for line in grouped(
            {
                name: f"takes jobs again, was {text}" if text else "was not drained"
                for name, text in known.items()
            }
        ):
            output.result(line)
    _raise_for_errors(inventory, "fab undrain", noted)


def _checked_reason(text: str) -> str:
    """Return a reason as a note keeps it. Raise :class:`~launch.errors.InputError`."""
    reason = text.strip()
    if not reason:
        raise InputError("--reason", text, "is empty", "say why, or leave it out")
    if not reason.isprintable():
        raise InputError("--reason", text, "is not one line of text", "write it in one line")
    if len(reason.encode("utf-8", "replace")) > _REASON_BYTES:
        problem = f"has more than the {_REASON_BYTES} bytes that a note keeps"
        raise InputError("--reason", text, problem, "write it shorter")
    return reason


def _on_nodes(
    stack: Stack, inventory: Inventory, nodes: Sequence[Node], words: Sequence[str]
) -> Mapping[str, str | Exception]:
    """Run a shell script on the nodes; return what each printed."""
    from playbooks.ssh.connection import Cluster

    with Cluster(inventory, stack.folder) as cluster:
        return fan_out_hosts(
            cluster.host, nodes, partial(_run, words=words), what="changing its note", timeout=STEP_S + 1
        )


def _run(host: Host, words: Sequence[str]) -> str:
    done = host.run(["sh", "-c", *words], timeout=STEP_S)
    if done.exit_status:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines() or [
            f"exit status {done.exit_status}"
        ]
        raise GiveUpError(f"{host.name}: its note could not be changed: {why[-1]}")
    return done.stdout.decode("utf-8", "replace").strip()


def _jobs_on(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> Mapping[str, Sequence[str]]:
    from playbooks.nodes.busy import uses

    used = uses(stack, dataclasses.replace(inventory, nodes=tuple(nodes)))
    return {name: use.jobs for name, use in used.items()}


def _raise_for_errors(inventory: Inventory, what: str, noted: Mapping[str, str | Exception]) -> None:
    if any(isinstance(answer, Exception) for answer in noted.values()):
        raise with_address_age(inventory, ManyNodesError(what, noted))
