"""Jobs on stand-in nodes, from submit to the end: what ranks get, and how each kind of end is told."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.client.events import LogLine
from launch.errors import JobFailed
from launch.job.spec import JobSpec, Kind
from launch.remote.mpi.openmpi import OpenMpi
from tests.launch.standin import Nodes, left_of, lines, open_mpi, remarks, shell, start, until
from tests.launch.whole_jobs.test_restarting import mpirun_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

SHOW = """
import json, os, sys
names = sys.argv[1:]
print(json.dumps({name: os.environ.get(name) for name in names}))
"""
NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
AWKWARD = ["a b", "it's", '"', "$HOME", "$(id)", "`id`", "two\nlines", "ünïcödé 日本", "", "*", "\\n", "a;b"]


@pytest.fixture
def nodes(nodes: Nodes) -> Nodes:
    nodes.code("show.py", SHOW)
    return nodes


@pytest.fixture
def open_files() -> Iterator[int]:
    """How many files the nodes' processes may open: more than mpirun needs."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4000, most))
    yield 4000
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])


class TestWhatRanksGet:
    @KINDS
    def test_ranks_are_numbered_node_by_node_over_uneven_slots(self, nodes: Nodes, kind: Kind) -> None:
        spec = JobSpec("t", kind, ("show.py", *NUMBERS), processes_per_node=None, snapshot="code")
        state, events = nodes.run(spec)
        assert state.state == "SUCCEEDED"
        seen = {rank: tuple(json.loads(text)[name] for name in NUMBERS) for rank, text in lines(events)}
        assert seen == {
            0: ("0", "0", "0", "2", "6"),
            1: ("1", "1", "0", "2", "6"),
            2: ("2", "0", "1", "1", "6"),
            3: ("3", "0", "2", "3", "6"),
            4: ("4", "1", "2", "3", "6"),
            5: ("5", "2", "2", "3", "6"),
        }
        by_node = {e.rank: e.node for e in events if isinstance(e, LogLine)}
        assert [by_node[rank] for rank in range(6)] == [nodes.nodes[i].name for i in (0, 0, 1, 2, 2, 2)]

    def test_open_mpis_own_numbers_agree_with_ours(self, nodes: Nodes) -> None:
        own = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
        ours = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        spec = JobSpec("t", "mpi", ("show.py", *own, *ours), processes_per_node=None, snapshot="code")
        for _, text in lines(nodes.run(spec)[1]):
            result = json.loads(text)
            assert [result[name] for name in own] == [result[name] for name in ours]

    @KINDS
    def test_ranks_may_open_as_many_files_as_their_nodes_allow(
        self, nodes: Nodes, kind: Kind, open_files: int
    ) -> None:
        _, events = nodes.run(shell("ulimit -S -n; env | grep OPEN_FILES", kind))
        assert sorted(lines(events)) == [(rank, f"{open_files}") for rank in range(3)]

    def test_mpirun_itself_may_open_no_more_files_than_it_needs(self, nodes: Nodes, open_files: int) -> None:
        started = start(nodes, shell("echo up; sleep 300", "mpi"))
        until(lambda: len(lines(started.events)) == 3)
        limits = Path(f"/proc/{mpirun_of(started)}/limits").read_text()
        nodes.cancel(started.job)
        needed = OpenMpi().open_files(open_mpi().name, len(nodes.nodes), 1) or open_files
        assert re.search(rf"^Max open files +{needed} ", limits, re.MULTILINE)

    def test_pytorch_ranks_see_nothing_of_mpi(self, nodes: Nodes) -> None:
        nodes.env.update(OMPI_COMM_WORLD_SIZE="1", PMIX_RANK="0", PMI_SIZE="1")
        _, events = nodes.run(shell("env | grep -E '^(OMPI|PMIX|PMI)_' || echo none"))
        assert {text for _, text in lines(events)} == {"none"}

    @KINDS
    def test_no_rank_sees_the_launchers_secret(self, nodes: Nodes, kind: Kind) -> None:
        _, events = nodes.run(shell("env | grep RANKLIFT_TOKEN || echo none", kind))
        assert {text for _, text in lines(events)} == {"none"}

    @KINDS
    def test_awkward_arguments_and_values_arrive_as_they_were(self, nodes: Nodes, kind: Kind) -> None:
        nodes.code(
            "echo.py", "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['AWKWARD']]))"
        )
        spec = JobSpec("t", kind, ("echo.py", *AWKWARD), snapshot="code", env={"AWKWARD": "\n".join(AWKWARD)})
        state, events = nodes.run(spec)
        assert state.state == "SUCCEEDED"
        result = [json.loads(text) for _, text in lines(events)]
        assert result == [[AWKWARD, "\n".join(AWKWARD)]] * 3

    def test_arguments_may_name_the_launchers_variables_per_process(self, nodes: Nodes) -> None:
        spec = JobSpec(
            "t", "pytorch", ("echo", "$LOCAL_RANK", "--of=${WORLD_SIZE}", "$MINE"), processes_per_node=None
        )
        assert sorted(text for _, text in lines(nodes.run(spec)[1])) == sorted(
            f"{local} --of=6 $MINE" for local in (0, 1, 0, 0, 1, 2)
        )

    def test_a_per_node_command_is_a_shell_line_of_its_own(self, nodes: Nodes) -> None:
        line = """echo "$NODE_RANK  $MASTER_PORT" '$RANK' "${RANK-unset}" "${LOCAL_RANK-unset}" $WORLD_SIZE"""
        _, events = nodes.run(JobSpec("t", "pytorch", (line,), shell=True, per_node=True))
        assert sorted(lines(events)) == [(i, f"{i}  6105 $RANK unset unset 3") for i in range(3)]

    @KINDS
    def test_the_working_directory_is_the_jobs_own_and_outputs_leads_to_the_jobs(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        state, events = nodes.run(shell('pwd; [ outputs -ef "$RANKLIFT_OUTPUT_DIR" ] && echo same', kind))
        result = dict.fromkeys(text for _, text in lines(events))
        assert set(result) == {
            *(f"{nodes.folder}/{node.name}/.ranklift/jobs/{state.job}/work" for node in nodes.nodes),
            "same",
        }
        assert state.exit_status == 0

    def test_the_user_wins_over_the_sizes_settings(self, nodes: Nodes) -> None:
        spec = JobSpec(
            "t", "pytorch", ("show.py", "NCCL_SOCKET_IFNAME", "CUDA_DEVICE_ORDER", "NCCL_TOPO_FILE"),
            snapshot="code", env={"NCCL_SOCKET_IFNAME": "ib0"},
        )  # fmt: skip
        assert json.loads(lines(nodes.run(spec)[1])[0][1]) == {
            "NCCL_SOCKET_IFNAME": "ib0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "NCCL_TOPO_FILE": None,  # there is no such file on this machine
        }

    def test_master_port_moves_when_taken_and_everything_follows(self, nodes: Nodes) -> None:
        import socket

        with socket.socket() as taken:
            taken.bind(("", 0))
            port = taken.getsockname()[1]
            spec = JobSpec(
                "t",
                "pytorch",
                ("show.py", "MASTER_PORT", "AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_PYTORCH_INIT_METHOD"),
                snapshot="code",
                port=port,
            )
            state, events = nodes.run(spec)
        result = json.loads(lines(events)[0][1])
        assert state.port is not None
        assert state.port > port
        assert result == {
            "MASTER_PORT": str(state.port),
            "AZ_BATCH_MASTER_NODE": f"127.0.0.1:{state.port}",
            "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"tcp://127.0.0.1:{state.port}",
        }


class TestHowAJobEnds:
    @KINDS
    @pytest.mark.parametrize(
        ("end", "status"),
        [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
        ids=["3", "KILL", "TERM"],
    )
    def test_the_first_failing_rank_is_named_with_its_last_lines_and_status(
        self, nodes: Nodes, kind: Kind, end: str, status: int
    ) -> None:
        script = f"if [ $RANK = 1 ]; then echo dying; {end}; fi; sleep 60"
        begun = time.monotonic()
        state, _ = nodes.run(shell(script, kind))
        assert time.monotonic() - begun < 7
        assert (state.state, state.exit_status) == ("FAILED", status)
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node) == (1, "node000001")
        assert state.failure.last_lines == ("dying",)
        assert left_of(state.job) == []
        with pytest.raises(JobFailed) as failed:
            state.check()
        assert failed.value.exit_status == status

    @KINDS
    def test_ranks_that_ignore_sigterm_end_within_five_seconds_of_the_failure(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        script = 'trap "" TERM; if [ $RANK = 1 ]; then date +%s.%N; exit 7; fi; while :; do sleep 1; done'
        state, events = nodes.run(shell(script, kind))
        failed_at = next(e.time for e in events if isinstance(e, LogLine) and e.rank == 1)
        assert state.exit_status == 7
        assert state.ended is not None
        assert (state.ended - failed_at).total_seconds() < 5
        assert left_of(state.job) == []

    @KINDS
    def test_a_double_forked_daemon_does_not_outlive_its_job(self, nodes: Nodes, kind: Kind) -> None:
        state, _ = nodes.run(shell("(setsid setsid sleep 300 >/dev/null 2>&1 &) ; echo left", kind))
        assert state.state == "SUCCEEDED"
        assert left_of(state.job) == []

    def test_the_job_succeeds_only_when_the_last_rank_has(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell("[ $RANK = 0 ] && exit 0; sleep 0.7; [ $RANK = 2 ] && exit 5; exit 0"))
        assert (state.state, state.exit_status) == ("FAILED", 5)

    def test_a_command_that_is_not_there(self, nodes: Nodes) -> None:
        state, _ = nodes.run(JobSpec("t", "pytorch", ("no-such-command",)))
        assert (state.exit_status, state.failure and state.failure.last_lines) == (
            127,
            ("cannot start no-such-command: No such file or directory",),
        )

    @KINDS
    def test_a_snapshot_that_was_not_pushed(self, nodes: Nodes, kind: Kind) -> None:
        state, _ = nodes.run(JobSpec("t", kind, ("true",), snapshot="0123"))
        assert state.state == "FAILED"
        assert "0123 is not on this node: push again" in state.reason

    def test_a_node_that_ssh_cannot_reach_is_named_with_sshs_words(self, nodes: Nodes) -> None:
        nodes.down(2)
        state, _ = nodes.run(shell("sleep 60"))
        assert state.state == "FAILED"
        assert state.reason == (
            "no rank was started: node000002: ssh: connect to host node000002 port 22: No route to host"
        )
        assert left_of(state.job) == []

    def test_a_node_that_mpirun_cannot_reach_is_named_too(self, nodes: Nodes) -> None:
        nodes.down(2)
        state, events = nodes.run(shell("sleep 60", "mpi"))
        assert state.state == "FAILED"
        assert state.reason.startswith("no rank was started: node000002: ssh: connect to host node000002")
        assert "No route to host" in remarks(events)

    def test_no_mpi_on_the_head(self, nodes: Nodes) -> None:
        for tool in ("sh", "bash", "python3", "true"):
            (nodes.bin / tool).symlink_to(f"/usr/bin/{tool}")
        nodes.env["PATH"] = str(nodes.bin)
        state, _ = nodes.run(JobSpec("t", "mpi", ("true",)))
        assert state.state == "FAILED"
        assert "node000000, the head: no mpirun was found" in state.reason

    def test_another_mpi_on_the_head_is_named(self, nodes: Nodes) -> None:
        state, _ = nodes.run(JobSpec("t", "mpi", ("true",), mpi="intelmpi"))
        assert state.state == "FAILED"
        assert f"mpirun is {open_mpi().title}; Intel MPI is required" in state.reason

    def test_the_time_limit(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell("sleep 60", timeout_s=0.5))
        assert (state.state, state.exit_status) == ("FAILED", 124)
        assert left_of(state.job) == []

    def test_a_killed_runner_is_noticed_and_its_ranks_go_with_it(self, nodes: Nodes) -> None:
        started = start(nodes, shell("(setsid sleep 300 &); echo up; sleep 300"))
        until(lambda: len(lines(started.events)) == 3)
        exits = nodes.folder / "node000001/.ranklift/jobs" / started.job / "exits.jsonl"
        holder = next(int(entry.name) for entry in Path("/proc").glob("[0-9]*") if holds(entry, exits))
        os.kill(holder, signal.SIGKILL)
        state = started.end()
        assert state.state == "FAILED"
        assert "node000001 (rank 1) is lost" in state.reason
        assert left_of(started.job) == []


def holds(process: Path, file: Path) -> bool:
    """Whether a process has the file open."""
    try:
        return any(descriptor.readlink() == file for descriptor in (process / "fd").iterdir())
    except OSError:
        return False
