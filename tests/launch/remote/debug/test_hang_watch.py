"""The supervisor's watch: requests are answered, silent jobs looked at, and only those that hang ended."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import frames, job_dir, timing
from launch.remote.debug.debug_records import NodeFacts
from launch.remote.debug.hang_watch import HangWatch
from launch.remote.head.job_state import LaunchOrder
from launch.remote.head.rank_states import RankStates
from launch.remote.head.runners.channel import STARTED, Channel
from launch.remote.head.runners.runner_pool import RunnerPool
from launch.remote.head.shutdown import Stop
from launch.remote.log.writer import StreamWriter
from tests.launch.fake_recorder import LINE
from tests.launch.remote.hangs.hanging_ranks import Job, loading
from tests.launch.remote.sample_records import sample_plan

JOB = "t-20260301-090507-0f3a"
NODES = ("node000000", "node000001")
HANG_AFTER = 60.0


class Launch:
    """A job of two nodes with four ranks each, which run."""

    def __init__(self) -> None:
        nodes = [
            {
                "name": name,
                "private_ip": f"10.0.0.{4 + number}",
                "reserve": 4,
                "slots": 4,
                "ranks": [{"rank": 4 * number + local, "task": "", "env": {}} for local in range(4)],
            }
            for number, name in enumerate(NODES)
        ]
        plan = sample_plan(JOB, nodes=nodes, hang_after_s=HANG_AFTER, py_spy=".ranklift/py-spy")
        self.folder = job_dir.Folder(JOB)
        self.folder.create(plan)
        self.stream = StreamWriter(self.folder.path)
        slots = {name: [0, 1, 2, 3] for name in NODES}
        order = LaunchOrder(self.folder, plan, slots, 6105, self.stream, restarts=0, deadline=None)
        self.pool = RunnerPool(plan, order.slots, order.port, order.restarts)
        self.ranks = RankStates(plan["nodes"])
        self.watch = HangWatch(order, self.pool, self.ranks)
        self.runners: list[socket.socket] = []
        for number in range(len(NODES)):
            ours, theirs = socket.socketpair()
            channel = self.pool.add_connection(number, 4 * number, ours)
            channel.ranks, channel.stage = self.ranks.ranks_on(number), STARTED
            self.runners.append(theirs)
        self.ranks.started.update(range(8))
        self.watch.on_tick(0.0)

    def orders(self, node: int) -> list[dict[str, Any]]:
        """What a runner was ordered since."""
        self.runners[node].setblocking(False)
        try:
            data = self.runners[node].recv(1 << 16)
        except BlockingIOError:
            return []
        return [
            frames.unpack(payload) for kind, payload in frames.Decoder().feed(data) if kind == frames.DEBUG
        ]

    def answers(self, node: int, report: NodeFacts | str, request: int = 1, size: int = 1 << 20) -> None:
        text = report if isinstance(report, str) else json.dumps(report)
        parts = [text[at : at + size] for at in range(0, len(text), size)] or [""]
        for part, piece in enumerate(parts):
            fields = {"request": request, "part": part, "of": len(parts), "text": piece}
            self.watch.on_stacks(self.channel(node), fields)  # type: ignore[arg-type]

    def channel(self, node: int) -> Channel:
        return self.pool.channels_of(node)[0]

    def requests(self, name: str = "abc") -> None:
        Path(self.folder.file("debug")).write_text(json.dumps({"id": name, "py_spy": "x/py-spy"}))

    def answer(self, name: str = "debug.json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.folder.file(name)).read_text())
        return found

    def printed(self) -> str:
        return b"".join(path.read_bytes() for path in Path(self.folder.path).glob("stream.0*")).decode(
            "utf-8", "replace"
        )

    def close(self) -> None:
        for one in self.runners:
            one.close()
        self.pool.close()
        self.stream.close()


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Launch()
    yield made
    made.close()


def reports(*, culprit: int | None = 5, moving: bool = False) -> list[NodeFacts]:
    job = Job(8)
    if culprit is not None:
        job.puts(culprit, loading())
    for rank in range(8):
        job.main(rank)["switches"] = 40 * moving
    return [job.facts["nodes"][name][0] for name in NODES]


def test_a_request_is_answered_once_all_runners_have(launch: Launch) -> None:
    launch.requests()
    assert launch.watch.on_tick(1.0) is None
    (order,) = launch.orders(0)
    assert (order["request"], order["py_spy"], order["node"], order["per_node"]) == (1, "x/py-spy", 1, 0)
    first, second = reports()
    launch.answers(0, first)
    assert launch.watch.on_tick(2.0) is None
    assert not Path(launch.folder.file("debug.json")).exists()
    launch.answers(1, second, size=1000)
    assert launch.watch.on_tick(3.0) is None
    answer = launch.answer()
    assert (answer["request"], answer["seconds"]) == ("abc", 2.0)
    assert (answer["verdict"]["kind"], answer["verdict"]["ranks"]) == ("missing-rank", [5])
    launch.watch.on_tick(4.0)
    assert launch.orders(1)[1:] == []  # the request is answered, and not answered again


def test_a_runner_that_does_not_answer_is_named_after_its_time(launch: Launch) -> None:
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.answers(0, reports()[0])
    launch.watch.on_tick(1.0 + timing.DEBUG_ANSWER_S - 0.1)
    assert not Path(launch.folder.file("debug.json")).exists()
    launch.watch.on_tick(1.0 + timing.DEBUG_ANSWER_S + 0.1)
    verdict = launch.answer()["verdict"]
    assert (verdict["kind"], verdict["ranks"]) == ("missing-rank", [4, 5, 6, 7])
    assert "node000001: it did not report within" in verdict["notes"][0]


def test_a_runner_that_sends_nothing_any_more_is_not_waited_for(launch: Launch) -> None:
    launch.channel(1).last_heard = 0.0
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.answers(0, reports(culprit=None)[0])
    launch.watch.on_tick(timing.DEBUG_UNHEARD_S - 0.1)
    assert not Path(launch.folder.file("debug.json")).exists()
    launch.watch.on_tick(timing.DEBUG_UNHEARD_S + 0.1)
    answer = launch.answer()
    assert (answer["verdict"]["kind"], answer["verdict"]["nodes"]) == ("dead-network", ["node000001"])
    assert answer["facts"]["unanswered"] == {"node000001": "nothing has come from it for 6 s"}


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '{"ranks": 1}', "x" * 10_000])
def test_a_runner_that_sends_rubbish_is_named_and_kept(launch: Launch, rubbish: str) -> None:
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.answers(0, reports()[0])
    launch.answers(1, rubbish)
    launch.watch.on_tick(2.0)
    assert launch.answer()["facts"]["unanswered"]["node000001"].startswith("its report cannot be used")
    assert launch.channel(1).is_open


def test_pieces_of_another_request_and_of_nobody_are_left_alone(launch: Launch) -> None:
    launch.answers(0, reports()[0])  # nobody asked
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.answers(0, reports()[0], request=7)
    launch.watch.on_tick(2.0)
    assert not Path(launch.folder.file("debug.json")).exists()


def test_a_silent_job_is_ended_by_its_verdict(launch: Launch) -> None:
    assert launch.watch.on_tick(HANG_AFTER) is None
    assert launch.orders(0) == []
    assert launch.watch.on_tick(HANG_AFTER + 0.2) is None
    assert [order["py_spy"] for order in launch.orders(0)] == [".ranklift/py-spy"]
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    stop = launch.watch.on_tick(HANG_AFTER + 3)
    assert isinstance(stop, Stop)
    assert stop.outcome is not None
    assert (stop.outcome.state, stop.outcome.exit_status) == ("FAILED", 124)
    assert stop.outcome.reason.startswith("no rank has printed anything for 63 s: 7 ranks wait in all_reduce")
    assert stop.outcome.failure is not None
    assert (stop.outcome.failure["rank"], stop.outcome.failure["node"]) == (5, "node000001")
    assert launch.answer("hang.json")["verdict"]["ranks"] == [5]
    assert "no rank has printed anything for 63 s" in launch.printed()


def test_a_silent_job_that_moves_goes_on_and_is_looked_at_again(launch: Launch) -> None:
    launch.watch.on_tick(HANG_AFTER + 1)
    for node, report in enumerate(reports(moving=True)):
        launch.answers(node, report)
    assert launch.watch.on_tick(HANG_AFTER + 2) is None
    assert "slow and not stuck" in launch.printed()
    launch.orders(0)
    launch.watch.on_tick(2 * HANG_AFTER)
    assert launch.orders(0) == []
    launch.watch.on_tick(2 * HANG_AFTER + 3)
    assert len(launch.orders(0)) == 1


def test_output_postpones_it(launch: Launch) -> None:
    launch.watch.on_output(3, 50.0)
    assert launch.watch.on_tick(HANG_AFTER + 1) is None
    assert launch.orders(0) == []
    launch.watch.on_tick(50.0 + HANG_AFTER + 1)
    assert len(launch.orders(0)) == 1


DUMP = LINE.format(rank=3).encode()


def test_what_pytorch_prints_because_it_is_asked_is_no_movement(launch: Launch) -> None:
    """PyTorch prints that it prepares to dump, once something has written to its pipe."""
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.watch.on_output(3, 1.5, 2, DUMP[:50])
    launch.watch.on_output(3, 1.6, 2, DUMP[50:])
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    launch.watch.on_tick(3.0)
    answer = launch.answer()
    assert answer["facts"]["printed"] == []
    assert (answer["verdict"]["kind"], answer["verdict"]["ranks"]) == ("missing-rank", [5])
    assert answer["facts"]["silent_s"]["3"] == 3


def test_what_a_rank_itself_prints_meanwhile_is_movement(launch: Launch) -> None:
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.watch.on_output(3, 1.5, 2, DUMP)
    launch.watch.on_output(3, 1.6, 1, b"step 7 loss 0.1\n")
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    launch.watch.on_tick(3.0)
    answer = launch.answer()
    assert (answer["facts"]["printed"], answer["verdict"]["kind"]) == ([3], "slow")


def test_what_pytorch_prints_because_it_is_asked_does_not_save_a_silent_job(launch: Launch) -> None:
    launch.watch.on_tick(HANG_AFTER + 1)
    launch.watch.on_output(3, HANG_AFTER + 2, 2, DUMP)
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    stop = launch.watch.on_tick(HANG_AFTER + 7)
    assert isinstance(stop, Stop)
    assert stop.outcome is not None
    assert stop.outcome.failure is not None
    assert stop.outcome.failure["rank"] == 5


def test_a_notice_of_output_that_was_left_out_is_movement(launch: Launch) -> None:
    launch.requests()
    launch.watch.on_tick(1.0)
    launch.watch.on_output(3, 1.5)
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    launch.watch.on_tick(3.0)
    assert launch.answer()["facts"]["printed"] == [3]


def test_a_job_whose_ranks_have_all_ended_does_not_hang(launch: Launch) -> None:
    launch.ranks.ended.update(dict.fromkeys(range(8), 0))
    assert launch.watch.on_tick(2 * HANG_AFTER) is None
    assert launch.orders(0) == []


def test_a_rank_that_prints_while_nodes_are_late_saves_the_job(launch: Launch) -> None:
    launch.watch.on_tick(HANG_AFTER + 1)
    launch.answers(0, reports(culprit=None)[0])
    launch.watch.on_output(3, HANG_AFTER + 4)
    assert launch.watch.on_tick(HANG_AFTER + 2 + timing.DEBUG_ANSWER_S) is None
    assert not Path(launch.folder.file("hang.json")).exists()


def looks(launch: Launch, count: int, found: list[NodeFacts], wait: float) -> None:
    """Let a silent job be looked at so often, with the same reports."""
    now = HANG_AFTER + 1
    for request in range(1, count + 1):
        while not launch.orders(0):
            now += HANG_AFTER / 2
            assert launch.watch.on_tick(now) is None
        for node, report in enumerate(found):
            launch.answers(node, report, request=request)
        now += wait
        assert launch.watch.on_tick(now) is None


def test_a_node_that_does_not_report_does_not_end_the_job(launch: Launch) -> None:
    looks(launch, 7, reports()[:1], timing.DEBUG_ANSWER_S + 1)
    assert launch.printed().count("the job goes on: node000001 has not reported: it did not report") == 1


def test_an_unknown_verdict_lets_the_job_go_on_and_says_so_once(launch: Launch) -> None:
    looks(launch, 7, reports(culprit=None), 3)
    assert launch.answer()["verdict"]["kind"] == "unknown"
    assert launch.printed().count("the job goes on: nothing shows that it hangs") == 1


def test_a_rank_that_computes_while_the_others_wait_for_it_does_not_end_the_job(launch: Launch) -> None:
    found = reports()
    found[1]["ranks"][1]["processes"][0]["cpu_ms"] = 1900
    looks(launch, 2, found, 3)
    assert launch.answer()["verdict"]["ranks"] == [5]
    assert "the job goes on: rank 5 on node000001 uses processor time" in launch.printed()


def test_a_full_disk_loses_the_answer_alone(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("launch.remote.debug.hang_watch.replace_file", full)
    launch.requests()
    launch.watch.on_tick(1.0)
    for node, report in enumerate(reports()):
        launch.answers(node, report)
    assert launch.watch.on_tick(2.0) is None
