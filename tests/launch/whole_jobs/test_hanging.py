"""Jobs that hang while PyTorch's flight recorder is on, which prints when it is asked."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from launch.client import submit
from launch.client.debug import debug_job
from launch.client.events import LogLine
from launch.job.spec import JobSpec
from launch.remote.base import timing
from launch.remote.node import torch_build
from tests.launch.fake_recorder import LINE, write_fake
from tests.launch.standin import REMOTE, Nodes, Started, shell, until

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("nothing_runs_on")]

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun\n"


def with_torch(nodes: Nodes, tmp_path: Path, version: str = "2.11.0+cu130") -> None:
    """Gives each node a driver, a script whose rank 1 hangs, and py-spy."""
    (nodes.bin / "py-spy").symlink_to(Path(sys.executable).parent / "py-spy")
    driver = tmp_path / "version"
    driver.write_text(DRIVER)
    for node in nodes.nodes:
        remote = nodes.folder / node.name / ".ranklift/remote/hash"
        remote.unlink()
        shutil.copytree(REMOTE, remote, ignore=shutil.ignore_patterns("__pycache__"))
        module = remote / "node/torch_build.py"
        module.write_text(module.read_text().replace(torch_build.DRIVER, str(driver)))
        write_fake(nodes.folder / node.name / ".ranklift/snapshots/code", version)


def hanging(env: dict[str, str], **options: Any) -> JobSpec:
    spec = shell("", env={"PYTHONPATH": "site-packages", **env}, requires=("torch",), **options)
    return replace(spec, command=("train.py",), python=sys.executable)


class Hanging:
    """A job that was launched, and runs on."""

    def __init__(self, nodes: Nodes, spec: JobSpec) -> None:
        self.nodes, made = nodes, nodes.plan(spec)
        self.job = made.id
        submit.submit(made, nodes.head)
        until(lambda: all("trains" in self.log(rank) for rank in range(3)), 60)

    def folder(self, rank: int) -> Path:
        """The job's folder on the rank's node."""
        return self.nodes.folder / self.nodes.nodes[rank].name / ".ranklift/jobs" / self.job

    def log(self, rank: int) -> str:
        path = self.folder(rank) / f"logs/rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def has_dumped(self, rank: int) -> bool:
        return LINE.format(rank=rank) in self.log(rank)

    def has_no_pipe(self, rank: int) -> bool:
        return not list(self.folder(rank).glob("recorder/*.pipe"))


def test_a_hanging_rank_is_named_with_the_recorder_that_is_on_by_itself(nodes: Nodes, tmp_path: Path) -> None:
    with_torch(nodes, tmp_path)
    hung = Hanging(nodes, hanging({}))
    for rank in range(3):
        until((hung.folder(rank) / f"recorder/{rank}.pipe").exists)
    until(lambda: [one.state for one in nodes.jobs()] == ["RUNNING"])
    report = debug_job(hung.job, nodes.head, remote="hash", py_spy="")
    for rank in range(3):  # each was asked, and printed so
        until(partial(hung.has_dumped, rank))
    assert (report.kind, report.ranks_at_fault) == ("missing-rank", (1,))
    assert report.verdict == (
        "2 ranks wait in all_reduce #201 at train.py:13; rank 1 on node000001 is in load_next_batch at "
        "train.py:6"
    )
    assert report.facts["printed"] == []
    collectives = {
        one["rank"]: one["collective"][0]["sequence"]
        for parts in report.facts["nodes"].values()
        for one in parts[0]["ranks"]
    }
    assert collectives == {0: 201, 1: 200, 2: 201}
    assert 4 < report.seconds < timing.DEBUG_ANSWER_S
    nodes.cancel(hung.job)
    for rank in range(3):
        until(partial(hung.has_no_pipe, rank))
        assert (hung.folder(rank) / f"recorder/{rank}").stat().st_size > 0


def test_a_job_that_hangs_is_ended_though_pytorch_prints_when_it_is_asked(
    nodes: Nodes, tmp_path: Path
) -> None:
    with_torch(nodes, tmp_path)
    begun = time.monotonic()
    state, _ = nodes.run(hanging({}, hang_after_s=6.0))
    assert (state.state, state.exit_status) == ("FAILED", 124)
    assert "2 ranks wait in all_reduce #201 at train.py:13; rank 1 on node000001 is in" in state.reason
    assert state.failure is not None
    assert (state.failure.rank, state.failure.node) == (1, "node000001")
    assert time.monotonic() - begun < 60


def test_what_pytorch_prints_when_it_is_asked_ends_no_silence_in_samples(
    nodes: Nodes, tmp_path: Path
) -> None:
    with_torch(nodes, tmp_path)
    hung = Hanging(nodes, hanging({"DUMP_TAKES": "0"}))
    time.sleep(3.0)
    debug_job(hung.job, nodes.head, remote="hash", py_spy="")
    until(lambda: LINE.format(rank=0) in hung.log(0))
    written = time.time()
    samples = nodes.folder / f"node000000/.ranklift/jobs/{hung.job}/samples.json"
    until(lambda: json.loads(samples.read_text())["ranks"]["0"]["time"] > written)
    rank = json.loads(samples.read_text())["ranks"]["0"]
    assert rank["time"] - rank["silent_since"] > 3.0
    nodes.cancel(hung.job)


def test_a_recorder_of_the_users_own_is_left_as_it_is(nodes: Nodes, tmp_path: Path) -> None:
    with_torch(nodes, tmp_path)
    own = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/own_",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/own_",
    }
    hung = Hanging(nodes, hanging(own))
    until(lambda: all((tmp_path / f"own_{rank}.pipe").exists() for rank in range(3)))
    report = debug_job(hung.job, nodes.head, remote="hash", py_spy="")
    assert (report.kind, report.ranks_at_fault) == ("missing-rank", (1,))
    assert "all_reduce #201" in report.verdict
    nodes.cancel(hung.job)
    assert (tmp_path / "own_0.pipe").exists()


@pytest.mark.parametrize("how", ["option", "version", "no pipe"])
def test_ranks_start_without_a_recorder(nodes: Nodes, tmp_path: Path, how: str) -> None:
    """Not wanted, too old a PyTorch, or no pipe can be made, with which PyTorch would abort."""
    with_torch(nodes, tmp_path, "2.7.1" if how == "version" else "2.11.0")
    if how == "no pipe":
        for node in nodes.nodes:
            code = nodes.folder / node.name / ".ranklift/snapshots/code/site-packages"
            (code / "sitecustomize.py").write_text(NO_PIPES)
    job = Hanging(nodes, hanging({}, flight_recorder=how != "option"))
    assert not list(job.folder(0).glob("recorder/*.pipe"))
    begun = time.monotonic()
    report = debug_job(job.job, nodes.head, remote="hash", py_spy="")
    assert report.ranks_at_fault == (1,)
    assert time.monotonic() - begun < timing.DEBUG_ANSWER_S - timing.DEBUG_RECORD_S
    state = nodes.cancel(job.job)
    assert state.state == "CANCELLED"
    stream = b"".join(one.read_bytes() for one in job.folder(0).glob("stream.*"))
    words = b"node000000: ranks have no flight recorder: no pipe: [Errno 1] Operation not permitted"
    assert (words.partition(b": ")[2] in stream) is (how == "no pipe")


NO_PIPES = """\
import os
def mkfifo(*_, **__):
    raise PermissionError(1, "Operation not permitted")
os.mkfifo = mkfifo
"""


COMPUTES = {
    "in one line": "sum(range(1 << 50))",
    "in a program": "subprocess.run(['sh', '-c', 'while :; do :; done'])",
    "without Python": "os.execvp('sh', ['sh', '-c', 'while :; do :; done'])",
}


@pytest.mark.parametrize("how", COMPUTES)
def test_a_job_that_computes_in_silence_goes_on(nodes: Nodes, how: str) -> None:
    (nodes.bin / "py-spy").symlink_to(Path(sys.executable).parent / "py-spy")
    line = shlex.join(["exec", sys.executable, "-c", f"import os, subprocess; {COMPUTES[how]}"])
    started = Started(nodes, shell(line, hang_after_s=2.0))

    def printed() -> str:
        return b"".join(one.data for one in started.events if isinstance(one, LogLine)).decode()

    until(lambda: "no rank has printed anything for " in printed(), 60)
    assert ("the job goes on" if how == "without Python" else "slow and not stuck") in printed()
    nodes.cancel(started.job)
    assert started.end().state == "CANCELLED"
