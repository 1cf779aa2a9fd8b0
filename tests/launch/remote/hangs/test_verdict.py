"""The verdict names the kind of a hang, and the rank at fault: with each rank at fault once."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.remote.debug.debug_records import RasRank, Verdict
from launch.remote.hangs.verdict import judge
from tests.launch.remote.hangs.hanging_ranks import Job, all_reduce, broadcast, frame, loading, process

JOBS = [(size, rank) for size in (16, 64) for rank in range(size)]
"""Sizes of jobs, each with every rank at fault."""
each_rank = pytest.mark.parametrize(("size", "rank"), JOBS)


def verdict(job: Job) -> Verdict:
    return judge(job.facts)


@each_rank
def test_a_stopped_rank_is_named(size: int, rank: int) -> None:
    job = Job(size)
    job.puts(rank, loading())
    job.main(rank)["state"] = "T"
    found = verdict(job)
    assert (found["kind"], found["ranks"], found["nodes"]) == ("stopped", [rank], [job.node(rank)])


@each_rank
def test_a_rank_in_the_kernel_is_named(size: int, rank: int) -> None:
    job = Job(size)
    job.puts(rank, loading())
    job.main(rank).update({"state": "D", "kernel_function": "nfs_wait_bit_killable"})
    found = verdict(job)
    assert (found["kind"], found["ranks"], found["nodes"]) == ("kernel", [rank], [job.node(rank)])
    assert "in nfs_wait_bit_killable" in found["text"]


def test_a_process_that_reads_a_disk_does_not_hang_in_the_kernel() -> None:
    job = Job(16)
    job.main(3).update({"state": "D", "switches": 200})
    job.puts(5, loading())
    assert verdict(job)["ranks"] == [5]


def test_a_worker_that_hangs_in_the_kernel_is_named_with_its_rank() -> None:
    job = Job(16)
    job.puts(5, loading())
    job.by_rank[5]["processes"].append(process([], 777))
    job.by_rank[5]["processes"][1].update({"state": "D", "kernel_function": "nfs_wait_bit_killable"})
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("kernel", [5])
    assert "process 777, in nfs_wait_bit_killable" in found["text"]


@each_rank
def test_a_rank_elsewhere_is_missing(size: int, rank: int) -> None:
    job = Job(size)
    job.puts(rank, loading())
    found = verdict(job)
    assert (found["kind"], found["ranks"], found["nodes"]) == ("missing-rank", [rank], [job.node(rank)])


@each_rank
def test_a_rank_that_has_ended_is_missing(size: int, rank: int) -> None:
    job = Job(size)
    job.ends(rank)
    found = verdict(job)
    assert (found["kind"], found["ranks"], found["nodes"]) == ("missing-rank", [rank], [job.node(rank)])
    assert "has ended already, with exit status 0" in found["text"]


@each_rank
def test_a_rank_in_another_collective_is_named(size: int, rank: int) -> None:
    job = Job(size)
    job.puts(rank, broadcast())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("mismatched-collective", [rank])


@each_rank
def test_a_rank_in_an_earlier_collective_is_named_by_its_number(size: int, rank: int) -> None:
    job = Job(size)
    for other in range(size):
        job.numbers(other, 1841 - (other == rank))
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("mismatched-collective", [rank])
    assert "all_reduce #1841" in found["text"]
    assert "at all_reduce #1840" in found["text"]


@each_rank
def test_a_slow_rank_is_named_where_the_others_move(size: int, rank: int) -> None:
    job = Job(size)
    for other in range(size):
        job.main(other)["switches"] = 40
    job.puts(rank, loading())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("slow", [rank])


@pytest.mark.parametrize("rank", range(16))
def test_ranks_that_spin_in_mpi_move_where_data_comes(rank: int) -> None:
    job = Job(16)
    for other in range(16):
        job.puts(other, [frame("main", line=9, text="world.allreduce(1)")])
        job.main(other)["received"] = 64
    job.puts(rank, loading())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("slow", [rank])


@pytest.mark.parametrize("received", [0, 64])
def test_ranks_that_sleep_and_poll_in_mpi_move_only_where_data_comes(received: int) -> None:
    job = Job(16)
    for other in range(16):
        job.puts(other, [frame("main", line=9, text="world.allreduce(1)")])
        job.main(other).update({"switches": 3000, "received": received})
    job.puts(5, loading())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("slow" if received else "missing-rank", [5])


def test_ranks_that_sleep_and_poll_in_horovod_do_not_move_by_that() -> None:
    job = Job(16)
    file = "/opt/venv/lib/python3.11/site-packages/horovod/torch/mpi_ops.py"
    for other in range(16):
        job.puts(other, [frame("synchronize", file), frame("main", line=9, text="optimizer.step()")])
        job.main(other)["switches"] = 1800
    job.puts(5, loading())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("missing-rank", [5])


def test_ranks_of_torch_that_wake_often_move() -> None:
    job = Job(16)
    for rank in range(16):
        job.main(rank)["switches"] = 3000
    assert verdict(job)["kind"] == "slow"


def test_data_of_other_libraries_does_not_show_that_ranks_move() -> None:
    job = Job(16)
    for rank in range(16):
        job.main(rank)["received"] = 64  # torch's store has traffic of its own
    job.puts(3, loading())
    assert verdict(job)["kind"] == "missing-rank"


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("number", range(4))
def test_a_node_that_nothing_reaches_is_named(size: int, number: int) -> None:
    job = Job(size)
    cut = f"10.0.0.{4 + number}"
    for rank in range(size):
        if rank // 4 == number:
            for other in range(size // 4):
                if other != number:
                    job.repeats(rank, f"10.0.0.{4 + other}")
        else:
            job.repeats(rank, cut)
    found = verdict(job)
    assert (found["kind"], found["nodes"]) == ("dead-network", [f"node{number:06d}"])


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("number", range(4))
def test_a_node_that_the_head_has_nothing_from_is_named_whatever_the_others_do(
    size: int, number: int
) -> None:
    job = Job(size)
    name = f"node{number:06d}"
    del job.facts["nodes"][name]
    job.facts["unanswered"][name] = "nothing has come from it for 7 s"
    job.facts["unheard_s"][name] = 7
    for rank in range(size):
        if rank // 4 != number:
            job.main(rank)["switches"] = 40
    found = verdict(job)
    assert (found["kind"], found["nodes"]) == ("dead-network", [name])
    assert found["text"] == (
        f"{size - 4} ranks wait in all_reduce at train.py:88; {name} is cut off or dead: nothing has come "
        "from there for 7 s"
    )


def test_two_nodes_that_do_not_reach_each_other_are_named() -> None:
    job = Job(16)
    job.repeats(4, "10.0.0.6")
    job.repeats(9, "10.0.0.5")
    found = verdict(job)
    assert (found["kind"], found["nodes"]) == ("dead-network", ["node000001", "node000002"])
    assert found["text"] == (
        "16 ranks wait in all_reduce at train.py:88; no data passes between node000001 and node000002: 2 "
        "connections repeat what is not acknowledged"
    )


def test_a_port_that_is_down_is_a_dead_network() -> None:
    job = Job(16)
    job.port("node000001", "ACTIVE")
    job.port("node000002", "DOWN")
    found = verdict(job)
    assert (found["kind"], found["nodes"]) == ("dead-network", ["node000002"])


def test_connections_to_others_than_the_jobs_nodes_do_not_count() -> None:
    job = Job(16)
    job.repeats(4, "20.1.2.3")
    assert verdict(job)["kind"] == "unknown"


def test_the_texts() -> None:
    job = Job(64)
    job.puts(17, loading())
    assert verdict(job)["text"] == (
        "63 ranks wait in all_reduce at train.py:88; rank 17 on node000004 is in __next__ of "
        "torch/utils/data/dataloader.py at train.py:60"
    )
    job.main(17)["state"] = "T"
    assert verdict(job)["text"] == (
        "63 ranks wait in all_reduce at train.py:88; rank 17 on node000004 is stopped by a signal such as "
        "SIGSTOP (process 117): `kill -CONT 117` there lets it go on"
    )
    job = Job(16)
    job.puts(3, broadcast())
    assert verdict(job)["text"] == (
        "15 ranks wait in all_reduce at train.py:88; rank 3 on node000000 waits in broadcast at train.py:91"
    )


def test_ranks_that_all_wait_in_one_collective_are_not_blamed() -> None:
    found = verdict(Job(16))
    assert (found["kind"], found["ranks"]) == ("unknown", [])
    assert found["text"] == (
        "all 16 ranks wait in all_reduce at train.py:88, and nothing shows which of them is missing"
    )


def test_halves_in_different_collectives_are_both_named() -> None:
    job = Job(16)
    for rank in range(8):
        job.puts(rank, broadcast())
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("mismatched-collective", list(range(16)))


def test_a_rank_that_prints_elsewhere_does_not_make_a_stuck_job_slow() -> None:
    job = Job(16)
    job.puts(5, loading())
    job.facts["printed"] = [5]
    assert verdict(job)["kind"] == "missing-rank"
    job.facts["printed"] = [6]
    assert verdict(job)["kind"] == "slow"


def test_a_node_that_did_not_report_is_named_once_all_others_wait() -> None:
    job = Job(16)
    del job.facts["nodes"]["node000002"]
    job.facts["unanswered"]["node000002"] = "it did not report within 9.5 s"
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("missing-rank", [8, 9, 10, 11])
    assert "node000002: it did not report within 9.5 s" in found["notes"]


def test_facts_stay_as_they_are() -> None:
    job = Job(16)
    job.puts(5, loading())
    before = copy.deepcopy(job.facts)
    judge(job.facts)
    assert job.facts == before


@pytest.mark.parametrize(("moving", "kind"), [(4, "slow"), (1, "slow"), (0, "unknown")])
def test_ranks_that_compute_without_waiting_for_others_do_not_hang(moving: int, kind: str) -> None:
    job = Job(4)
    for rank in range(4):
        at = [20, 24, 31] if rank < moving else [20, 20, 20]
        job.puts(rank, *([frame("fit", line=line)] for line in at))
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == (kind, [])
    if kind == "slow":
        assert (
            f"{moving} of 4 moved while they were looked at, such as rank 0 on node000000 in fit"
            in (found["text"])
        )


def test_stacks_that_are_missing_are_explained() -> None:
    job = Job(4)
    for rank in range(4):
        job.main(rank).update({"threads": [], "later": [], "problem": "Permission denied"})
    found = verdict(job)
    assert found["text"] == "no stack of any rank is known: Permission denied"
    assert found["notes"] == ["no stacks of ranks 0-3: Permission denied"]


def test_the_reason_counts_that_a_process_below_a_wrapper_has() -> None:
    job = Job(4)
    for rank in range(4):
        job.main(rank).update({"name": "docker", "threads": [], "later": []})
        inner = process([], 900 + rank)
        inner["problem"] = "Permission denied"
        job.by_rank[rank]["processes"].append(inner)
    assert verdict(job)["text"] == "no stack of any rank is known: Permission denied"


def test_a_rank_whose_stacks_could_not_be_read_is_not_blamed_for_that() -> None:
    job = Job(16)
    job.main(3).update({"threads": [], "later": [], "problem": "py-spy did not end within 2.0 s"})
    found = verdict(job)
    assert (found["kind"], found["ranks"]) == ("unknown", [])
    assert found["text"].startswith("all 15 ranks whose stacks are known wait in all_reduce at train.py:88")
    assert found["notes"] == ["no stacks of rank 3: py-spy did not end within 2.0 s"]
    job.puts(5, loading())
    assert verdict(job)["ranks"] == [5]


def test_programs_that_are_not_pythons_are_named_as_such() -> None:
    job = Job(4)
    for rank in range(4):
        job.main(rank).update({"threads": [], "later": []})
    assert "not Python's" in verdict(job)["text"]


def ras_rank(rank: int, pid: int, operations: int, host: str = "10.0.0.4") -> RasRank:
    return {
        "group": "0x1",
        "rank": rank,
        "host": host,
        "pid": pid,
        "operations": operations,
        "state": "running",
    }


@pytest.mark.parametrize("inner", [[20, 21], [7, 7]], ids=["one container", "a container for each rank"])
def test_nccls_account_names_ranks_by_their_numbers_in_a_container(inner: list[int]) -> None:
    job = Job(2)
    host = next(address for address, node in job.facts["addresses"].items() if node == "node000000")
    for rank, pid in enumerate(inner):
        job.main(rank)["inner_pid"] = pid
    job.facts["nodes"]["node000000"][0]["ras"] = [
        ras_rank(0, inner[0], 201, host),
        ras_rank(1, inner[1], 200, host),
    ]
    verdict = judge(job.facts)
    assert verdict["ranks"] == [1]
    assert "rank 1 on node000000 has started 200 of 201 collectives, by NCCL's account" in verdict["text"]


def test_nccls_account_of_a_part_of_the_ranks_blames_nobody_by_a_number_that_two_have() -> None:
    job = Job(4)
    host = next(address for address, node in job.facts["addresses"].items() if node == "node000000")
    for rank in range(4):
        job.main(rank)["inner_pid"] = 7
    job.facts["nodes"]["node000000"][0]["ras"] = [ras_rank(0, 7, 201, host), ras_rank(1, 7, 200, host)]
    verdict = judge(job.facts)
    assert verdict["ranks"] == []
    assert "NCCL's rank 1 (process 7 on " in verdict["text"]


def test_clocks_that_are_held_down_are_noted() -> None:
    job = Job(4)
    job.facts["nodes"]["node000000"][0]["gpus"] = [
        {"index": 0, "clock_events": 0x1, "memory_use": 0, "error": ""},
        {"index": 1, "clock_events": 0x40, "memory_use": 0, "error": ""},
    ]
    assert verdict(job)["notes"] == ["node000000: GPU 1 has its clocks held down: 0x40"]


places = st.sampled_from([all_reduce(), broadcast(), loading(), [frame("<module>")], []])


@given(st.integers(1, 24), st.data())
@settings(max_examples=200, deadline=None)
def test_every_job_has_a_verdict_that_names_ranks_of_its_own(size: int, data: st.DataObject) -> None:
    job = Job(size)
    for rank in range(size):
        its = job.main(rank)
        frames = data.draw(places)
        its["threads"] = [{"name": "", "frames": frames}] if frames else []
        its["later"] = [{"frames": data.draw(places)}] if frames else []
        its["state"] = data.draw(st.sampled_from(["R", "S", "D", "T", "t", "Z", "gone"]))
    for rank in data.draw(st.sets(st.integers(0, size - 1))):
        job.ends(rank, data.draw(st.integers(0, 255)))
    found = verdict(job)
    assert set(found["ranks"]) <= set(range(size))
    assert found["text"]
