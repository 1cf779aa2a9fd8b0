"""Ranks' output on its way through real runners and a real supervisor to its readers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.events import Event, LogLine
from launch.client.log_filter import Selection
from launch.errors import InputError
from launch.job.spec import JobSpec, Kind
from tests.launch.standin import Nodes, left_of, lines, shell, start, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
MB = 1000 * 1000

FLOOD = """
import os, sys
if os.environ["RANK"] == "0":
    text = b"".join(b"%07d of a rank that prints all it can\\n" % n for n in range(200_000))
    while text:
        text = text[os.write(1, text) :]
    os.write(2, b"last words\\n")
    open(os.environ["RANKLIFT_OUTPUT_DIR"] + "/done", "w").close()
    sys.exit(3)
for n in range(20):
    os.write(1, b"step %d\\n" % n)
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [1, 1])


def job(script: str, **options: object) -> JobSpec:
    settings: dict[str, object] = {"processes_per_node": 1, "snapshot": "code", **options}
    command = ("python3", "-S", "-E", script)
    return JobSpec(name="t", kind="pytorch", command=command, **settings)  # type: ignore[arg-type]


def folder(nodes: Nodes, node: int, name: str) -> Path:
    return nodes.folder / nodes.nodes[node].name / ".ranklift/jobs" / name


def notices(events: list[Event]) -> list[str]:
    return [e.data.decode() for e in events if isinstance(e, LogLine) and e.stream == "notice"]


def printed(events: list[Event], rank: int) -> list[str]:
    return [
        e.data.decode() for e in events if isinstance(e, LogLine) and e.rank == rank and e.stream == "stdout"
    ]


@KINDS
def test_every_line_of_every_rank_comes_once_and_in_its_order(tmp_path: Path, kind: Kind) -> None:
    nodes = Nodes(tmp_path, [4, 4])
    script = 'i=0; while [ $i -lt 500 ]; do echo "$RANK line $i"; i=$((i+1)); done'
    state, events = nodes.run(shell(script, kind, processes_per_node=4))
    assert state.state == "SUCCEEDED"
    assert notices(events) == []
    for rank in range(8):
        assert printed(events, rank) == [f"{rank} line {number}" for number in range(500)]
    again: list[Event] = []
    submit.follow(state.job, nodes.head, again.append, remote="hash", wait=False)
    assert lines(again) == lines(events)


def test_a_rank_that_prints_too_much_keeps_its_log_and_its_last_lines_and_leaves_the_others_alone(
    nodes: Nodes,
) -> None:
    nodes.code("flood.py", FLOOD)
    state, events = nodes.run(job("flood.py"))
    log = (folder(nodes, 0, state.job) / "logs/rank-0.log").read_text().splitlines()
    assert log[:-1] == [f"{n:07} of a rank that prints all it can" for n in range(200_000)]
    shown = printed(events, 0)
    assert 10_000 < len(shown) < 150_000
    assert shown == sorted(set(shown))
    assert set(shown) <= set(log)
    assert printed(events, 1) == [f"step {n}" for n in range(20)]
    result = notices(events)
    assert result
    assert all(one.startswith("left out ") for one in result)
    assert all(one.endswith("; complete in logs/rank-0.log on node000000") for one in result)
    left = sum(int(one.split(", ")[1].split(" ")[0].replace(",", "")) for one in result)
    assert left + len([e for e in events if isinstance(e, LogLine) and e.rank == 0]) - len(result) == 200_001
    assert state.exit_status == 3
    assert state.failure is not None
    assert state.failure.last_lines[-2:] == ("0199999 of a rank that prints all it can", "last words")


def test_no_rank_waits_for_a_head_that_takes_nothing(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, [2])
    slowly = FLOOD.replace("os.write(1, text) :]", "os.write(1, text[: 1 << 20]) :]; time.sleep(0.1)")
    slowly = slowly.replace("import os, sys", "import os, sys, time").replace("sys.exit(3)", "sys.exit(0)")
    nodes.code("flood.py", slowly.replace("200_000", "800_000"))
    wait = 'until [ -e "$RANKLIFT_OUTPUT_DIR/%s" ]; do sleep 0.05; done; '
    script = f"echo up; {wait % 'go'} [ $RANK = 0 ] || {{ {wait % 'done'} }}; exec python3 -S -E flood.py"
    started = start(nodes, shell(script, processes_per_node=2))
    until(lambda: len(lines(started.events)) == 2)
    outputs = folder(nodes, 0, started.job) / "outputs"
    supervisor = json.loads((folder(nodes, 0, started.job) / "state.json").read_text())["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        (outputs / "go").touch()
        until((outputs / "done").exists, 20)
        log = folder(nodes, 0, started.job) / "logs/rank-1.log"
        until(lambda: log.read_text().endswith("step 19\n"))
        runners = [p for p in Path("/proc").glob("[0-9]*") if is_runner(p, nodes)]
        assert runners
        assert all(memory(p) < 60 * MB for p in runners)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert started.end().state == "SUCCEEDED"
    assert (folder(nodes, 0, started.job) / "logs/rank-0.log").read_text().count("\n") == 800_002
    assert printed(started.events, 1) == ["up", *[f"step {n}" for n in range(20)]]
    assert all("logs/rank-0.log" in one for one in notices(started.events))


def is_runner(process: Path, nodes: Nodes) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        home = (process / "environ").read_bytes()
    except OSError:
        return False
    return b"node" in words and f"HOME={nodes.folder}/".encode() in home


def memory(process: Path) -> int:
    (line,) = [x for x in (process / "status").read_text().splitlines() if x.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def test_a_log_that_cannot_be_written_ends_nothing_and_is_told(nodes: Nodes) -> None:
    ssh = nodes.bin / "ssh"
    ssh.write_text(ssh.read_text().replace('cd "$HOME" || exit', 'cd "$HOME" || exit; ulimit -S -f 256'))
    script = 'i=0; while [ $i -lt 9000 ]; do echo "$RANK line number $i of many"; i=$((i+1)); done'
    state, events = nodes.run(shell(script))
    assert state.state == "SUCCEEDED"
    assert printed(events, 1) == [f"1 line number {number} of many" for number in range(9000)]
    first, last = notices(events)
    assert first == "logs/rank-1.log on node000001 cannot be written: File too large; the job continues"
    assert last.startswith("logs/rank-1.log on node000001 lacks ")
    log = (folder(nodes, 1, state.job) / "logs/rank-1.log").read_bytes()
    assert log == "".join(f"1 line number {n} of many\n" for n in range(9000)).encode()[: len(log)]


def test_an_orphan_that_never_stops_printing_does_not_keep_its_rank_from_ending(nodes: Nodes) -> None:
    state, events = nodes.run(shell("(setsid yes >&1 &); echo done; exit 4", grace_s=0.5))
    assert (state.exit_status, state.state) == (4, "FAILED")
    assert "done" in printed(events, 0) + printed(events, 1)
    assert left_of(state.job) == []


def test_what_is_shown_of_a_running_job_is_what_there_is_now(nodes: Nodes) -> None:
    started = start(nodes, shell("echo one; printf half; sleep 30", grace_s=0.3))
    until(lambda: len(lines(started.events)) == 2)
    time.sleep(0.3)
    events: list[Event] = []
    begun = time.monotonic()
    state = submit.follow(
        started.job, nodes.head, events.append, remote="hash", wait=False, selection=Selection(tail=10)
    )
    assert time.monotonic() - begun < 3
    assert state.state == "RUNNING"
    assert sorted(lines(events)) == [(rank, text) for rank in (0, 1) for text in ("half", "one")]
    nodes.cancel(started.job)


def test_a_selection_is_cut_on_the_head(nodes: Nodes) -> None:
    state, _ = nodes.run(shell('for i in 1 2 3; do echo "$RANK $i"; done'))
    events: list[Event] = []
    chosen = Selection(ranks=frozenset({1}), tail=2)
    assert submit.follow(state.job, nodes.head, events.append, remote="hash", selection=chosen) == state
    assert lines(events) == [(1, "1 2"), (1, "1 3")]
    by_node: list[Event] = []
    chosen = Selection(ids=frozenset({0}), since=60.0)
    submit.follow(state.job, nodes.head, by_node.append, remote="hash", wait=False, selection=chosen)
    assert lines(by_node) == [(0, f"0 {i}") for i in (1, 2, 3)]
    with pytest.raises(InputError, match=r"--rank = '2': .* has 2 ranks; give numbers from 0 to 1"):
        submit.follow(
            state.job, nodes.head, print, remote="hash", wait=False, selection=Selection(ranks=frozenset({2}))
        )


def test_bytes_that_are_no_text_and_progress_bars_survive(nodes: Nodes) -> None:
    script = r"""printf '\377\000\033[31m\n10%%\r20%%\r'; sleep 0.3; printf '\nend'"""
    state, events = nodes.run(shell(script))
    result = [(e.data, e.overwritten) for e in events if isinstance(e, LogLine) and e.rank == 0]
    assert result == [(b"\xff\0\x1b[31m", False), (b"10%", True), (b"20%", False), (b"end", False)]
    log = (folder(nodes, 0, state.job) / "logs/rank-0.log").read_bytes()
    assert log == b"\xff\0\x1b[31m\n10%\r20%\r\nend"
