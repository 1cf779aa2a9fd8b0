"""The one fan-out: bounded, timed, cancellable, and nobody is forgotten."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from launch.errors import ManyNodesError, StepTimeout
from playbooks.ssh.fanout import fan_out, raise_for_errors


def names(count: int) -> list[str]:
    return [f"node{number:06d}" for number in range(count)]


def test_every_node_has_its_result_in_the_order_given() -> None:
    def late_first(node: str) -> str:
        time.sleep(0.05 if node == "node000000" else 0)
        return node.upper()

    assert list(fan_out(late_first, names(20), limit=4).items()) == [(n, n.upper()) for n in names(20)]


def test_never_more_than_the_limit_at_once_and_the_limit_is_used() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work(_: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    fan_out(work, names(30), limit=5)
    assert most == 5


def test_results_are_told_in_the_order_of_completion_in_the_callers_thread() -> None:
    found: list[str] = []
    threads = set()

    def tell(node: str, result: float | Exception) -> None:
        found.append(node)
        threads.add(threading.current_thread())

    waits = {"a": 0.3, "b": 0.0, "c": 0.15}

    def wait(node: str) -> float:
        time.sleep(waits[node])
        return waits[node]

    fan_out(wait, waits, on_result=tell)
    assert found == ["b", "c", "a"]
    assert threads == {threading.current_thread()}


def test_a_failure_is_that_nodes_result_and_stops_nobody() -> None:
    def work(node: str) -> str:
        if node == "node000001":
            raise ValueError(node)
        return node

    results = fan_out(work, names(3))
    assert isinstance(results["node000001"], ValueError)
    assert results["node000002"] == "node000002"
    with pytest.raises(ManyNodesError) as caught:
        raise_for_errors("the work", results)
    assert caught.value.results == results


def test_a_node_over_its_limit_is_given_up_and_its_turn_passes_on() -> None:
    release = threading.Event()

    def work(node: str) -> str:
        if node == "node000000":
            release.wait(20)
        return node

    started = time.monotonic()
    results = fan_out(work, names(6), limit=1, timeout=0.3, what="the step")
    assert time.monotonic() - started < 5
    late = results["node000000"]
    assert isinstance(late, StepTimeout)
    assert str(late) == "node000000: the step did not end within 0.3 s"
    assert [results[node] for node in names(6)[1:]] == names(6)[1:]
    release.set()


def test_waiting_for_a_turn_does_not_count() -> None:
    results = fan_out(lambda _: time.sleep(0.2), names(6), limit=2, timeout=0.5)
    assert list(results.values()) == [None] * 6


@pytest.mark.parametrize("receiver", ["the waiting thread", "a worker"])
def test_ctrl_c_starts_nothing_more_and_is_raised_at_once(receiver: str) -> None:
    begun: list[str] = []
    ended: list[str] = []
    release = threading.Event()

    def work(node: str) -> None:
        begun.append(node)
        if len(begun) == 3:
            thread = (
                threading.main_thread().ident if receiver == "the waiting thread" else threading.get_ident()
            )
            signal.pthread_kill(thread or 0, signal.SIGINT)
        release.wait(20)
        ended.append(node)

    with pytest.raises(KeyboardInterrupt):
        fan_out(work, names(100), limit=3)
    assert ended == []
    release.set()
    time.sleep(0.5)
    assert len(begun) == 3


def test_no_nodes_no_work() -> None:
    assert fan_out(lambda node: node, []) == {}


def test_threads_end_with_the_work() -> None:
    before = set(threading.enumerate())
    fan_out(lambda node: node, names(200), limit=64)
    deadline = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) - before == set()
