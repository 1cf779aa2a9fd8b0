"""Jobs on stand-in nodes, from submit to the end: what ranks get, and how each kind of end is told."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import client
from launch.errors import GiveUpError, InputError, JobFailed
from launch.events import Event, JobState, LogLine, StateChange
from launch.spec import JobSpec, Kind
from tests.launch.standin import Nodes, left_of, until

pytestmark = pytest.mark.timeout(120)

SHOW = """
import json, os, sys
names = sys.argv[1:]
print(json.dumps({name: os.environ.get(name) for name in names}))
"""
NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
AWKWARD = ["a b", "it's", '"', "$HOME", "$(id)", "`id`", "two\nlines", "ünïcödé 日本", "", "*", "\\n", "a;b"]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path, [2, 1, 3])
    made.code("show.py", SHOW)
    return made


def lines(events: list[Event]) -> list[tuple[int, str]]:
    """What ranks wrote; mpirun's own remarks left out."""
    return [(e.rank, e.data.decode()) for e in events if isinstance(e, LogLine) and e.rank is not None]


def remarks(events: list[Event]) -> str:
    """What the launcher wrote."""
    return "\n".join(e.data.decode() for e in events if isinstance(e, LogLine) and e.rank is None)


def states(events: list[Event]) -> list[str]:
    return [event.state.state for event in events if isinstance(event, StateChange)]


def shell(script: str, kind: Kind = "pytorch", **options: object) -> JobSpec:
    settings: dict[str, object] = {"processes_per_node": 1, "snapshot": "code", **options}
    return JobSpec(name="t", kind=kind, command=("sh", "-c", script), **settings)  # type: ignore[arg-type]


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
            told = json.loads(text)
            assert [told[name] for name in own] == [told[name] for name in ours]

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
        told = [json.loads(text) for _, text in lines(events)]
        assert told == [[AWKWARD, "\n".join(AWKWARD)]] * 3

    def test_arguments_may_name_the_launchers_variables_per_process(self, nodes: Nodes) -> None:
        spec = JobSpec(
            "t", "pytorch", ("echo", "$LOCAL_RANK", "--of=${WORLD_SIZE}", "$MINE"), processes_per_node=None
        )
        assert sorted(text for _, text in lines(nodes.run(spec)[1])) == sorted(
            f"{local} --of=6 $MINE" for local in (0, 1, 0, 0, 1, 2)
        )

    def test_a_per_node_command_is_a_shell_line_of_its_own(self, nodes: Nodes) -> None:
        line = """echo "$NODE_RANK  $MASTER_PORT" '$RANK' "${RANK-unset}" "${LOCAL_RANK-unset}" $WORLD_SIZE"""
        _, events = nodes.run(JobSpec("t", "pytorch", (line,), per_node=True))
        assert sorted(lines(events)) == [(i, f"{i}  6105 $RANK unset unset 3") for i in range(3)]

    @KINDS
    def test_the_working_directory_is_the_snapshot_and_outputs_leads_to_the_jobs(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        state, events = nodes.run(shell('pwd; [ outputs -ef "$RANKLIFT_OUTPUT_DIR" ] && echo same', kind))
        told = dict.fromkeys(text for _, text in lines(events))
        assert set(told) == {
            *(f"{nodes.folder}/{node.name}/.ranklift/snapshots/code" for node in nodes.nodes),
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
                "t", "pytorch", ("show.py", "MASTER_PORT", "AZ_BATCH_MASTER_NODE"), snapshot="code", port=port
            )
            state, events = nodes.run(spec)
        told = json.loads(lines(events)[0][1])
        assert state.port is not None
        assert state.port > port
        assert told == {"MASTER_PORT": str(state.port), "AZ_BATCH_MASTER_NODE": f"127.0.0.1:{state.port}"}


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
        assert "node000002 (rank 2) is lost: ssh: connect to host node000002 port 22" in state.reason
        assert left_of(state.job) == []

    def test_mpirun_that_cannot_reach_a_node_speaks_for_itself(self, nodes: Nodes) -> None:
        nodes.down(2)
        state, events = nodes.run(shell("sleep 60", "mpi"))
        assert state.state == "FAILED"
        assert state.exit_status not in (0, None)
        assert "3 of 3 ranks never reported" in state.reason
        assert "No route to host" in remarks(events)

    def test_no_mpi_on_the_head(self, nodes: Nodes) -> None:
        for tool in ("sh", "bash", "python3", "true"):
            (nodes.bin / tool).symlink_to(f"/usr/bin/{tool}")
        nodes.env["PATH"] = str(nodes.bin)
        state, _ = nodes.run(JobSpec("t", "mpi", ("true",)))
        assert state.state == "FAILED"
        assert "no mpirun on the head" in state.reason

    def test_another_mpi_on_the_head_is_named(self, nodes: Nodes) -> None:
        (nodes.bin / "mpirun").write_text("#!/bin/sh\necho Intel MPI 2021.13\n")
        (nodes.bin / "mpirun").chmod(0o755)
        state, _ = nodes.run(JobSpec("t", "mpi", ("true",)))
        assert "'Intel MPI 2021.13': Open MPI 4 or 5 is needed" in state.reason

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


class TestBeingWatched:
    @KINDS
    def test_cancel_ends_ranks_that_ignore_sigterm_and_their_orphans(self, nodes: Nodes, kind: Kind) -> None:
        script = (
            'trap "" TERM; (setsid setsid sleep 300 >/dev/null 2>&1 &); echo up; while :; do sleep 1; done'
        )
        started = start(nodes, shell(script, kind, grace_s=0.5))
        until(lambda: len(lines(started.events)) == 3)
        state = client.cancel(started.job, nodes.head, remote="hash")
        assert (state.state, state.exit_status) == ("CANCELLED", 130)
        assert left_of(started.job) == []
        assert started.end().state == "CANCELLED"
        assert client.cancel(started.job, nodes.head, remote="hash") == state

    def test_a_job_goes_on_when_nobody_follows_and_can_be_followed_later(self, nodes: Nodes) -> None:
        made = nodes.plan(shell("echo one; sleep 0.5; echo two"))
        assert client.submit(made, nodes.head) == made.id
        events: list[Event] = []
        state = client.follow(made.id, nodes.head, events.append, remote="hash")
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == [(i, text) for i in range(3) for text in ("one", "two")]
        last: list[Event] = []
        client.follow(made.id, nodes.head, last.append, remote="hash", tail=2)
        assert [text for _, text in lines(last)] == [text for _, text in lines(events)[-2:]]

    def test_states_come_in_order_and_the_last_after_all_output(self, nodes: Nodes) -> None:
        _, events = nodes.run(shell("sleep 0.3; echo bye"))
        assert states(events) == ["STARTING", "RUNNING", "SUCCEEDED"]
        assert isinstance(events[-1], StateChange)

    def test_jobs_are_listed_oldest_first(self, nodes: Nodes) -> None:
        ids = [nodes.run(JobSpec(name, "pytorch", ("true",)))[0].job for name in ("b", "a")]
        assert [state.job for state in client.list_jobs(nodes.head, remote="hash")] == ids

    def test_a_supervisor_that_was_killed_leaves_a_lost_job_and_no_rank(self, nodes: Nodes) -> None:
        started = start(nodes, shell("echo up; sleep 300", grace_s=0.3))
        until(lambda: len(lines(started.events)) == 3)
        folder = nodes.folder / "node000000/.ranklift/jobs" / started.job
        os.kill(json.loads((folder / "state.json").read_text())["supervisor"]["pid"], signal.SIGKILL)
        assert started.end().state == "LOST"
        until(lambda: left_of(started.job) == [])

    def test_unknown_jobs_and_a_head_without_node_code(self, nodes: Nodes) -> None:
        with pytest.raises(InputError, match="there is no job nope"):
            client.follow("nope", nodes.head, print, remote="hash")
        with pytest.raises(InputError, match="there is no job nope"):
            client.cancel("nope", nodes.head, remote="hash")
        with pytest.raises(GiveUpError, match="push first"):
            client.list_jobs(nodes.head, remote="other")


class TestSharingNodes:
    def test_a_second_job_waits_for_the_slots_and_says_for_whom(self, nodes: Nodes) -> None:
        first = start(nodes, shell("echo up; sleep 1"))
        until(lambda: states(first.events)[-1:] == ["RUNNING"])
        state, events = nodes.run(shell("true"))
        assert states(events)[0] == "QUEUED"
        queued = next(e.state for e in events if isinstance(e, StateChange))
        assert queued.reason == f"waits for {first.job}"
        ended = first.end().ended
        assert ended is not None
        assert state.started is not None
        assert state.started >= ended

    def test_two_jobs_share_nodes_whose_slots_suffice_each_with_its_own_devices(self, tmp_path: Path) -> None:
        nodes = Nodes(tmp_path, [4])
        script = "echo $CUDA_VISIBLE_DEVICES $MASTER_PORT; sleep 2"
        first = start(nodes, shell(script, processes_per_node=2))
        until(lambda: lines(first.events))
        _, events = nodes.run(shell(script, processes_per_node=2))
        one, two = ({text for _, text in lines(e)}.pop().split() for e in (first.events, events))
        assert (one[0], two[0]) == ("0,1", "2,3")
        assert one[1] != two[1]
        ended, started = first.end().ended, events[0].state.started  # type: ignore[union-attr]
        assert ended is not None
        assert started is not None
        assert started < ended

    @KINDS
    def test_slots_that_a_job_with_another_head_holds_are_waited_for(self, nodes: Nodes, kind: Kind) -> None:
        slots = nodes.folder / "node000001/.ranklift/slots"
        slots.mkdir()
        with (slots / "0").open("w") as lock:
            lock.write("other-job")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            started = start(nodes, shell("echo ran", kind))
            until(lambda: "QUEUED" in states(started.events))
            held = next(
                e.state for e in started.events if isinstance(e, StateChange) and e.state.state == "QUEUED"
            )
        assert held.reason == "waits for other-job on node000001"
        assert started.end().state == "SUCCEEDED"

    def test_a_queued_job_can_be_cancelled(self, nodes: Nodes) -> None:
        first = start(nodes, shell("echo up; sleep 2"))
        until(lambda: lines(first.events))
        second = start(nodes, shell("true"))
        until(lambda: states(second.events) == ["QUEUED"])
        assert client.cancel(second.job, nodes.head, remote="hash").state == "CANCELLED"
        assert first.end().state == "SUCCEEDED"


class TestCollecting:
    def test_logs_outputs_and_records_of_every_node_nothing_overwritten(
        self, nodes: Nodes, tmp_path: Path
    ) -> None:
        script = 'echo "rank $RANK"; echo bad >&2; echo $RANK > "$RANKLIFT_OUTPUT_DIR/m ü.txt"'
        state, _ = nodes.run(shell(script, "mpi"))
        (tmp_path / "results" / state.job / "logs").mkdir(parents=True)
        (tmp_path / "results" / state.job / "logs/rank-1.log").write_text("mine")
        report = client.collect(state.job, nodes.head, tmp_path / "results", remote="hash")
        assert report.errors == {}
        found = {
            str(path.relative_to(report.folder)): path.read_text()
            for path in report.folder.rglob("*")
            if path.suffix in (".log", ".txt") and path.name != "supervisor.log"
        }
        assert found == {
            "logs/rank-0.log": "rank 0\nbad\n",
            "logs/rank-1.log": "mine",
            "logs/rank-2.log": "rank 2\nbad\n",
            **{f"outputs/node00000{i}/m ü.txt": f"{i}\n" for i in range(3)},
        }
        assert {"job.json", "state.json", "exits.jsonl", "events.jsonl"} <= {
            path.name for path in report.folder.iterdir()
        }

    def test_a_node_that_is_gone_is_named_and_the_rest_brought(self, nodes: Nodes, tmp_path: Path) -> None:
        state, _ = nodes.run(shell("echo hi"))
        nodes.down(1)
        report = client.collect(state.job, nodes.head, tmp_path / "results", remote="hash")
        assert list(report.errors) == ["node000001"]
        assert "No route to host" in str(report.errors["node000001"])
        assert sorted(p.name for p in (report.folder / "logs").iterdir()) == ["rank-0.log", "rank-2.log"]


class Started:
    """A job that runs while the test goes on."""

    def __init__(self, nodes: Nodes, spec: JobSpec) -> None:
        self.events: list[Event] = []
        made = nodes.plan(spec)
        self.job = made.id
        self._state: JobState | None = None

        def run() -> None:
            self._state = client.submit_and_follow(made, nodes.head, self.events.append)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def end(self) -> JobState:
        self.thread.join(30)
        assert self._state is not None
        return self._state


RUNNING: list[Started] = []


def start(nodes: Nodes, spec: JobSpec) -> Started:
    RUNNING.append(Started(nodes, spec))
    return RUNNING[-1]


@pytest.fixture(autouse=True)
def _nothing_runs_on(tmp_path: Path) -> Iterator[None]:
    yield
    for started in RUNNING:
        for pid in Path("/proc").glob("[0-9]*"):
            try:
                if f"RANKLIFT_JOB_ID={started.job}".encode() in (pid / "environ").read_bytes().split(b"\0"):
                    os.kill(int(pid.name), signal.SIGKILL)
            except OSError:
                continue
        started.thread.join(10)
    RUNNING.clear()


def holds(process: Path, file: Path) -> bool:
    """Whether a process has the file open."""
    try:
        return any(descriptor.readlink() == file for descriptor in (process / "fd").iterdir())
    except OSError:
        return False
