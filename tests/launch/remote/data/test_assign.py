"""Which node fetches which part from where, on simulated nodes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

import pytest

from launch.remote.data import faults
from launch.remote.data.assign import Assigner, Order, Pace

Fault = Callable[[Order, float], str]


class Simulation:
    """Nodes that fetch parts of one size in a second from a peer, and in two from storage."""

    def __init__(self, nodes: int, parts: int, cap: int = 64, fault: Fault = lambda *_: "") -> None:
        self.assigner = Assigner([1] * parts, cap, nodes)
        self.names = [f"n{number}" for number in range(nodes)]
        self.now = 0.0
        self.downloads: Counter[int] = Counter()
        self.at_once = self.most_downloads = self.most_served = 0
        self._fault = fault
        self._events: list[tuple[float, int, Order | None]] = []
        self._count = 0
        self._serving: Counter[str] = Counter()
        self.lost: set[str] = set()
        for name in self.names:
            self.assigner.join(name, [])

    def run(self, until: Callable[[], bool] | None = None, limit: float = 10_000.0) -> None:
        self._order("")
        while not (until() if until else self._is_over()):
            assert not self.assigner.failure, self.assigner.failure
            assert self._events, "nothing is fetched any more"
            self.now, _, order = heapq.heappop(self._events)
            assert self.now < limit
            if order is None:
                self._order("")
                continue
            self._end(order)

    def _end(self, order: Order) -> None:
        if order.source:
            self._serving[order.source] -= 1
        else:
            self.at_once -= 1
        if order.node in self.lost:
            return
        fault = self._fault(order, self.now) or (faults.PEER if order.source in self.lost else "")
        if fault:
            self.assigner.on_missed(order.node, order.part, fault, f"{order}", self.now, 0.0)
        else:
            self.assigner.on_took(order.node, order.part, "digest", self.now)
        self._order(order.node)

    def _order(self, about: str) -> None:
        for order in self.assigner.orders(self.now, about):
            self._count += 1
            seconds = 1.0 if order.source else 2.0
            heapq.heappush(self._events, (self.now + seconds, self._count, order))
            if order.source:
                self._serving[order.source] += 1
                self.most_served = max(self.most_served, self._serving[order.source])
            else:
                self.downloads[order.part] += 1
                self.at_once += 1
                self.most_downloads = max(self.most_downloads, self.at_once)
        if not about:
            self._count += 1
            heapq.heappush(self._events, (self.now + 1.0, self._count, None))

    def lose(self, name: str) -> None:
        self.lost.add(name)
        self.assigner.leave(name)

    def _is_over(self) -> bool:
        left = (name for name in self.names if name not in self.lost)
        return all(self.assigner.is_whole(name) for name in left)


@pytest.mark.parametrize(("nodes", "parts"), [(1, 50), (2, 1), (4, 200), (16, 300), (300, 150)])
def test_every_part_leaves_storage_once(nodes: int, parts: int) -> None:
    run = Simulation(nodes, parts)
    run.run()
    assert set(run.downloads.values()) == {1}
    assert run.assigner.from_storage == parts
    assert run.most_downloads <= 64
    assert run.most_served <= 4


def test_the_same_events_give_the_same_orders() -> None:
    one, two = Simulation(16, 100), Simulation(16, 100)
    one.run()
    two.run()
    assert (one.now, one.downloads) == (two.now, two.downloads)


def test_no_more_requests_than_the_cap() -> None:
    run = Simulation(8, 200, cap=3)
    run.run()
    assert run.most_downloads == 3


def test_a_lost_node_costs_what_it_alone_had() -> None:
    run = Simulation(8, 400)
    run.run(lambda: run.assigner.from_storage >= 100)
    run.lose("n3")
    run.run()
    again = sum(run.downloads.values()) - 400
    assert 0 < again <= 100
    assert max(run.downloads.values()) == 2


def test_a_node_that_joins_takes_from_the_others() -> None:
    run = Simulation(4, 100)
    run.run()
    run.assigner.join("late", [])
    run.names.append("late")
    run.run()
    assert run.assigner.from_storage == 100


def test_a_node_that_kept_parts_does_not_fetch_them_again() -> None:
    run = Simulation(3, 10)
    run.assigner.leave("n1")
    run.assigner.join("n1", [(part, "digest") for part in range(10)])
    run.run()
    assert run.assigner.from_storage == 0


def test_a_kept_part_that_differs_does_not_count() -> None:
    run = Assigner([1, 1], 8, 2)
    run.join("a", [(0, "right"), (1, "right")])
    run.join("b", [(0, "wrong"), (7, "nonsense")])
    assert run.held("b") == 0
    assert {order.part for order in run.orders(0.0) if order.node == "b"} == {0, 1}


def test_when_all_who_had_a_part_are_lost_it_is_downloaded_again() -> None:
    run = Simulation(3, 1)
    run.run(lambda: bool(run.assigner.digests))
    holder = next(name for name in run.names if run.assigner.is_whole(name))
    run.lose(holder)
    run.run()
    assert run.downloads[0] == 2


def test_a_node_with_another_content_fetches_it_again() -> None:
    run = Assigner([1, 1], 8, 2)
    run.join("a", [(0, "x"), (1, "x")])
    run.join("b", [])
    orders = run.orders(0.0)
    assert {order.source for order in orders} == {"a"}
    assert run.on_missed("b", 0, faults.WRONG, "differs", 1.0) == "a"
    assert not run.is_whole("a")
    (again,) = (order for order in run.orders(2.0) if order.part == 0)
    assert again.source == ""


def test_a_node_that_reaches_no_other_takes_from_storage() -> None:
    def cut_off(order: Order, _: float) -> str:
        return faults.PEER if order.source and "n0" in (order.node, order.source) else ""

    run = Simulation(4, 60, fault=cut_off)
    run.run()
    assert max(run.downloads.values()) <= 2


def test_requests_halve_when_storage_is_busy() -> None:
    pace = Pace(64, 16)
    pace.on_busy()
    pace.on_busy()
    assert pace.limit == 4
    for _ in range(10):
        pace.on_busy()
    assert pace.limit == 1


def test_requests_grow_only_while_that_brings_more() -> None:
    fast, slow = Pace(512, 16), Pace(512, 16)
    for turn in range(2000):
        fast.on_done(1, turn / fast.limit)
        slow.on_done(1, float(turn))
    assert fast.limit > 100
    assert slow.limit <= 24


def test_storage_that_is_busy_for_a_while_is_waited_for() -> None:
    run = Simulation(4, 50, fault=lambda order, now: faults.BUSY if now < 60 and not order.source else "")
    run.run()
    assert sum(run.downloads.values()) - 50 < 200


def test_storage_that_stays_busy_ends_the_staging() -> None:
    run = Simulation(4, 50, fault=lambda order, _: "" if order.source else faults.BUSY)
    with pytest.raises(AssertionError, match="for 300 s"):
        run.run()
    assert run.now < 400


def test_a_part_that_breaks_every_time_ends_the_staging() -> None:
    run = Simulation(2, 5, fault=lambda order, _: faults.BROKEN if order.part == 3 else "")
    with pytest.raises(AssertionError, match=r"\(6 times\)"):
        run.run()


def test_a_refusal_ends_the_staging_at_once() -> None:
    run = Simulation(2, 5, fault=lambda order, _: faults.REFUSED)
    with pytest.raises(AssertionError, match="part="):
        run.run()
    assert run.now <= 2.0


def test_what_a_lost_node_still_reports_changes_nothing() -> None:
    found = Assigner([10, 10], 4, 2)
    found.join("a", ())
    found.join("b", ())
    assert {(one.node, one.part) for one in found.orders(0.0)} == {("a", 0), ("b", 1)}
    found.leave("b")
    found.on_took("b", 1, "digest", 1.0)
    assert found.on_missed("b", 1, faults.BUSY, "busy", 1.0) == ""
    assert (found.failure, found.from_storage) == ("", 0)
    assert [(one.node, one.part) for one in found.orders(1.0)] == [("a", 1)]


def test_a_rate_is_kept_over_time_and_what_was_not_used_of_a_second_is_used_at_once() -> None:
    assigner = Assigner([1_000_000] * 40, 64, 1, rate=4_000_000)
    assigner.join("n0", [])
    given, now = 0, 100.0
    while now < 105.0:
        for order in assigner.orders(now):
            assigner.on_took(order.node, order.part, "digest", now)
            given += 1
        now += 0.5
    assert 20 <= given <= 25
    assert len(assigner.orders(now + 60.0)) <= 5
