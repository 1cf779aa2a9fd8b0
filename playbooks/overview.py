"""Which jobs there are: ``jobs``."""

from __future__ import annotations

from datetime import datetime

from invoke.context import Context

from launch.errors import ManyNodesError
from launch.events import JobState
from playbooks import render
from playbooks.command import choose_nodes, command, open_from
from playbooks.fanout import fan_out
from playbooks.joblog import STEP_S
from playbooks.nodes import explained

__all__ = ["jobs"]

_VERSIONS = ["sh", "-c", "test -d .ranklift/jobs && ls -t .ranklift/remote"]
"""Which versions of the node code a node with jobs has, newest first."""


@command("jobs", example="fab jobs --stack dev")
def jobs(context: Context, nodes: str | None = None, stack: str | None = None, json: bool = False) -> None:
    """Shows the jobs that the nodes have, newest last."""
    from launch.client import list_jobs
    from launch.push import remote_code
    from playbooks.connections import Cluster

    chosen = open_from(context, stack)
    inventory = chosen.saved()
    by_name = {node.name: node for node in choose_nodes(inventory, nodes)}
    current = remote_code()[0]
    with Cluster(inventory, chosen.folder) as cluster:

        def ask(name: str) -> list[JobState]:
            with cluster.host(by_name[name]) as host:
                present = host.run(_VERSIONS, timeout=STEP_S).stdout.decode().split()
                if not present:  # nothing was ever launched there
                    return []
                return list_jobs(host, remote=current if current in present else present[0])

        answers = fan_out(ask, by_name, what="listing its jobs", timeout=2 * STEP_S)
    found = {state.job: state for a in answers.values() if isinstance(a, list) for state in a}
    rows = sorted(found.values(), key=lambda state: state.created)
    if json:
        render.as_json(rows)
    else:
        render.table(
            ("job", "state", "nodes", "ranks", "started", "took", "exit"),
            [
                (
                    row.job,
                    row.state,
                    len(row.nodes),
                    row.ranks,
                    _when(row.started),
                    _span(row),
                    "" if row.exit_status is None else row.exit_status,
                )
                for row in rows
            ],
        )
    if any(isinstance(answer, Exception) for answer in answers.values()):
        raise explained(inventory, ManyNodesError("listing jobs", answers))


def _when(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _span(state: JobState) -> str:
    if state.started is None:
        return ""
    end = state.ended or datetime.now(state.started.tzinfo)
    return f"{(end - state.started).total_seconds():.1f} s"
