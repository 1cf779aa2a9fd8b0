"""A silent job that works is not taken for one that hangs, whatever keeps its ranks from printing."""

from __future__ import annotations

from typing import Any

import pytest

from launch.remote.debug.debug_records import GpuState
from launch.remote.hangs.movement import doubt
from launch.remote.hangs.verdict import judge
from tests.launch.remote.hangs.hanging_ranks import Job, broadcast, frame, loading, process

WORK: dict[str, dict[str, Any]] = {
    "processor time": {"cpu_ms": 1900},
    "children that ended": {"ended_ms": 1900},
    "files": {"io": 1 << 20},
    "connections": {"received": 8 << 20},
}
each_work = pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())


def doubted(job: Job) -> str:
    return doubt(job.facts, judge(job.facts))


def gpu(memory_use: int) -> GpuState:
    return {"index": 0, "clock_events": 0, "memory_use": memory_use, "error": ""}


@each_work
def test_a_job_whose_ranks_stay_on_one_line_and_work_is_slow(work: Any) -> None:
    job = Job(4)
    for rank in range(4):
        job.puts(rank, [frame("fit", line=20)])
    job.main(2).update(work)
    assert judge(job.facts)["kind"] == "slow"


def test_a_job_whose_ranks_wait_for_programs_that_work_is_slow() -> None:
    job = Job(4)
    for rank in range(4):
        job.puts(rank, [frame("wait", "/usr/lib/python3.11/subprocess.py", 1264), frame("fit", line=20)])
        job.by_rank[rank]["processes"].append(process([], 777))
        job.by_rank[rank]["processes"][1].update({"name": "ffmpeg", "cpu_ms": 1900})
    assert judge(job.facts)["kind"] == "slow"


def test_programs_without_stacks_that_use_processor_time_may_spin_and_are_not_judged() -> None:
    job = Job(4)
    for rank in range(4):
        job.main(rank).update({"threads": [], "later": [], "cpu_ms": 2000})
    assert judge(job.facts)["kind"] == "unknown"
    assert doubted(job) == "nothing shows that it hangs"


@each_work
def test_a_rank_that_works_while_the_others_wait_for_it_is_named_and_not_guilty(work: Any) -> None:
    job = Job(16)
    job.puts(5, [frame("evaluate", line=70)])
    job.main(5).update(work)
    found = judge(job.facts)
    assert (found["kind"], found["ranks"]) == ("missing-rank", [5])
    assert doubted(job).startswith("rank 5 on node000001 uses ")


def test_a_gpu_that_computes_for_the_rank_that_the_others_wait_for_is_movement() -> None:
    job = Job(16)
    job.puts(5, [frame("evaluate", line=70)])
    job.facts["nodes"]["node000001"][0]["gpus"] = [gpu(30)]
    assert doubted(job) == "a GPU of node000001 computes"
    job.facts["nodes"]["node000001"][0]["gpus"] = [gpu(0)]
    assert doubted(job) == ""


def test_ranks_that_spin_while_they_wait_do_not_move_by_that() -> None:
    job = Job(16)
    for rank in range(16):
        job.puts(rank, [frame("main", line=9, text="world.allreduce(1)")])
        job.main(rank)["cpu_ms"] = 2000
    job.puts(5, loading())
    job.main(5)["cpu_ms"] = 0
    assert (judge(job.facts)["ranks"], doubted(job)) == ([5], "")


def test_ranks_that_spin_in_different_collectives_do_not_move_by_that() -> None:
    job = Job(16)
    job.puts(5, broadcast())
    for rank in range(16):
        job.main(rank)["cpu_ms"] = 2000
    assert (judge(job.facts)["kind"], doubted(job)) == ("mismatched-collective", "")


def test_a_rank_that_works_is_waited_for_although_another_has_ended() -> None:
    job = Job(16)
    job.ends(3)
    job.puts(0, [frame("save", line=90)])
    assert doubted(job) == ""
    job.main(0)["cpu_ms"] = 1900
    assert doubted(job) == "rank 0 on node000000 uses processor time"


def test_a_node_that_does_not_report_proves_nothing() -> None:
    job = Job(16)
    del job.facts["nodes"]["node000002"]
    job.facts["unanswered"]["node000002"] = "it did not report within 17.5 s"
    assert doubted(job) == "node000002 has not reported: it did not report within 17.5 s"
    job.facts["unheard_s"]["node000002"] = 7
    assert (judge(job.facts)["kind"], doubted(job)) == ("dead-network", "")
