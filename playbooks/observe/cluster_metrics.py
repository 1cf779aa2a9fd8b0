"""The metrics of a whole cluster: gathered from the jobs' heads over ssh, with what the account costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from infra.inventory import Inventory, Node
from launch.client.rpc import ask, version_there
from launch.errors import GiveUpError, ManyNodesError
from launch.host import Host
from launch.remote.metrics.exposition import exposition
from launch.remote.metrics.metrics_records import ClusterFacts, HeadMetrics
from launch.remote.reading import Malformed
from playbooks.foreign_jobs import foreign
from playbooks.project import Stack
from playbooks.ssh.connection import Cluster
from playbooks.ssh.fanout import fan_out_hosts, in_background

if TYPE_CHECKING:
    from infra.preflight.usage import Account

__all__ = ["FRESH_S", "ClusterMetrics", "cost_so_far"]

FRESH_S = 5.0
"""Seconds for which an answer is given again: a second reader costs the nodes nothing."""
_NODE_S = 8.0
"""Limit of one node's answer, within the 10 s that Prometheus waits by default (scrape_timeout)."""
_ANSWER_BYTES = 8 << 20
"""Largest answer of a node, the limit of one job's samples.json: some 60 MiB as objects."""
_COST_S = 600.0
"""Seconds between two queries of the account: a price list changes once a month."""
_COST_WAIT_S = 1.0
"""Time that a text waits for a query of the account that is under way: Azure may take longer than Prometheus
waits, and the cost is in the next text."""
_HOUR_S = 3600.0


class ClusterMetrics:
    """The metrics of a stack as text; its connections stay open until :meth:`close`."""

    def __init__(self, stack: Stack, report: Callable[[str], None]) -> None:
        """Report in words, once each, which nodes do not answer and why a cost is unknown."""
        self._stack, self._report = stack, report
        self._inventory = stack.saved()
        self._cluster = Cluster(self._inventory, stack.folder)
        self._text, self._made = "", -FRESH_S
        self._account: Account | None = None
        self._queried = -_COST_S
        self._answered = threading.Event()
        self._reported: dict[str, str] = {}
        self._asked: set[str] = set()
        self.failure: ManyNodesError | None = None
        """The error of the nodes that did not answer the last time."""

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def text(self, cost_wait_s: float | None = _COST_WAIT_S) -> str:
        """Return the text, at most :data:`FRESH_S` old; wait so long for the cost, None for its end.

        Raise RankliftError where no node is known.
        """
        if time.monotonic() - self._made >= FRESH_S:
            self._text, self._made = self._gathered(cost_wait_s), time.monotonic()
        return self._text

    def _gathered(self, cost_wait_s: float | None) -> str:
        self._begin_account()
        inventory = self._stack.saved()
        if inventory != self._inventory:  # `fab up`, scale and replace write it
            self._cluster.close()
            self._inventory, self._cluster = inventory, Cluster(inventory, self._stack.folder)
        damaged: dict[str, str] = {}
        answers: dict[str, HeadMetrics | Exception | None] = {
            node.name: GiveUpError(f"{node.name}: its answer to the query before is not read yet")
            for node in inventory.nodes
            if node.name in self._asked
        }
        answers |= fan_out_hosts(
            self._once,
            [node for node in inventory.nodes if node.name not in answers],
            partial(_query, damaged),
            what="reading its metrics",
            timeout=_NODE_S,
        )
        failed = any(isinstance(answer, Exception) for answer in answers.values())
        self.failure = ManyNodesError("reading metrics", answers) if failed else None
        self._report_once("nodes", str(self.failure or ""))
        for name in answers:
            self._report_once(name, damaged.get(name, ""))
        heads = {
            name: answer
            for name, answer in answers.items()
            if not isinstance(answer, Exception) and answer is not None
        }
        self._answered.wait(cost_wait_s)
        return exposition(self._own_jobs(heads), self._facts(inventory, answers))

    @contextmanager
    def _once(self, node: Node) -> Iterator[Host]:
        """Give a node's connection; until the end of it the node is asked nothing more, also after the limit
        of time, which ends no work on its answer."""
        self._asked.add(node.name)
        try:
            yield self._cluster.host(node)
        finally:
            self._asked.discard(node.name)

    def _own_jobs(self, heads: Mapping[str, HeadMetrics]) -> list[HeadMetrics]:
        """Leave out what a head says of another head's jobs: it may say anything."""
        others = foreign(self._stack, {name: [job["job"] for job in heads[name]["jobs"]] for name in heads})
        for name in heads:
            jobs = others.get(name, {})
            text = ", ".join(f"{job} (of {head})" for job, head in list(jobs.items())[:1])
            more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
            self._report_once(
                f"{name}, jobs",
                text and f"{name}: left out, since they are another head's jobs: {text}{more}",
            )
        return [
            {**head, "jobs": [job for job in head["jobs"] if job["job"] not in others.get(name, {})]}
            for name, head in heads.items()
        ]

    def _facts(self, inventory: Inventory, answers: Mapping[str, object]) -> ClusterFacts:
        hourly, total = (None, None)
        if self._account is not None:
            hourly, total = cost_so_far(self._account, datetime.now(UTC))
        return {
            "stack": self._stack.short_name,
            "size": inventory.size,
            "location": inventory.location,
            "answers": {name: not isinstance(answer, Exception) for name, answer in answers.items()},
            "usd_per_hour": hourly,
            "usd": total,
        }

    def _begin_account(self) -> None:
        """Begin to query what exists and its prices, every ten minutes, beside the nodes."""
        if time.monotonic() - self._queried >= _COST_S:
            self._queried = time.monotonic()
            self._answered.clear()
            in_background(self._read_account)

    def _read_account(self) -> None:
        """Query the account; keep the last answer if Azure gives none."""
        from playbooks.stack.account import query_account

        try:
            self._account = query_account(self._stack, self._stack.short_name)
        except Exception as error:  # noqa: BLE001 - a fault of the cost must not take the other metrics
            self._report_once("cost", f"the cost so far is unknown: {error}")
        else:
            self._report_once("cost", "")
        finally:
            self._answered.set()

    def _report_once(self, topic: str, text: str) -> None:
        if text and text != self._reported.get(topic):
            self._report(text)
        self._reported[topic] = text


def cost_so_far(account: Account, now: datetime) -> tuple[float, float]:
    """Return USD per hour of all resources with a known price, and USD since each of them was created.

    What was removed since is not in it, and a scale set counts with its present number of nodes all the time.
    """
    total = sum(
        one.per_hour * max(0.0, (now - one.created).total_seconds()) / _HOUR_S
        for one in account.things
        if one.stack is not None and one.per_hour and one.created is not None
    )
    return account.per_hour, total


def _query(damaged: dict[str, str], host: Host) -> HeadMetrics | None:
    """Return what the node knows as a head; None for one on which no job was ever launched. Put into
    ``damaged``, by node, why a job is left out: it can write anything into its records."""
    remote = version_there(host, None, _NODE_S, with_jobs=True)
    if remote is None:
        return None

    def drop(_: object, error: Malformed) -> None:
        damaged[host.name] = f"{host.name}: a job whose records are damaged is left out: {error}"

    found = ask(HeadMetrics, host, remote, "metrics", timeout=_NODE_S, drop=drop, most=_ANSWER_BYTES)
    try:
        exposition([found])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise GiveUpError(f"{host.name}: its answer is not one of metrics: {error!r:.100}") from None
    return found
