"""What of a job's samples is flagged, and in which words."""

from __future__ import annotations

from typing import Any

from launch.remote.sample.flags import flags
from launch.remote.sample.sample_records import History, Live, LiveNode, LiveRank

NOW = 1000.0
GIB = 2**30


def node(**fields: Any) -> LiveNode:
    """A node with nothing to flag, sampled just now."""
    whole: dict[str, Any] = {
        "time": NOW - 1,
        "cpu_permille": 300,
        "memory_used": 90 * GIB,
        "memory_total": 100 * GIB,
        "net_rx": 0,
        "net_tx": 0,
        "ib_rx": 10**9,
        "ib_tx": 10**9,
        "gpus": [],
        **fields,
    }
    return whole  # type: ignore[return-value]


def rank(on: str, silent: float = 1.0, *, ended: bool = False) -> LiveRank:
    return {
        "time": NOW - 1,
        "node": on,
        "cpu_permille": 1000,
        "memory": GIB,
        "silent_since": NOW - silent,
        "metrics": {},
        "ended": ended,
    }


def live(nodes: dict[str, LiveNode], ranks: list[LiveRank] | None = None) -> Live:
    """Samples of nodes with a rank each, or with these."""
    ranks = [rank(name) for name in nodes] if ranks is None else ranks
    return {
        "time": NOW - 1,
        "attempt": 0,
        "nodes": nodes,
        "ranks": {str(number): one for number, one in enumerate(ranks)},
    }


def history(series: str = "cpu", /, *, started: float = 100.0, **values: Any) -> History:
    """The course of nodes of which one series is known."""
    return {
        "start": started,
        "interval_s": 2.0,
        "nodes": {name: {series: its} for name, its in values.items()},
        "attempts": [
            {
                "attempt": 0,
                "started": started,
                "ended": None,
                "first_step": None,
                "first_step_at": None,
                "last_step": None,
                "last_step_at": None,
                "has_epochs": False,
                "epoch_steps": None,
                "first_epoch": None,
                "last_epoch": None,
                "checkpoints": 0,
                "checkpoint_s": 0.0,
            }
        ],
    }


def texts(found: Live | None, course: History | None = None, **promise: Any) -> list[str]:
    return [flag["text"] for flag in flags(found, course, promise, NOW)]  # type: ignore[arg-type]


def test_a_job_as_it_should_be_has_no_flag() -> None:
    assert texts(live({"a": node(), "b": node()}), history(), hcas=1) == []
    assert texts(None) == []


def test_a_rank_that_stopped_printing_is_named() -> None:
    ranks = [rank("a", 40), rank("a", 29), rank("a", 40, ended=True)]
    (flag,) = flags(live({"a": node()}, ranks), history(), {}, NOW)
    assert flag == {"kind": "silent", "node": "a", "rank": 0, "text": "rank 0 silent for 40 s"}


def test_ranks_that_have_never_printed_are_not_silent() -> None:
    ranks = [rank("a", 2), rank("a", 901), rank("a", 901)]
    assert texts(live({"a": node()}, ranks), history(started=100.0)) == []


def test_many_silent_ranks_are_one_flag() -> None:
    found = live({"a": node()}, [rank("a", 40)] * 9)
    assert texts(found, history()) == ["9 ranks silent for more than 30 s"]


def test_a_node_whose_samples_stay_away_is_stale_and_nothing_else_is_said_of_it() -> None:
    cut_off = node(time=NOW - 12, memory_used=99 * GIB)
    found = live({"a": node(time=NOW - 5), "b": cut_off}, [rank("a"), rank("b", 100)])
    assert texts(found, history()) == ["b has sent no sample for 12 s"]


def test_a_node_whose_ranks_have_ended_is_not_stale() -> None:
    found = live({"a": node(), "b": node(time=NOW - 100)}, [rank("a"), rank("b", ended=True)])
    assert texts(found, history()) == []


def test_a_node_without_infiniband_traffic_is_named_where_the_others_have_some() -> None:
    found = live({"a": node(), "b": node(), "c": node()})
    course = history("infiniband", a=[2e9] * 9, b=[2e9] * 9, c=[10.0] * 9)
    assert texts(found, course) == ["c sends no InfiniBand traffic"]
    nobody = history("infiniband", a=[0.0] * 9, b=[5.0] * 9, c=[10.0] * 9)
    assert texts(found, nobody) == []
    pause = history("infiniband", a=[2e9] * 9, b=[2e9] * 9, c=[*[2e9] * 8, 0.0])
    assert texts(found, pause) == []


def test_a_node_without_the_promised_port_is_named() -> None:
    found = live({"a": node(), "b": node(ib_rx=-1, ib_tx=-1)})
    assert texts(found, history(), hcas=8) == ["b has no InfiniBand port"]
    assert texts(found, history()) == []


def test_a_node_a_fifth_slower_than_the_median_is_named() -> None:
    found = live({name: node() for name in "abcd"})
    rates: Any = {"a": [100.0] * 9, "b": [101.0] * 9, "c": [70.0] * 9, "d": [81.0] * 9}
    assert texts(found, history("metric:samples_per_s", **rates)) == ["c 23 % slower than the median"]
    two = history("metric:samples_per_s", a=[100.0] * 9, c=[70.0] * 9)
    assert texts(live({"a": node(), "c": node()}), two) == []


def test_full_memory_is_named() -> None:
    found = live({"a": node(memory_used=94 * GIB), "b": node(memory_used=97 * GIB)})
    assert texts(found) == ["b uses 97 of 100 GiB of memory"]


def gpu(index: int, clock_events: int) -> dict[str, int]:
    whole = dict.fromkeys(("utilisation", "memory_used", "memory_total", "power_mw"), 50)
    return {"index": index, "clock_events": clock_events, **whole}


def test_clocks_lowered_by_heat_or_a_power_brake_are_named_and_a_power_cap_is_not() -> None:
    gpus = [gpu(0, 0x4), gpu(3, 0x40), gpu(4, 0x88), gpu(5, -1)]
    assert texts(live({"a": node(gpus=gpus)})) == [
        "a GPU 3 slowed: heat (hardware)",
        "a GPU 4 slowed: hardware, power brake",
    ]


def test_idle_gpus_are_named_where_the_others_work() -> None:
    found = live({name: node(gpus=[gpu(0, 0)] * 8) for name in "abc"})
    course = history("gpu", a=[0.9] * 9, b=[0.95] * 9, c=[0.01] * 9)
    assert texts(found, course) == ["c 8 GPUs at 1 %, the median node at 90 %"]
    assert texts(found, history("gpu", a=[0.0] * 9, b=[0.0] * 9, c=[0.0] * 9)) == []
