"""Ranks in containers, of every runtime that can run here: what they see, how they end, and what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from launch.client.debug import debug_job
from launch.client.events import JobState
from launch.job.spec import JobSpec, Kind
from launch.remote.base import processes
from tests.environments.in_containers import ContainerNodes, assert_nothing_left, runners_of
from tests.launch.standin import lines, remarks, shell, start, until

pytestmark = [
    pytest.mark.environments,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("nothing_runs_on", "no_container_is_left"),
]
KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
SEE = """
import json, os, socket
seen = dict(os.environ)
seen["-folder"], seen["-host"] = os.getcwd(), socket.gethostname()
seen["-shm"] = os.statvfs("/dev/shm").f_blocks
seen["-uid"], seen["-groups"] = os.getuid(), sorted({*os.getgroups(), os.getgid()})
seen["-addresses"] = socket.gethostbyname("localhost")
import resource
seen["-limits"] = [resource.getrlimit(n) for n in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_STACK)]
print(json.dumps(seen))
"""
SLEEP = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; (setsid sleep 1000 &); echo ready; while :; do sleep 0.05; done"
NAMELESS = f"env -i sleep 1000 & {STUBBORN}"
"""With a process that has lost the job's variables: a runner ends it, a sweep without the runner may not."""


def ready(job: object, count: int) -> None:
    until(lambda: sum(text == "ready" for _, text in lines(job.events)) == count, 120)  # type: ignore[attr-defined]


class TestWhatRanksSee:
    @pytest.mark.for_every_change
    @KINDS
    def test_the_variables_of_a_bare_rank_and_the_images_over_the_nodes(
        self, nodes: ContainerNodes, kind: Kind
    ) -> None:
        nodes.code("see.py", SEE)
        nodes.env.update(LANG="C", LD_LIBRARY_PATH="/of/the/node", FROM_NODE="yes")
        spec = JobSpec("t", kind, ("see.py",), snapshot="code", env={"MINE": "two\nlines $HOME 'ü'"})
        inside = {rank: json.loads(text) for rank, text in lines(nodes.run(spec)[1])}
        nodes.in_image = False
        bare = {rank: json.loads(text) for rank, text in lines(nodes.run(spec)[1])}
        assert inside.keys() == bare.keys() == {0, 1, 2}
        for rank, seen in inside.items():
            other = _without_ids(seen)
            expected = _without_ids(bare[rank])
            del expected["LD_LIBRARY_PATH"]  # of the node's own libraries
            folder = nodes.folder / nodes.nodes[rank].name / ".ranklift/jobs"
            assert str(other.pop("PATH")).replace(str(folder), "") == "/opt/tool/bin:/usr/bin:/bin:/JOB/bin"
            assert (other.pop("GREETING"), other.pop("PYTHONNOUSERSITE")) == ("from the image", "1")
            if nodes.runtime == "docker":
                assert other.pop("HOSTNAME") == seen["-host"]  # Docker sets it always
            del expected["PATH"]
            assert other == {**expected, "LANG": "C.UTF-8"}

    def test_what_ranks_write_is_where_bare_ones_write_it(self, nodes: ContainerNodes) -> None:
        line = 'tool; echo out > "$RANKLIFT_OUTPUT_DIR/result"; echo work > made; '
        line += "echo tmp > /tmp/$RANKLIFT_JOB_ID"
        state, events = nodes.run(shell(line))
        assert sorted(lines(events)) == [(rank, "a tool of the image") for rank in range(3)]
        for place in range(3):
            folder = nodes.job_folder(place, state.job)
            assert (folder / f"logs/rank-{place}.log").read_text() == "a tool of the image\n"
            assert [path.read_text() for path in folder.glob("outputs/**/result")] == ["out\n"]
            assert (folder / "work/made").read_text() == "work\n"
        shared = Path("/tmp", state.job)
        assert shared.read_text() == "tmp\n"
        shared.unlink()

    def test_the_setup_line_and_the_module_check_run_in_the_image(self, nodes: ContainerNodes) -> None:
        nodes.code("t.py", "import mpi4py\nprint(open('by-setup').read())\n")
        spec = JobSpec(
            "t", "pytorch", ("t.py",), snapshot="code", setup="tool > by-setup", requires=("mpi4py",)
        )
        assert {text for _, text in lines(nodes.run(spec)[1])} == {"a tool of the image", ""}
        state, _ = nodes.run(JobSpec("t", "pytorch", ("t.py",), snapshot="code", requires=("torch",)))
        assert "python3 has no module torch" in state.reason

    def test_a_chief_and_workers_of_tensorflow(self, nodes: ContainerNodes) -> None:
        _, events = nodes.run(shell("echo $TF_CONFIG", "tensorflow", workers=2, chief=True))
        tasks = [json.loads(text)["task"] for _, text in sorted(lines(events))]
        types = [(task["type"], task["index"]) for task in tasks]
        assert types == [("chief", 0), ("worker", 0), ("worker", 1)]


def _without_ids(seen: dict[str, object]) -> dict[str, object]:
    """Without what differs from one job to the next, and from one process of MPI to the next."""
    job = str(seen["RANKLIFT_JOB_ID"])
    ports = ("MASTER_PORT", "AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_PYTORCH_INIT_METHOD")
    changing = ("PMIX_", "OMPI_", "PRTE_", "HWLOC", "PMI_", "_", *ports)
    kept = {name: value for name, value in seen.items() if not name.startswith(changing)}
    return {n: v.replace(job, "JOB") if isinstance(v, str) else v for n, v in kept.items()}


class TestEnds:
    @KINDS
    @pytest.mark.parametrize("status", [3, 125, 126, 127])
    def test_the_exit_status_is_the_ranks(self, nodes: ContainerNodes, kind: Kind, status: int) -> None:
        state = _failed(nodes, shell(f"test $RANK != 1 || exit {status}; sleep 1000", kind))
        assert (state.exit_status, state.failure is not None and state.failure.rank) == (status, 1)
        assert state.failure is not None
        assert not [line for line in state.failure.last_lines if "did not start" in line]

    def test_a_signal_is_the_ranks(self, nodes: ContainerNodes) -> None:
        state = _failed(nodes, shell("test $RANK != 1 || kill -SEGV $$; sleep 1000"))
        assert (state.exit_status, state.failure is not None and state.failure.rank) == (139, 1)

    def test_a_command_that_the_image_lacks(self, nodes: ContainerNodes) -> None:
        state = _failed(nodes, JobSpec("t", "pytorch", ("no-such-command",), snapshot="code"))
        assert state.exit_status == 127
        assert state.failure is not None
        assert any("no-such-command" in line for line in state.failure.last_lines)

    @pytest.mark.for_every_change
    @KINDS
    def test_a_cancel_reaches_handlers_and_then_ends_what_ignores_it(
        self, nodes: ContainerNodes, kind: Kind
    ) -> None:
        job = start(nodes, shell(f"if [ $RANK = 1 ]; then {NAMELESS}; else {SLEEP}; fi", kind, grace_s=2.0))
        ready(job, 3)
        assert nodes.cancel(job.job).state == "CANCELLED"
        job.thread.join(30)
        messages = [text for rank, text in lines(job.events) if rank != 1 and text in ("ready", "told")]
        assert sorted(messages) == ["ready", "ready", "told", "told"]
        assert_nothing_left(job.job)

    def test_a_time_limit(self, nodes: ContainerNodes) -> None:
        state = _failed(nodes, shell(NAMELESS, timeout_s=4.0, grace_s=1.0))
        assert state.exit_status == 124
        assert_nothing_left(state.job)

    @KINDS
    def test_a_failed_rank_ends_the_others(self, nodes: ContainerNodes, kind: Kind) -> None:
        state = _failed(nodes, shell(f"if [ $RANK = 2 ]; then exit 7; fi; {NAMELESS}", kind, grace_s=1.0))
        assert state.exit_status == 7
        assert_nothing_left(state.job)

    @pytest.mark.for_every_change
    @KINDS
    def test_a_killed_runner(self, nodes: ContainerNodes, kind: Kind) -> None:
        job = start(nodes, shell(STUBBORN, kind, grace_s=1.0))
        ready(job, 3)
        os.kill(runners_of(job.job)[0], signal.SIGKILL)
        job.thread.join(60)
        assert not job.thread.is_alive()
        assert_nothing_left(job.job)

    @KINDS
    def test_a_killed_supervisor(self, nodes: ContainerNodes, kind: Kind) -> None:
        job = start(nodes, shell(STUBBORN, kind, grace_s=1.0))
        ready(job, 3)
        os.kill(_supervisor(nodes, job.job), signal.SIGKILL)
        _wait_for_runners(job.job)
        assert_nothing_left(job.job)

    @KINDS
    def test_a_killed_supervisor_with_all_runners(self, nodes: ContainerNodes, kind: Kind) -> None:
        job = start(nodes, shell(NAMELESS, kind, grace_s=1.0))
        ready(job, 3)
        for pid in (_supervisor(nodes, job.job), *runners_of(job.job)):
            os.kill(pid, signal.SIGKILL)
        _wait_for_runners(job.job)
        assert_nothing_left(job.job)


def _supervisor(nodes: ContainerNodes, job: str) -> int:
    state = json.loads((nodes.job_folder(0, job) / "state.json").read_text())
    return int(state["supervisor"]["pid"])


def _wait_for_runners(job: str) -> None:
    """Return once the runners have ended, their guardians too: they remove containers last."""
    until(lambda: not processes.runners_of_job(job), 60)


def _failed(nodes: ContainerNodes, spec: JobSpec) -> JobState:
    state, _ = nodes.run(spec)
    assert state.state == "FAILED"
    return state


class TestHangs:
    SCRIPT = """
import os, time
class World:
    barrier = staticmethod(time.sleep)
def main():
    print("ready", flush=True)
    if os.environ["RANK"] == "1":
        load_batch()
    World().barrier(3600)
def load_batch():
    time.sleep(3600)
main()
"""

    @KINDS
    def test_the_stacks_of_ranks_in_the_image_are_read(self, nodes: ContainerNodes, kind: Kind) -> None:
        nodes.code("hang.py", self.SCRIPT)
        for node in nodes.nodes:
            (nodes.folder / node.name / "py-spy").symlink_to(Path(sys.executable).parent / "py-spy")
        job = start(nodes, JobSpec("t", kind, ("hang.py",), processes_per_node=1, snapshot="code"))
        ready(job, 3)
        found = debug_job(job.job, nodes.head, remote="hash", py_spy="py-spy")
        nodes.cancel(job.job)
        assert (found.kind, found.ranks_at_fault, found.notes) == ("missing-rank", (1,), ()), found
        assert found.verdict == (
            "2 ranks wait in barrier at hang.py:9; rank 1 on node000001 is in load_batch at hang.py:11"
        )


class TestMpi:
    ALLREDUCE = """
from mpi4py import MPI
import array, os
world = MPI.COMM_WORLD
part = array.array("d", [world.rank + 1.0]) * 1000000
total = array.array("d", [0.0]) * 1000000
world.Allreduce(part, total)
print(world.size, total[0], total[-1])
"""

    def test_mpi4py_sums_over_the_ranks_of_a_node(self, nodes: ContainerNodes) -> None:
        nodes.code("sum.py", self.ALLREDUCE)
        nodes.nodes = nodes.nodes[2:]
        _, events = nodes.run(JobSpec("t", "mpi", ("sum.py",), processes_per_node=None, snapshot="code"))
        assert sorted(lines(events)) == [(rank, "3 6.0 6.0") for rank in range(3)], remarks(events)

    def test_an_image_with_another_mpi_is_refused_before_any_rank_starts(self, nodes: ContainerNodes) -> None:
        nodes.set_variables(PATH="/opt/other-mpi/bin:/usr/bin:/bin")
        state, events = nodes.run(shell("echo started", "mpi"))
        assert "the image debian:12 has Open MPI 5.0.3, the node's mpirun is Open MPI 4." in state.reason
        assert lines(events) == []
