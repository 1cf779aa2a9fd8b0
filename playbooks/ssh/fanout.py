"""The one fan-out: work on many nodes, a bounded number at a time. No other module starts threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from infra.inventory import Node
from launch.errors import ManyNodesError, StepTimeout

__all__ = ["LIMIT", "ask_all", "fan_out", "fan_out_hosts", "in_background", "raise_for_errors"]

LIMIT = 64
"""Nodes worked on at once. Measured: more slow down a small operator's machine."""

INTERRUPT_CHECK = 0.5
"""Seconds until Ctrl-C is seen at the latest."""

Result = TypeVar("Result")
Host = TypeVar("Host")


def fan_out(
    work: Callable[[str], Result],
    nodes: Iterable[str],
    *,
    what: str = "the step",
    limit: int = LIMIT,
    timeout: float | None = None,
    on_result: Callable[[str, Result | Exception], None] | None = None,
) -> dict[str, Result | Exception]:
    """Call ``work(node)`` for every node, ``limit`` at once; return results or errors in the order given.

    ``timeout`` is each node's own, in seconds from its start; a node that takes longer gets
    :class:`~launch.errors.StepTimeout` and its turn passes to the next, whatever its thread still does.
    ``on_result`` is called in the caller's thread, in the order of completion. Ctrl-C is raised within
    :data:`INTERRUPT_CHECK`, and no further node is started. Exceptions of ``work`` are results; see
    :func:`raise_for_errors`.

    >>> fan_out(len, ["a", "bb"])
    {'a': 1, 'bb': 2}
    """
    waiting = list(dict.fromkeys(nodes))
    results: dict[str, Result | Exception] = {}
    order = iter(waiting)
    done: SimpleQueue[tuple[str, Result | Exception]] = SimpleQueue()
    started: dict[str, float] = {}
    stop = threading.Event()
    turns: SimpleQueue[str | None] = SimpleQueue()

    def serve() -> None:
        while (node := turns.get()) is not None and not stop.is_set():
            outcome: Result | Exception
            try:
                outcome = work(node)
            except Exception as error:  # noqa: BLE001 - every failure is that node's result
                outcome = error
            done.put((node, outcome))

    def employ() -> None:
        # A daemon, so that a thread stuck on a dead node does not keep the process from ending.
        threading.Thread(target=serve, daemon=True, name="fan-out").start()

    def give_turn() -> None:
        node = next(order, None)
        if node is not None:
            started[node] = time.monotonic()
            turns.put(node)

    def settle(node: str, outcome: Result | Exception) -> None:
        del started[node]
        results[node] = outcome
        if on_result is not None:
            on_result(node, outcome)
        give_turn()

    try:
        for _ in range(min(limit, len(waiting))):
            employ()
            give_turn()
        while started:
            # A signal that arrives just before the wait, or in another thread, does not end the wait.
            wait = INTERRUPT_CHECK
            if timeout is not None:
                wait = min(wait, max(0.0, min(started.values()) + timeout - time.monotonic()))
            try:
                node, outcome = done.get(timeout=wait)
            except Empty:
                late = min(started, key=lambda node: started[node])
                if timeout is not None and time.monotonic() - started[late] >= timeout:
                    employ()
                    settle(late, StepTimeout(late, what, timeout))
            else:
                if node in started:
                    settle(node, outcome)
    finally:
        stop.set()
        for _ in range(2 * len(waiting)):
            turns.put(None)
    return {node: results[node] for node in waiting}


def fan_out_hosts(
    connect: Callable[[Node], AbstractContextManager[Host]],
    nodes: Iterable[Node],
    work: Callable[[Host], Result],
    *,
    what: str,
    limit: int = LIMIT,
    timeout: float | None = None,
    on_result: Callable[[str, Result | Exception], None] | None = None,
) -> dict[str, Result | Exception]:
    """Call ``work(host)`` for every node's host as :func:`fan_out` does; close each connection after it."""
    by_name = {node.name: node for node in nodes}

    def work_on(name: str) -> Result:
        with connect(by_name[name]) as host:
            return work(host)

    return fan_out(work_on, by_name, what=what, limit=limit, timeout=timeout, on_result=on_result)


def ask_all(
    questions: Mapping[str, Callable[[], Any]], *, what: str = "the answer", timeout: float | None = None
) -> dict[str, Any]:
    """Ask all questions at once; return each one's answer or error as :func:`fan_out` does."""
    return dict(fan_out(lambda name: questions[name](), questions, what=what, timeout=timeout))


def in_background(work: Callable[[], object]) -> None:
    """Call ``work``, which raises nothing, beside the caller; the end of the process does not wait for it."""
    threading.Thread(target=work, daemon=True, name="background").start()


def raise_for_errors(what: str, results: Mapping[str, Result | Exception]) -> dict[str, Result]:
    """Return the results when none is an error.

    Raises :class:`~launch.errors.ManyNodesError`, which carries all of them, otherwise.

    >>> raise_for_errors("counting", {"a": 1})
    {'a': 1}
    """
    good = {node: result for node, result in results.items() if not isinstance(result, Exception)}
    if len(good) < len(results):
        raise ManyNodesError(what, results)
    return good
