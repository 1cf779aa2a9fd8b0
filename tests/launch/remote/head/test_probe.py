"""The proof of transport before a job's first rank, on stand-in nodes: what it runs, and what follows."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.client import submit
from launch.client.events import Event, JobState
from launch.client.query import show_job
from launch.job.spec import JobSpec
from launch.remote.base.health_records import ProbeMode
from launch.remote.base.job_dir import Folder
from launch.remote.head.probe import _ProbeFolder
from playbooks.jobs.tables import job_text
from tests.e2e.workplace import NODE_PYTHON
from tests.launch.standin import REMOTE, Nodes, Started, lines, remarks, shell, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("nothing_runs_on")]


def run(nodes: Nodes, spec: JobSpec, mode: ProbeMode, rehearsal: int = 0) -> tuple[JobState, list[Event]]:
    made = replace(nodes.plan(spec), probe={"mode": mode, "rehearsal": rehearsal})
    events: list[Event] = []
    return submit.submit_and_follow(made, nodes.head, events.append), events


def results(nodes: Nodes, job: str) -> list[dict[str, Any]]:
    """The job's events of probes."""
    report = show_job(job, nodes.head, remote="hash")
    return [dict(event.fields) for event in report.events if event.event == "probe"]


def text(nodes: Nodes, job: str) -> str:
    return job_text(show_job(job, nodes.head, remote="hash"))


def test_infiniband_is_proven_before_any_rank_starts(nodes: Nodes, torch: dict[str, str]) -> None:
    spec = shell("echo ${NCCL_DEBUG-unset} $MASTER_PORT", env=torch)
    state, events = run(nodes, spec, "on")
    assert state.state == "SUCCEEDED"
    assert {text for _, text in lines(events)} == {f"unset {state.port}"}
    (found,) = results(nodes, state.job)
    assert (found["verdict"], found["transport"]) == ("proven", "InfiniBand, 2 HCAs a node, GPUDirect")
    assert {line["node"] for line in found["lines"]} == {"node000000", "node000001", "node000002"}
    assert all("via NET/IB/" in line["line"] for line in found["lines"])
    assert "transport: InfiniBand, 2 HCAs a node, GPUDirect" in remarks(events)
    assert "transport InfiniBand, 2 HCAs a node, GPUDirect\n" in text(nodes, state.job)
    assert "probe: proven in " in text(nodes, state.job)


def test_one_node_over_tcp_refuses_the_job_before_any_rank_of_it(nodes: Nodes, torch: dict[str, str]) -> None:
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_FALLS_BACK": "1"}), "on")
    assert (state.state, state.exit_status, lines(events)) == ("FAILED", 255, [])
    bad = "node1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
    assert state.reason == (
        f"no rank was started: node000001, rank 0: NCCL uses TCP between nodes: {bad}; Standard_ND40rs_v2 "
        "promises InfiniBand between nodes: to run without it, launch with --no-probe (ranklift.probe: false)"
    )
    assert state.failure is not None
    assert state.failure.node == "node000001"
    assert results(nodes, state.job)[0]["lines"] == [{"rank": 1, "node": "node000001", "line": bad}]


WITHOUT_END = (
    "a probe that does not come to a good end proves nothing: launch again; to start the job unproven, over "
    "whatever network its ranks find, launch with --no-probe (ranklift.probe: false)"
)


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_probe_that_fails_refuses_the_job(nodes: Nodes, torch: dict[str, str], mode: ProbeMode) -> None:
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_FAILS": "1"}), mode)
    assert (state.state, state.exit_status, lines(events)) == ("FAILED", 255, [])
    assert state.reason.startswith(
        "no rank was started: the probe by torch failed: rank 1 on node000001 ended"
    )
    assert "NCCL Error 2: unhandled system error; Standard_ND40rs_v2 promises InfiniBand" in state.reason
    assert state.reason.endswith(WITHOUT_END)
    assert results(nodes, state.job)[0]["verdict"] == "failed"
    assert "transport: not proven (failed): the probe by torch failed" in remarks(events)


def test_a_node_that_shows_no_connection_where_others_do_refuses_the_job(
    nodes: Nodes, torch: dict[str, str]
) -> None:
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_IS_SILENT": "1"}), "auto")
    assert (state.state, lines(events)) == ("FAILED", [])
    assert "rank 1 on node000001 has not shown a connection to another node" in state.reason


def test_libraries_that_print_no_connection_leave_it_unproven(nodes: Nodes, torch: dict[str, str]) -> None:
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_IS_SILENT": "all"}), "auto")
    assert (state.state, len(lines(events))) == ("SUCCEEDED", 3)
    assert results(nodes, state.job)[0]["verdict"] == "unproven"


def with_limits(nodes: Nodes, still: float, probe: float) -> None:
    """Gives the nodes other time limits of a probe."""
    for node in nodes.nodes:
        remote = nodes.folder / node.name / ".ranklift/remote/hash"
        remote.unlink()
        shutil.copytree(REMOTE, remote, ignore=shutil.ignore_patterns("__pycache__"))
        module = remote / "base/timing.py"
        text = module.read_text()
        for name, value in (("PROBE_STILL_S", still), ("PROBE_S", probe)):
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1
        module.write_text(text)


def test_a_probe_whose_processes_do_nothing_refuses_the_job(nodes: Nodes, torch: dict[str, str]) -> None:
    with_limits(nodes, 3.0, 60.0)
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_HANGS": "1"}), "auto")
    assert (state.state, lines(events)) == ("FAILED", [])
    assert results(nodes, state.job)[0]["verdict"] == "unfinished"
    assert re.search(
        r"the probe by torch was ended: none of its processes has printed or used its processor for \d+ s; "
        r"still running: rank 0 on node000000, rank 1 on node000001, rank 2 on node000002",
        state.reason,
    )
    assert state.reason.endswith(WITHOUT_END)


def test_a_probe_that_moves_is_waited_for(nodes: Nodes, torch: dict[str, str]) -> None:
    """As one whose import takes long on a busy machine."""
    with_limits(nodes, 3.0, 60.0)
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_IS_SLOW": "8"}), "auto")
    assert (state.state, len(lines(events))) == ("SUCCEEDED", 3)
    assert results(nodes, state.job)[0]["verdict"] == "proven"


def test_a_probe_that_moves_for_ever_refuses_the_job(nodes: Nodes, torch: dict[str, str]) -> None:
    with_limits(nodes, 2.0, 5.0)
    state, events = run(nodes, shell("echo trains", env={**torch, "TORCH_IS_SLOW": "600"}), "auto")
    assert (state.state, lines(events)) == ("FAILED", [])
    assert results(nodes, state.job)[0]["verdict"] == "unfinished"
    assert "the probe by torch was ended: it did not end within 5 s; still running: rank 0" in state.reason


def test_a_python_that_no_node_has_is_nothing_to_probe_with(nodes: Nodes) -> None:
    state, events = run(nodes, shell("echo runs", python="/opt/none/python3"), "auto")
    assert (state.state, len(lines(events))) == ("SUCCEEDED", 3)
    (found,) = results(nodes, state.job)
    assert found["verdict"] == "unproven"
    assert "there is nothing to probe with by torch" in found["reason"]


def test_the_jobs_own_time_limit_ends_it_while_it_is_probed(nodes: Nodes, torch: dict[str, str]) -> None:
    spec = shell("echo trains", env={**torch, "TORCH_HANGS": "1"}, timeout_s=3.0)
    state, events = run(nodes, spec, "auto")
    assert (state.state, state.exit_status, lines(events)) == ("FAILED", 124, [])
    assert state.reason.startswith("its time limit of 3 s was reached")


def test_the_watch_over_hanging_ranks_leaves_a_probe_alone(nodes: Nodes, torch: dict[str, str]) -> None:
    spec = shell("echo trains", env={**torch, "TORCH_IS_SLOW": "4"}, hang_after_s=1.0)
    state, _ = run(nodes, spec, "auto")
    assert (state.state, results(nodes, state.job)[0]["verdict"]) == ("SUCCEEDED", "proven")


def test_gloo_of_a_torch_without_gpus_is_tcp(nodes: Nodes) -> None:
    """The rehearsed nodes' own torch, over the sockets of this machine."""
    state, events = run(nodes, shell("echo trains", python=str(NODE_PYTHON)), "auto")
    assert (state.state, lines(events)) == ("FAILED", [])
    assert results(nodes, state.job)[0]["transport"] == "TCP (Gloo)"
    assert "Gloo uses TCP between nodes" in state.reason


def test_nodes_are_probed_once_by_their_head(nodes: Nodes, torch: dict[str, str]) -> None:
    first, _ = run(nodes, shell("true", env=torch), "auto")
    second, _ = run(nodes, shell("true", env={**torch, "TORCH_FALLS_BACK": "1"}), "auto")
    third, _ = run(nodes, shell("true", env={**torch, "TORCH_FALLS_BACK": "1"}), "on")
    assert [first.state, second.state, third.state] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    (known,) = results(nodes, second.job)
    assert (known["verdict"], known["reason"], known["lines"]) == ("proven", f"by job {first.job}", [])
    shown = text(nodes, second.job)
    assert f"transport InfiniBand, 2 HCAs a node, GPUDirect, proven by job {first.job}\n" in shown


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """Variables by which ranks cannot import torch."""
    folder = tmp_path / "none/torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('no torch here')\n")
    return {"PYTHONPATH": str(folder.parent)}


def test_another_variable_of_nccl_needs_another_proof(nodes: Nodes, torch: dict[str, str]) -> None:
    first, _ = run(nodes, shell("true", env=torch), "auto")
    falls_back = {**torch, "TORCH_FALLS_BACK": "1"}
    same, _ = run(nodes, shell("true", env=falls_back), "auto")
    other, _ = run(nodes, shell("true", env={**falls_back, "NCCL_IB_HCA": "mlx5_9"}), "auto")
    assert [first.state, same.state, other.state] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]


def test_a_python_without_torch_proves_nothing(nodes: Nodes, without_torch: dict[str, str]) -> None:
    """It is reported; who asked for the proof does not get a job without it."""
    spec = shell("echo trains", env=without_torch)
    state, events = run(nodes, spec, "auto")
    assert (state.state, len(lines(events))) == ("SUCCEEDED", 3)
    (found,) = results(nodes, state.job)
    assert found["verdict"] == "unproven"
    assert "ranklift-probe: torch cannot be imported: no torch here" in found["reason"]
    assert "ranklift-probe: there is no /opt/nccl-tests/build/all_reduce_perf" in found["reason"]
    assert "transport: not proven" in remarks(events)
    refused, events = run(nodes, spec, "on")
    assert (refused.state, lines(events)) == ("FAILED", [])


NCCL_TESTS = """\
#!/bin/sh
if [ "$NCCL_DEBUG" = INFO ]; then
    line="[0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/0/GDRDMA"
    echo "node$OMPI_COMM_WORLD_RANK:7:9 $line"
fi
"""


def test_the_images_nccl_tests_prove_it_where_the_python_has_no_torch(
    nodes: Nodes, without_torch: dict[str, str]
) -> None:
    """Started by the node's own Open MPI; a script stands for the benchmark, which needs GPUs."""
    (nodes.bin / "all_reduce_perf").write_text(NCCL_TESTS)
    (nodes.bin / "all_reduce_perf").chmod(0o755)
    state, events = run(nodes, shell("echo ${OMPI_COMM_WORLD_RANK-none}", env=without_torch), "on")
    assert (state.state, {text for _, text in lines(events)}) == ("SUCCEEDED", {"none"})
    (found,) = results(nodes, state.job)
    assert (found["verdict"], found["transport"]) == ("proven", "InfiniBand, 1 HCA a node, GPUDirect")
    again, _ = run(nodes, shell("true", env=without_torch), "auto")
    assert results(nodes, again.job)[0]["reason"] == f"by job {state.job}"


def test_a_rehearsal_says_once_that_it_has_nothing_to_prove(nodes: Nodes) -> None:
    first, events = run(nodes, shell("echo trains"), "auto", rehearsal=1)
    assert (first.state, len(lines(events))) == ("SUCCEEDED", 3)
    assert remarks(events) == ""
    assert results(nodes, first.job)[0]["verdict"] == "omitted"
    assert "probe: omitted: rehearsed nodes have no InfiniBand; --probe runs" in text(nodes, first.job)
    second, events = run(nodes, shell("echo trains"), "auto", rehearsal=1)
    assert (second.state, remarks(events), results(nodes, second.job)) == ("SUCCEEDED", "", [])


def test_a_job_is_cancelled_while_it_is_probed(nodes: Nodes, torch: dict[str, str]) -> None:
    job = Started(nodes, shell("echo trains", env={**torch, "TORCH_HANGS": "1"}, probe=True))
    probe = nodes.folder / f"node000000/.ranklift/jobs/{job.job}/probe"
    until((probe / "exits.jsonl").exists)  # which is there once ranks start
    record = nodes.folder / f"node000000/.ranklift/jobs/{job.job}/state.json"
    assert json.loads(record.read_text())["reason"] == "the transport between its nodes is probed"
    began = time.monotonic()
    assert nodes.cancel(job.job).state == "CANCELLED"
    assert time.monotonic() - began < 15
    assert lines(job.events) == []
    job.end()


CONTRADICTION = (
    'test "$RANK" = 1 && printf "n:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/So" '
    '&& sleep 0.2 && echo "cket/0"; echo trains'
)


def test_a_jobs_own_lines_contradict_loudly(nodes: Nodes) -> None:
    state, events = run(nodes, shell(CONTRADICTION), "auto", rehearsal=1)
    assert state.state == "SUCCEEDED"
    (found,) = [one for one in results(nodes, state.job) if one["source"] == "ranks"]
    assert (found["verdict"], found["transport"]) == ("refused", "TCP (NCCL)")
    assert (
        "transport: TCP (NCCL), but Standard_ND40rs_v2 promises InfiniBand: node000001, rank 0: NCCL uses "
        "TCP between nodes: n:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
    ) in remarks(events)
    assert "transport TCP (NCCL), as its ranks print\n" in text(nodes, state.job)


def test_a_jobs_own_lines_are_kept_as_proof_too(nodes: Nodes) -> None:
    line = "n:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    state, _ = run(nodes, shell(f"echo '{line}'"), "auto", rehearsal=1)
    found = results(nodes, state.job)[-1]
    assert (found["source"], found["verdict"]) == ("ranks", "proven")
    assert found["transport"] == "InfiniBand, 1 HCA a node, GPUDirect"


def test_where_mpi_only_starts_nccl_its_lines_alone_are_checked(nodes: Nodes) -> None:
    state, events = run(nodes, shell(CONTRADICTION), "ranks")
    assert state.state == "SUCCEEDED"
    assert [one["source"] for one in results(nodes, state.job)] == ["ranks"]
    assert "transport: TCP (NCCL), but" in remarks(events)


def test_who_does_without_infiniband_is_left_alone(nodes: Nodes) -> None:
    state, events = run(nodes, shell(CONTRADICTION), "off")
    assert (state.state, remarks(events), results(nodes, state.job)) == ("SUCCEEDED", "", [])


def looks(nodes: Nodes, job: str) -> dict[str, int]:
    """The number of looks at each node: each finds that this machine lacks what the size promises."""
    folder = nodes.folder / f"node000000/.ranklift/jobs/{job}"
    files = (folder / "events.jsonl", folder / "probe/events.jsonl")
    events = [json.loads(line) for one in files if one.exists() for line in one.read_text().splitlines()]
    return Counter(one["node"] for one in events if one["event"] == "health")


@pytest.mark.parametrize(
    ("mode", "restarts"), [("on", 0), ("off", 0), ("on", 1)], ids=["probed", "not probed", "restarted"]
)
def test_a_launch_looks_once_at_each_node(
    nodes: Nodes, torch: dict[str, str], mode: ProbeMode, restarts: int
) -> None:
    code = "exit $((RANKLIFT_RESTART_COUNT == 0))" if restarts else "true"
    planned = nodes.plan(shell(code, env=torch, max_restarts=restarts))
    made = replace(planned, spec=replace(planned.spec, health="warn"), probe={"mode": mode, "rehearsal": 0})
    events: list[Event] = []
    state = submit.submit_and_follow(made, nodes.head, events.append)
    assert state.state == "SUCCEEDED"
    assert looks(nodes, state.job) == dict.fromkeys(state.nodes, 1 + restarts)
    assert remarks(events).count("/sys/class/infiniband: none") == 1


def test_both_programs_of_a_probe_and_its_job_need_one_look(
    nodes: Nodes, without_torch: dict[str, str]
) -> None:
    planned = nodes.plan(shell("true", env=without_torch))
    made = replace(planned, spec=replace(planned.spec, health="warn"), probe={"mode": "auto", "rehearsal": 0})
    state = submit.submit_and_follow(made, nodes.head, lambda _: None)
    (found,) = results(nodes, state.job)
    assert "there is no /opt/nccl-tests/build/all_reduce_perf" in found["reason"]
    assert looks(nodes, state.job) == dict.fromkeys(state.nodes, 1)


def test_what_a_look_finds_before_a_probe_stands_in_the_jobs_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = Folder("t-1")
    probe = _ProbeFolder(job)
    Path(probe.path).mkdir(parents=True)
    probe.event("health", node="node000000", mode="warn", findings=[{"level": "warning"}])
    assert [Path(one.path, "events.jsonl").exists() for one in (job, probe)] == [True, False]
