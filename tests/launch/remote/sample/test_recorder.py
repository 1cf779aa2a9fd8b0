"""The files that a head keeps of a job's samples."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from launch.remote.base import timing
from launch.remote.base.frames import ProtocolError
from launch.remote.sample import stored_samples
from launch.remote.sample.history import INTERVALS, HistoryRecorder
from launch.remote.sample.recorder import SampleRecorder
from launch.remote.sample.sample_records import History, Live, LiveNode, LiveRank, Sample

MIB = 2**20


def sample(*ranks: int, node: bool = True, gpus: int = 0, **metrics: Any) -> Sample:
    """A sample of a node and of ranks that have printed these numbers."""
    numbers = {"index": 0, "utilisation": 97, "memory_used": 76 * 2**30, "memory_total": 80 * 2**30}
    gpu: Any = {**numbers, "power_mw": 690_123, "clock_events": 4}
    figures: Any = {
        "cpu_permille": 512,
        "memory_used": 123_456_789_012,
        "memory_total": 234_567_890_123,
        "net_rx": 1000,
        "net_tx": 500,
        "ib_rx": 12_345_678_901,
        "ib_tx": 12_345_678_902,
        "gpus": [gpu] * gpus,
    }
    one = {"cpu_permille": 1000, "memory": 12_345_678_901, "silent_ms": 250, "metrics": metrics, "lines": {}}
    return {"node": [figures] if node else [], "ranks": [{"rank": rank, **one} for rank in ranks]}  # type: ignore[typeddict-item]


def course(recorded: HistoryRecorder) -> History:
    found: History = json.loads(recorded.as_json())
    return found


class TestLive:
    def test_the_newest_of_each_node_and_rank_is_kept(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 0)
        kept.add("a", [0, 1], sample(0, 1, loss="0.5", step="10"))
        kept.add("a", [0, 1], sample(0, node=False, loss="0.25"))
        kept.end_rank(1)
        kept.close()
        live = stored_samples.live(str(tmp_path))
        assert live is not None
        assert live["ranks"]["0"]["metrics"] == {"step": 10, "loss": 0.25}
        assert [live["ranks"][rank]["ended"] for rank in "01"] == [False, True]
        assert abs(live["ranks"]["0"]["silent_since"] - (time.time() - 0.25)) < 5
        assert live["nodes"]["a"]["cpu_permille"] == 512

    def test_its_records_have_the_fields_of_their_types(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 3)
        kept.add("a", [0], sample(0, gpus=1, loss="0.5"))
        kept.close()
        live = stored_samples.live(str(tmp_path))
        assert live is not None
        assert live.keys() == get_type_hints(Live).keys()
        assert live["nodes"]["a"].keys() == get_type_hints(LiveNode).keys()
        assert live["ranks"]["0"].keys() == get_type_hints(LiveRank).keys()
        assert live["attempt"] == 3

    def test_a_loss_that_is_not_finite_is_no_value_any_more(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 0)
        kept.add("a", [0], sample(0, loss="0.5"))
        kept.add("a", [0], sample(0, loss="nan"))
        kept.close()
        live = stored_samples.live(str(tmp_path))
        assert live is not None
        assert live["ranks"]["0"]["metrics"] == {}

    def test_a_sample_of_another_runners_rank_is_refused(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 0)
        with pytest.raises(ProtocolError, match="a sample of rank 7, which is another runner's"):
            kept.add("a", [0, 1], sample(0, 7))

    def test_it_is_written_soon_after_a_change_and_at_most_five_times_a_second(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 0)
        file = tmp_path / stored_samples.LIVE
        begun = time.monotonic()
        written: list[int] = []
        while (now := time.monotonic()) < begun + 2.2:
            kept.add("a", [0], sample(0))
            kept.write_due(now)
            stamp = file.stat().st_mtime_ns if file.exists() else 0
            if stamp not in (0, *written):
                written.append(stamp)
            time.sleep(0.01)
        assert 5 <= len(written) <= 12

    def test_whoever_waits_for_other_things_learns_when_the_next_version_is_due(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path), 0)
        begun = time.monotonic()
        assert kept.write_due(begun) > begun + 5  # the course alone
        kept.add("a", [0], sample(0))
        due = kept.write_due(begun)
        assert begun < due <= time.monotonic() + 0.1
        assert kept.write_due(due) > begun + 5
        kept.add("a", [0], sample(0))
        assert due + timing.SAMPLE_WRITE_S <= kept.write_due(due)
        assert (tmp_path / stored_samples.LIVE).exists()

    def test_a_folder_that_cannot_be_written_costs_the_samples_alone(self, tmp_path: Path) -> None:
        kept = SampleRecorder(str(tmp_path / "missing"), 0)
        kept.add("a", [0], sample(0))
        kept.write_due(time.monotonic() + 100)
        kept.close()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"time": 1}', "[" * 10**5])
    def test_a_torn_file_is_none(self, tmp_path: Path, text: str) -> None:
        for name in (stored_samples.LIVE, stored_samples.HISTORY):
            (tmp_path / name).write_text(text)
        assert stored_samples.live(str(tmp_path)) is None
        assert stored_samples.history(str(tmp_path)) is None
        SampleRecorder(str(tmp_path), 1).add("a", [0], sample(0))


class TestHistory:
    def test_a_few_lines_of_each_form_are_kept_with_their_numbers_over_restarts(self) -> None:
        def of(rank: int, line: str, **metrics: Any) -> Sample:
            made = sample(rank, node=False, **metrics)
            made["ranks"][0]["lines"] = dict.fromkeys(metrics, line)
            return made

        recorded = HistoryRecorder(0, 0.0)
        recorded.add("a", of(0, "step 1 samples/s 92", step="1", samples_per_s="92"), 1.0)
        recorded.add("b", of(1, "step 1 samples/s 90", step="1"), 1.0)
        recorded.add("b", of(1, "loss nan", loss="nan"), 1.0)
        recorded = HistoryRecorder(1, 2.0, course(recorded))
        for letter in "abcde":
            recorded.add("b", of(1, f"{letter} step 2", step="2"), 3.0)
        lines = course(recorded)["lines"]
        assert lines[0] == {
            "metric": "step",
            "value": 1,
            "node": "a",
            "rank": 0,
            "line": "step 1 samples/s 92",
        }
        assert [(line["metric"], line["line"]) for line in lines[1:]] == [
            *(("step", "a step 2"), ("step", "b step 2"), ("samples_per_s", "step 1 samples/s 92"))
        ]

    def test_an_interval_has_the_mean_of_its_samples(self) -> None:
        recorded = HistoryRecorder(0, 100.0)
        for second, rate in enumerate(("10", "20", "30", "50")):
            recorded.add("a", sample(0, samples_per_s=rate), 100.0 + second)
        recorded.end(104.0)
        found = course(recorded)
        assert (found["start"], found["interval_s"]) == (100.0, 2.0)
        assert found["nodes"]["a"]["metric:samples_per_s"] == [15, 40]
        assert found["nodes"]["a"]["cpu"] == [0.512, 0.512]
        assert found["nodes"]["a"]["infiniband"] == [2.469e10, 2.469e10]

    def test_what_was_not_sampled_is_none(self) -> None:
        recorded = HistoryRecorder(0, 0.0)
        recorded.add("a", sample(0), 0.0)
        recorded.add("a", sample(0, loss="1", gpus=2), 6.0)
        recorded.end(8.0)
        its = course(recorded)["nodes"]["a"]
        assert its["cpu"] == [0.512, None, None, 0.512]
        assert its["metric:loss"] == [None, None, None, 1]
        assert its["gpu"] == [None, None, None, 0.97]
        assert its["power"] == [None, None, None, 1380]

    def test_each_two_intervals_become_one_once_there_are_too_many(self) -> None:
        recorded = HistoryRecorder(0, 0.0)
        for second in range(2 * INTERVALS + 20):
            recorded.add("a", sample(0, step=str(second)), float(second))
        recorded.end(float(2 * INTERVALS + 20))
        found = course(recorded)
        assert found["interval_s"] == 4.0
        values = found["nodes"]["a"]["metric:step"]
        assert len(values) <= INTERVALS
        assert values[:3] == [1.5, 5.5, 9.5]
        assert values[-1] == 2 * INTERVALS + 17.5

    def test_a_launch_goes_on_in_the_course_of_those_before(self) -> None:
        first = HistoryRecorder(0, 0.0)
        first.add("a", sample(0, step="5", loss="2"), 1.0)
        first.add("a", sample(0, step="9"), 3.0)
        first.end(4.0)
        second = HistoryRecorder(1, 9.0, course(first))
        second.add("a", sample(0, step="6"), 9.0)
        second.add("b", sample(1, node=False, step="8"), 10.5)
        second.end(11.0)
        found = course(second)
        assert found["nodes"]["a"]["metric:step"] == [5, 9, None, None, 6, None]
        assert found["nodes"]["b"]["metric:step"] == [None, None, None, None, None, 8]
        steps = [(one["first_step"], one["last_step"], one["ended"]) for one in found["attempts"]]
        assert steps == [(5, 9, 4.0), (6, 8, 11.0)]
        assert [one["last_step_at"] for one in found["attempts"]] == [3.0, 10.5]

    @pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
    def test_a_clock_that_is_set_leaves_the_course_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by: float
    ) -> None:
        elapsed, day, clock = [0.0], time.time(), [0.0]
        monkeypatch.setattr("launch.remote.sample.recorder.time.monotonic", lambda: 1000.0 + elapsed[0])
        monkeypatch.setattr("launch.remote.sample.recorder.time.time", lambda: day + elapsed[0] + clock[0])
        kept = SampleRecorder(str(tmp_path), 0)
        for second in range(20):
            elapsed[0] = float(second)
            clock[0] = set_by if second >= 10 else 0.0
            kept.add("a", [0], sample(0))
        kept.close()
        found = stored_samples.history(str(tmp_path))
        assert found is not None
        assert len(found["nodes"]["a"]["cpu"]) == 10
        assert None not in found["nodes"]["a"]["cpu"]
        assert found["interval_s"] == 2.0

    def test_checkpoints_are_those_of_the_first_rank_that_prints_them(self) -> None:
        recorded = HistoryRecorder(0, 0.0)
        recorded.add("a", sample(2, checkpoint_s="9"), 1.0)
        recorded.add("a", sample(0, checkpoint_s="1.5"), 2.0)
        recorded.add("a", sample(2, checkpoint_s="9"), 3.0)
        recorded.add("a", sample(0, checkpoint_s="1.5"), 4.0)
        (attempt,) = course(recorded)["attempts"]
        assert (attempt["checkpoints"], attempt["checkpoint_s"]) == (2, 3.0)

    def test_a_course_that_is_none_begins_again(self, tmp_path: Path) -> None:
        wrong = {"start": 1.0, "interval_s": 2.0, "nodes": {"a": {"x": [1], "y": []}}, "attempts": []}
        (tmp_path / stored_samples.HISTORY).write_text(json.dumps(wrong))
        kept = SampleRecorder(str(tmp_path), 1)
        kept.add("a", [0], sample(0))
        kept.close()
        found = stored_samples.history(str(tmp_path))
        assert found is not None
        assert len(found["attempts"]) == 1


def test_both_files_of_300_nodes_of_eight_ranks_have_at_most_8_mib_however_long_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_795_000_000.0]
    monkeypatch.setattr("launch.remote.sample.recorder.time.time", lambda: now[0])
    kept = SampleRecorder(str(tmp_path), 0)
    own: dict[str, Any] = {f"a_metric_with_a_long_name_{place}": "0.123456789" for place in range(12)}
    known: dict[str, Any] = {
        "step": "1000000",
        "loss": "0.123456",
        "samples_per_s": "12345.678",
        "checkpoint_s": "12.5",
    }
    names = [f"ranklift000{node:03}" for node in range(300)]
    shares = [range(8 * node, 8 * node + 8) for node in range(300)]
    for _ in range(INTERVALS):
        now[0] += 10.0
        for name, ranks in zip(names, shares, strict=True):
            kept.add(name, ranks, sample(ranks[0], gpus=8, **known, **own))
    for name, ranks in zip(names, shares, strict=True):
        kept.add(name, ranks, sample(*ranks, gpus=8, **known, **own))
    kept.close()
    sizes = {name: (tmp_path / name).stat().st_size for name in (stored_samples.LIVE, stored_samples.HISTORY)}
    assert sum(sizes.values()) <= 8 * MIB, sizes
    found = stored_samples.history(str(tmp_path))
    assert found is not None
    assert len(found["nodes"]) == 300
