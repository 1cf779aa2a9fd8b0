"""The command of a node that looks at its ranks, as the runner starts it; and its answer in pieces."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launch.remote.base import frames, processes, timing
from launch.remote.debug import rank_stacks
from launch.remote.debug.bounded import ReadTooLong
from launch.remote.debug.debug_child import DebugChild
from launch.remote.debug.debug_records import Collective, DebugOrder, NodeFacts, RasRank, Stacks
from launch.remote.debug.fact_shapes import read_facts
from launch.remote.debug.rank_stacks import _bounded
from launch.remote.hangs.looked_ranks import rank_of
from launch.remote.hangs.movement import computes, transfers
from tests.launch.fake_recorder import write_fake
from tests.launch.standin import until

SCRIPT = """\
import sys, time
def wait_for_all():
    sys.stdout.write("on\\n")
    sys.stdout.flush()
    time.sleep(600)
wait_for_all()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with py-spy and a script."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "py-spy").symlink_to(Path(sys.executable).parent / "py-spy")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def ranks(home: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ranks, the second under a shell."""
    line = [sys.executable, str(home / "train.py")]
    with ExitStack() as stack:
        found: list[subprocess.Popen[bytes]] = []
        for argv in (line, ["sh", "-c", f"{line[0]} {line[1]}; true"]):
            process = subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "RANK": str(len(found))},
            )
            stack.enter_context(process)
            stack.callback(os.killpg, process.pid, 9)
            found.append(process)
        for process in found:
            assert process.stdout is not None
            assert process.stdout.readline() == b"on\n"
        yield found


def looked_at(
    pids: dict[int, int], *, per_node: int = 0, node: int = 0, started_in: str = ""
) -> tuple[NodeFacts, float]:
    order: DebugOrder = {
        "request": 3,
        "py_spy": "py-spy",
        "node": node,
        "per_node": per_node,
        "ranks": [],
        "pids": [],
        "until_ms": 0,
        "containers": [],
    }
    begun = time.monotonic()
    left: DebugChild | None
    left = child = DebugChild(frames.pack(order), pids, lambda _: started_in)
    pieces: list[Stacks] = []
    while left is not None:
        select.select([child.fd], [], [], 0.2)
        left = left.step(lambda _, piece: pieces.append(piece))
    os.waitpid(child.pid, 0)
    assert {piece["request"] for piece in pieces} == {3}
    assert [piece["part"] for piece in pieces] == list(range(pieces[0]["of"]))
    return read_facts("".join(piece["text"] for piece in pieces)), time.monotonic() - begun


def test_two_ranks_are_looked_at_three_times(ranks: list[subprocess.Popen[bytes]]) -> None:
    facts, seconds = looked_at({0: ranks[0].pid, 1: ranks[1].pid}, node=1)
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1]
    for rank in facts["ranks"]:
        process = rank["processes"][-1]
        functions = [frame["function"] for frame in process["threads"][0]["frames"]]
        assert functions == ["wait_for_all", "<module>"]
        assert process["threads"][0]["frames"][0]["text"] == "time.sleep(600)"
        assert len(process["later"]) == 2
        assert (process["state"], process["switches"], process["problem"]) == ("S", 0, "")
    shell = facts["ranks"][1]["processes"][0]
    assert (shell["name"], shell["threads"], shell["problem"]) == ("sh", [], "")
    assert timing.DEBUG_SPAN_S <= seconds < timing.DEBUG_CHILD_S


@pytest.mark.parametrize("how", ["itself", "child", "short children", "files"])
def test_the_work_of_a_rank_that_prints_nothing_is_seen(how: str) -> None:
    spin, short = "while True: pass", "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done"
    programs = {
        "itself": spin,
        "child": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])",
        "short children": f"while True: subprocess.run(['sh', '-c', {short!r}])",
        "files": "while True: file.write(bytes(1 << 20)); file.seek(0); time.sleep(0.1)",
    }
    begin = "import subprocess, tempfile, time; file = tempfile.TemporaryFile(); print(flush=True)\n"
    rank = subprocess.Popen(
        [sys.executable, "-c", begin + programs[how]], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert rank.stdout is not None
        rank.stdout.readline()
        facts, _ = looked_at({0: rank.pid})
    finally:
        os.killpg(rank.pid, 9)
        rank.communicate()
    its = rank_of(0, "node000000", facts["ranks"][0])
    assert transfers(its) if how == "files" else computes(its)


@pytest.fixture
def recorded(home: Path) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """Starts two ranks whose PyTorch has a flight recorder; rank 1 stays away from the 201st collective."""
    script = write_fake(home)
    with ExitStack() as stack:

        def start(**variables: str) -> list[subprocess.Popen[bytes]]:
            found = []
            for rank in range(2):
                process = subprocess.Popen(
                    [sys.executable, str(script)],
                    cwd=home,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env={**os.environ, "RANK": str(rank), **variables},
                )
                stack.enter_context(process)
                stack.callback(os.killpg, process.pid, 9)
                assert process.stdout is not None
                assert process.stdout.readline() == b"trains\n"
                found.append(process)
            for rank in range(2):
                until((home / f"{rank}.pipe").exists if variables else lambda: True)
            return found

        yield start


def recorder_in(home: Path) -> dict[str, str]:
    return {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{home}/", "TORCH_FR_DUMP_TEMP_FILE": f"{home}/"}


def collectives(facts: NodeFacts) -> dict[int, list[tuple[int, str]]]:
    return {
        rank["rank"]: [(one["sequence"], one["state"]) for one in rank["collective"]]
        for rank in facts["ranks"]
    }


def test_the_file_of_a_flight_recorder_is_waited_for(
    home: Path, recorded: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    """It comes 4.1 to 5.6 s after the request: a second for the pipe, the rest for the stacks in it."""
    ranks = recorded(**recorder_in(home), DUMP_TAKES="4.5")
    facts, seconds = looked_at({number: one.pid for number, one in enumerate(ranks)})
    assert collectives(facts) == {0: [(201, "started")], 1: [(200, "completed")]}
    assert (facts["problems"], seconds < timing.DEBUG_CHILD_S) == ([], True)
    assert facts["looked_ms"] < 1000 * (timing.DEBUG_CHILD_S - timing.DEBUG_RECORD_S)


def test_ranks_are_looked_at_before_pytorch_is_asked_and_prints(
    home: Path, recorded: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    ranks = recorded(**recorder_in(home), DUMP_TAKES="0")
    os.set_blocking(ranks[0].stderr.fileno(), False)  # type: ignore[union-attr]
    begun = time.monotonic()
    printed_after: list[float] = []

    def watch() -> None:
        while not printed_after and time.monotonic() < begun + timing.DEBUG_CHILD_S:
            if ranks[0].stderr.read():  # type: ignore[union-attr]
                printed_after.append(time.monotonic() - begun)
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    looked_at({number: one.pid for number, one in enumerate(ranks)})
    thread.join()
    assert printed_after[0] > timing.DEBUG_SPAN_S


def test_a_flight_recorder_that_never_writes_costs_its_limit_alone(
    home: Path, recorded: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    ranks = recorded(**recorder_in(home), DUMP_TAKES="600")
    facts, seconds = looked_at({number: one.pid for number, one in enumerate(ranks)})
    assert collectives(facts) == {0: [], 1: []}
    assert facts["problems"] == ["no file of the flight recorder came in time, of rank 0, 1"]
    assert seconds < timing.DEBUG_CHILD_S + timing.DEBUG_LATE_S


def test_a_read_that_the_end_of_the_look_cut_short_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*_: object) -> list[Collective]:
        raise ReadTooLong("rank 0's flight record: reading it took longer than 0.0 s")

    monkeypatch.setattr(rank_stacks, "read_record", late)
    problems: list[str] = []
    assert rank_stacks._records({0: time.time()}, {0: {}}, time.monotonic() + 0.1, problems) == {}
    assert problems == ["no file of the flight recorder came in time, of rank 0"]


def test_the_file_of_an_earlier_request_is_no_answer(
    home: Path, recorded: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    ranks = recorded(**recorder_in(home), DUMP_TAKES="600")
    record = {"entries": [{"record_id": 1, "collective_seq_id": 2, "is_p2p": False, "retired": True}]}
    (home / "0").write_text(json.dumps(record))
    facts, _ = looked_at({0: ranks[0].pid})
    assert collectives(facts) == {0: []}


def test_without_a_flight_recorder_nothing_is_waited_for(
    recorded: Callable[..., list[subprocess.Popen[bytes]]],
) -> None:
    ranks = recorded()
    facts, seconds = looked_at({number: one.pid for number, one in enumerate(ranks)})
    assert collectives(facts) == {0: [], 1: []}
    assert seconds < timing.DEBUG_CHILD_S - timing.DEBUG_RECORD_S


def test_a_stopped_rank_is_not_asked(
    home: Path, recorded: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    ranks = recorded(**recorder_in(home), DUMP_TAKES="0")
    os.kill(ranks[1].pid, signal.SIGSTOP)
    until(lambda: " T " in Path(f"/proc/{ranks[1].pid}/stat").read_text())
    facts, _ = looked_at({number: one.pid for number, one in enumerate(ranks)})
    assert collectives(facts) == {0: [(201, "started")], 1: []}
    assert facts["problems"] == []


def test_a_launchers_processes_are_its_ranks(home: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    line = f"{sys.executable} {home}/train.py"
    script = f"RANK=8 {line} & RANK=9 {line} & wait"
    clean = {name: value for name, value in os.environ.items() if name != "RANK"}
    with subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, env=clean
    ) as launcher:
        try:
            assert launcher.stdout is not None
            assert [launcher.stdout.readline() for _ in range(2)] == [b"on\n"] * 2
            facts, _ = looked_at({1: launcher.pid}, per_node=1)
        finally:
            os.killpg(launcher.pid, 9)
    assert [rank["rank"] for rank in facts["ranks"]] == [8, 9]


def test_a_rank_that_has_ended_is_reported_without_processes() -> None:
    facts, _ = looked_at({4: 1 << 21})
    assert facts["ranks"] == [{"rank": 4, "processes": [], "collective": []}]


@pytest.mark.parametrize("started", ["docker:", f"docker:{'ab' * 32}"])
def test_a_container_whose_processes_are_not_found_is_reported(home: Path, started: str) -> None:
    facts, _ = looked_at({4: os.getpid()}, started_in=started)
    assert facts["problems"] == [f"no process of rank 4's container was found ({started})"]


def test_a_look_that_begins_late_ends_in_time_with_what_it_has(
    ranks: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "DEBUG_CHILD_S", 0.0)  # the interpreter's start has taken all the time
    facts, seconds = looked_at({0: ranks[0].pid, 1: ranks[1].pid})
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1]
    process = facts["ranks"][0]["processes"][0]
    assert (process["state"], process["threads"]) == ("S", [])
    assert process["problem"] == "there was no time left to read its stacks"
    assert seconds < timing.DEBUG_LATE_S


def test_a_child_that_hangs_is_killed_and_an_empty_piece_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "DEBUG_CHILD_S", 0.3)
    monkeypatch.setattr(timing, "DEBUG_LATE_S", 0.2)
    monkeypatch.setattr(processes, "spawn", lambda *_: _sleeping())
    left: DebugChild | None
    left = child = DebugChild(frames.pack({"request": 1}), {})
    pieces: list[Stacks] = []
    while left is not None:
        left = left.step(lambda _, piece: pieces.append(piece))
        time.sleep(0.02)
    assert pieces == [{"request": 1, "part": 0, "of": 1, "text": ""}]
    assert os.waitpid(child.pid, 0)[1] == 9


def test_a_fifo_in_place_of_the_flight_record_is_a_note_and_the_rest_is_kept(
    home: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "record-4")
    env = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/record-"}
    line = [sys.executable, str(home / "train.py")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=env) as rank:
        try:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"on\n"
            facts, seconds = looked_at({4: rank.pid})
        finally:
            rank.kill()
    functions = [frame["function"] for frame in facts["ranks"][0]["processes"][0]["threads"][0]["frames"]]
    assert functions == ["wait_for_all", "<module>"]
    assert facts["problems"] == [f"rank 4's flight record '{tmp_path}/record-4' is not a regular file"]
    assert seconds < timing.DEBUG_CHILD_S


def test_a_report_that_is_too_long_is_cut_wherever_it_is_long() -> None:
    ras: RasRank = {"group": "g", "rank": 1, "host": "h" * 600, "pid": 1, "operations": 1, "state": "s"}
    facts: NodeFacts = {
        "looked_ms": 1,
        "ranks": [{"rank": 0, "processes": [], "collective": []}],
        "ports": [],
        "gpus": [],
        "ras": [ras] * 512,
        "problems": ["p" * 4000] * 100,
    }
    text = _bounded(facts)
    assert len(text) <= timing.DEBUG_PIECES * timing.DEBUG_PIECE
    kept = read_facts(text)
    assert [rank["rank"] for rank in kept["ranks"]] == [0]
    assert kept["ras"]


def _sleeping() -> tuple[int, int, int]:
    out, writing = os.pipe()
    errors, other = os.pipe()
    pid = os.fork()
    if not pid:
        time.sleep(60)
        os._exit(0)
    os.close(writing)
    os.close(other)
    os.set_blocking(out, False)
    return pid, out, errors
