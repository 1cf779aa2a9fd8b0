"""One run of a measurement: its job's events in, its figures out; what makes it a failure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from launch.client.events import Event, JobState, LogLine, StateChange
from launch.data.data_stores import Storage
from launch.errors import JobFailed, NodeUnreachable
from launch.jobfile import Flags
from launch.scaling.point_transport import Transport
from launch.scaling.scaling_plan import Run
from playbooks.jobs.launch_file import LaunchOptions
from playbooks.jobs.submit import Handling
from playbooks.observe import scaling_runs
from playbooks.observe.scaling_runs import RunFailed, ScalingRuns
from playbooks.project import Stack
from tests.launch.scaling.studies import INFINIBAND, PLAN, TCP
from tests.playbooks.jobs.test_tables import state

ANYTHING = cast("Any", None)


class Bench:
    """Runs whose jobs do what a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: Sequence[Event] = ()
        self.end: Exception | None = None
        self.transport = INFINIBAND
        self.cancelled: list[str] = []
        self.plan = PLAN
        self.handling: Handling | None = None
        self.stack = Stack("dev", folder, {})

        def launch(*given: object) -> None:
            self.handling = next(one for one in given if isinstance(one, Handling))
            self.options = next(one for one in given if isinstance(one, LaunchOptions))
            assert self.handling.on_event is not None
            for event in self.events:
                self.handling.on_event(event)
            if self.end is not None:
                raise self.end

        def cancel(_: object, __: object, job: str, ___: object) -> Any:
            self.cancelled.append(job)
            raise NodeUnreachable("node000000", "gone")

        monkeypatch.setattr(scaling_runs, "launch_job", launch)
        monkeypatch.setattr(scaling_runs, "cancel_job", cancel)
        monkeypatch.setattr(ScalingRuns, "_transport", lambda *_: self.transport)

    def measure(self, *, without_infiniband: bool = False, is_first: bool = True, nodes: int = 2) -> Any:
        inventory = cast("Any", type("Inventory", (), {"size": "Standard_ND40rs_v2"}))
        runs = ScalingRuns(
            *(self.stack, inventory, (), ANYTHING),
            options=LaunchOptions(Flags(probe=True), None, Storage(None), {}),
            load=ANYTHING,
            plan=replace(self.plan, warm_up=1),
            without_infiniband=without_infiniband,
        )
        return runs.measure(Run(0, nodes), is_first=is_first)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def line(data: bytes, rank: int | None = 0, stream: Any = "stdout") -> LogLine:
    return LogLine(datetime(2026, 3, 1, tzinfo=UTC), rank, "node000000", stream, data)


def job(name: str) -> StateChange:
    found: JobState = replace(state("t-1", cast("Any", name)), ranks=16)
    return StateChange(found)


LINES = [line(b"%d samples/s" % value) for value in (5, 90, 100, 110)]


def test_a_runs_figures_are_those_of_its_ranks_alone(bench: Bench) -> None:
    other = [line(b"7 samples/s", None), line(b"8 samples/s", 0, "notice"), line(b"nothing here")]
    bench.events = [job("RUNNING"), *LINES, *other, job("SUCCEEDED")]
    found = bench.measure()
    assert (found.job, found.figures.ranks, found.transport) == ("t-1", 16, INFINIBAND)
    assert found.figures.by_rank == {0: (5.0, 90.0, 100.0, 110.0)}


def test_only_the_first_run_prints_the_jobs_notices_and_signals_end_each(bench: Bench) -> None:
    bench.events = [*LINES, job("SUCCEEDED")]
    for is_first in (True, False):
        bench.measure(is_first=is_first)
        assert bench.handling is not None
        assert bench.handling.is_repeat is not is_first
        assert {2, 15, 1} == bench.handling.cancelling_signals


def test_a_probe_is_asked_for_on_several_nodes_alone(bench: Bench) -> None:
    bench.events = [*LINES, job("SUCCEEDED")]
    seen = [(bench.measure(nodes=nodes), bench.options.flags.probe)[1] for nodes in (1, 2)]
    assert seen == [False, True]


def test_a_job_that_waits_is_shown_with_what_it_waits_for(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = StateChange(replace(state("t-1", "QUEUED"), reason="waits for other-1"))
    bench.events = [waits, *LINES, job("SUCCEEDED")]
    bench.measure()
    assert "job t-1 QUEUED: waits for other-1\n" in capsys.readouterr().err


def test_a_run_without_figures_fails_by_its_jobs_name(bench: Bench) -> None:
    bench.events = [*LINES[:1], job("SUCCEEDED")]
    with pytest.raises(RunFailed, match=r"^job t-1: no rank printed more than 1 figure") as caught:
        bench.measure()
    assert caught.value.job == "t-1"
    bench.events = [line(b"nothing here"), job("SUCCEEDED")]
    with pytest.raises(RunFailed, match=r"^job t-1: no rank printed a figure") as caught:
        bench.measure()
    assert caught.value.measured is None


def test_figures_that_other_options_give_a_throughput_are_kept(bench: Bench) -> None:
    bench.plan = replace(PLAN, basis=None)
    bench.events = [*LINES, job("SUCCEEDED")]
    with pytest.raises(RunFailed, match="give --of rank or --of job") as caught:
        bench.measure()
    assert caught.value.measured is not None
    assert caught.value.measured.figures.by_rank == {0: (5.0, 90.0, 100.0, 110.0)}


def test_a_pattern_that_takes_too_long_for_a_line_ends_the_run_and_its_job(bench: Bench) -> None:
    bench.plan = replace(PLAN, pattern="(a+)+(b)")
    bench.events = [job("RUNNING"), line(b"a" * 60)]
    begun = time.process_time()
    with pytest.raises(RunFailed, match="--metric took longer than 1 s for one line"):
        bench.measure()
    assert time.process_time() - begun < 10
    assert bench.cancelled == ["t-1"]


def test_tcp_where_infiniband_is_promised_fails_unless_it_is_done_without(bench: Bench) -> None:
    bench.events = [*LINES, job("SUCCEEDED")]
    bench.transport = TCP
    with pytest.raises(
        RunFailed, match=r"promises InfiniBand, and the run used TCP: NCCL uses eth0; --no-probe"
    ):
        bench.measure()
    assert bench.measure(without_infiniband=True).transport == TCP
    bench.transport = Transport("unproven", "", "no program")
    assert bench.measure().transport.verdict == "unproven"


@pytest.mark.parametrize(
    ("last", "end", "cancelled"),
    [
        (job("FAILED"), JobFailed("t-1", "FAILED", 3, "rank 0"), []),
        (job("RUNNING"), NodeUnreachable("node000000", "gone"), ["t-1"]),
    ],
    ids=["ended", "head silent"],
)
def test_a_job_that_nobody_waits_for_any_more_is_ended(
    bench: Bench, last: StateChange, end: Exception, cancelled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bench.events, bench.end = [last], end
    with pytest.raises(type(end)):
        bench.measure()
    assert bench.cancelled == cancelled
    assert ("could not be cancelled" in capsys.readouterr().err) == bool(cancelled)
