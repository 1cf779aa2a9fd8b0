"""The queue of a head: first in, first out, as far as jobs share slots."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import job_dir
from launch.remote.head import queue
from tests.launch.remote.sample_records import sample_plan


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def job(name: str, **need: int) -> str:
    nodes: list[dict[str, Any]] = [
        {"name": node, "reserve": count, "slots": 4} for node, count in need.items()
    ]
    queue.enter(sample_plan(name, nodes=nodes))
    return name


def slots(name: str) -> dict[str, list[int]] | None:
    given = queue.admit(name, free_port())
    if given is None:
        return None
    queue.confirm(name)
    return given.slots


def test_jobs_share_a_node_as_long_as_its_slots_last() -> None:
    assert slots(job("a", n=2)) == {"n": [0, 1]}
    assert slots(job("b", n=2)) == {"n": [2, 3]}
    assert slots(job("c", n=1)) is None
    queue.leave("a")
    assert slots("c") == {"n": [0]}


def test_a_small_job_does_not_overtake_one_that_waits_for_the_same_node() -> None:
    assert slots(job("a", n=3)) is not None
    assert slots(job("big", n=4, m=4)) is None
    assert slots(job("small", n=1)) is None
    assert slots(job("elsewhere", k=1)) == {"k": [0]}
    assert queue.waiting_for("small").words == ["a", "big"]


def test_jobs_that_run_at_once_get_ports_of_their_own() -> None:
    port = free_port()
    first = queue.admit(job("a", n=1), port)
    queue.confirm("a")
    second = queue.admit(job("b", n=1), port)
    assert first is not None
    assert second is not None
    assert first.port == port
    assert second.port > port


def test_a_job_given_back_keeps_its_place() -> None:
    assert slots(job("a", n=4)) is not None
    assert slots(job("b", n=4)) is None
    queue.requeue("a", {})
    assert slots("b") is None
    assert slots("a") is not None


def test_slots_that_a_node_reported_as_taken_are_avoided_and_waited_for_only_when_needed() -> None:
    job("a", n=2, m=1)
    assert slots("a") == {"n": [0, 1], "m": [0]}
    queue.requeue("a", {"n": [(1, "x")]})
    assert slots("a") == {"n": [0, 2], "m": [0]}
    queue.requeue("a", {"n": [(0, "y"), (1, "x"), (3, "x")]})
    assert slots("a") is None
    assert queue.waiting_for("a").words == ["y, x on n"]
    assert queue.refusing_nodes("a") == ["n"]
    queue.set_taken("a", {"n": [(0, "y")]})
    assert slots("a") == {"n": [1, 2], "m": [0]}


def test_nobody_overtakes_a_job_that_is_not_yet_known_to_hold_its_slots() -> None:
    port = free_port()
    assert queue.admit(job("a", n=2), port) is not None
    assert queue.admit(job("b", n=2), port) is None
    assert queue.admit(job("elsewhere", m=2), port) is not None
    queue.requeue("a", {"n": [(0, "x"), (1, "x")]})
    assert queue.admit("b", port) is None
    assert slots("a") == {"n": [2, 3]}
    assert slots("b") == {"n": [0, 1]}  # its own launch finds what is wrong with those


def test_a_job_names_later_ones_that_it_waits_for_and_its_heads_own_once() -> None:
    assert slots(job("a", n=1, m=1)) is not None
    assert slots(job("b", n=3)) is not None
    queue.requeue("a", {"n": [(0, "x"), (1, "b")]})
    assert slots("a") is None
    assert queue.waiting_for("a").words == ["b", "x on n"]


def test_jobs_whose_supervisor_is_gone_hold_nothing(home: Path) -> None:
    job("dead", n=4)
    path = home / ".ranklift/queue.json"
    entries = json.loads(path.read_text())
    entries[0]["process"]["started"] += 1  # another process has that number now
    path.write_text(json.dumps(entries))
    assert slots(job("a", n=4)) is not None


def test_a_job_knows_its_place_and_the_jobs_it_waits_for() -> None:
    assert slots(job("a", n=4)) is not None
    assert slots(job("b", n=2)) is None
    assert slots(job("c", n=1)) is None
    waits = queue.waiting_for("c")
    assert (waits.place, waits.jobs) == (2, ["a", "b"])
    queue.requeue("a", {"n": [(0, "x")]})
    assert (queue.waiting_for("b").place, queue.waiting_for("a").jobs) == (2, ["x"])


TORN = ["", "[", "null", "{}", "7", "[" * 100_000, '[{"job": "a"}]', '[null, 7, "x"]', "\udcff"]


def tear(home: Path, text: str) -> None:
    (home / ".ranklift/queue.json").write_bytes(text.encode("utf-8", "surrogateescape"))


def kept(name: str, **need: int) -> str:
    """A job in the queue whose plan is kept on the head, as every job's is."""
    nodes = [{"name": node, "reserve": count, "slots": 4, "ranks": []} for node, count in need.items()]
    plan = sample_plan(name, nodes=nodes)
    job_dir.Folder(name).create(plan)
    queue.enter(plan)
    return name


class TestATornQueue:
    """A crash of the head, or a hand, may leave anything in queue.json."""

    @pytest.mark.parametrize("text", TORN)
    def test_new_jobs_enter_and_leave(self, home: Path, text: str) -> None:
        (home / ".ranklift").mkdir()
        tear(home, text)
        assert slots(job("a", n=2)) == {"n": [0, 1]}
        tear(home, text)
        queue.leave("a")
        assert json.loads((home / ".ranklift/queue.json").read_text()) == []

    @pytest.mark.parametrize("text", TORN)
    def test_jobs_that_wait_are_in_it_again(self, home: Path, text: str) -> None:
        slots(kept("a", n=4))
        assert slots(kept("b", n=4)) is None
        tear(home, text)
        assert queue.waiting_for("b").words == []
        assert slots("b") == {"n": [0, 1, 2, 3]}  # as far as the queue goes: the nodes know of a

    @pytest.mark.parametrize(
        "look",
        [
            lambda name: queue.requeue(name, {"n": [(0, "other")]}),
            lambda name: queue.set_taken(name, {}),
            queue.refusing_nodes,
            queue.confirm,
            lambda name: queue.readmit(name, free_port()),
            queue.waiting_for,
        ],
        ids=["requeue", "set_taken", "refusing_nodes", "confirm", "readmit", "waiting_for"],
    )
    def test_it_may_be_torn_at_any_moment(self, home: Path, look: Callable[[str], object]) -> None:
        slots(kept("a", n=4))
        tear(home, "")
        look("a")
        (entry,) = json.loads((home / ".ranklift/queue.json").read_text())
        assert entry["job"] == "a"

    def test_entries_that_are_whole_stay(self, home: Path) -> None:
        slots(job("a", n=4))
        (entry,) = json.loads((home / ".ranklift/queue.json").read_text())
        broken: list[object] = [{key: entry[key] for key in entry if key != gone} for gone in entry]
        broken += [dict(entry, **{key: 3.5}) for key in entry]
        broken += [dict(entry, nodes={"n": 1}), dict(entry, slots={"n": 1}), dict(entry, foreign={"n": [0]})]
        tear(home, json.dumps([*broken, entry]))
        assert slots(job("b", n=1)) is None
        assert queue.waiting_for("b").jobs == ["a"]
