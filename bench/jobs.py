"""How fast a job starts, ends and fails on many nodes, and what its supervisor takes of the head.

Start: from the command to the first line of the last rank, both typed on the head: what ``fab launch.torch``
runs there, beside mpirun starting the same processes. ``fab launch.torch`` itself, whole, is in the table.
Cancel: from the start of ``fab cancel`` until every process of the job has ended on every node, its runners
too; once with ranks that end when told to, once with ranks that ignore it. Failure: one rank is killed; until
every other rank's process has ended. Processes are found in /proc of the machine that runs all nodes.

Ranks are one line of bash each, for two cores run all of them. torchrun alone takes two seconds of a
processor and some 200 MB on every node before it starts a rank, so that it is asked about failure on 8 nodes.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from bench.cluster import Bench, rehearsal
from bench.peers.with_mpirun import mpirun_line
from bench.processes import Watch, end_mentioning, named, of_job, rank_of, until_named
from bench.report import Claim, bars, median, save, table

__all__ = ["main"]

FEW, MANY, WITH_TORCHRUN = 64, 300, 8
PER_NODE = 4
ROUNDS = {FEW: 5, MANY: 3}
ENDS = 3
"""Rounds of cancel and failure."""
OURS, WHOLE = "fab's job", "fab launch.torch, whole"
MPIRUN, TORCHRUN = "mpirun", f"torchrun, {WITH_TORCHRUN} nodes"
CANCEL, DEAF = "fab cancel", "fab cancel, deaf ranks"
START, END_S, MEMORY_MB, CORE = 0.8, 2.0, 100.0, 10.0
GRACE_S = 3.0
"""What jobs have when nobody says otherwise."""
LIMIT_S = 10.0
"""What takes longer counts as this long."""
STARTED_WITHIN_S = 90.0
WATCHED_S = 20.0
LINES_A_SECOND = 10

CODE = {
    "first.sh": 'echo "first line of $RANK$OMPI_COMM_WORLD_RANK"\n',
    "hold.sh": 'if [ "$2" = deaf ]; then trap "" TERM; fi\nexec -a "$1" sleep 10000\n',
    "tick.sh": 'exec -a "$1" python3 -S -E -u -c \''
    "import time\n"
    "due = time.monotonic()\n"
    "while True:\n"
    '    print("a line such as training prints: loss 0.123456, 1234.5 samples a second", flush=True)\n'
    f"    due += {1 / LINES_A_SECOND}\n"
    "    time.sleep(max(0, due - time.monotonic()))\n"
    "'\n",
}
_LINE = b"first line of "


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    starts: dict[str, dict[str, list[float]]] = {}
    with rehearsal() as bench:
        code = bench.folder / "code"
        code.mkdir()
        for name, text in CODE.items():
            (code / name).write_text(text)
        for count in (FEW, MANY):
            bench.nodes(count)
            starts[f"{count} nodes"] = measure_start(bench, count)
            if count == FEW:
                cancels = measure_cancel(bench)
                failures = measure_failure(bench)
                supervisor = measure_supervisor(bench)
    start_medians = {group: _medians(runs) for group, runs in starts.items()}
    cancel_medians, failure_medians = _medians(cancels), _medians(failures)
    for group, runs in start_medians.items():
        rows = [(name, seconds, seconds / runs[MPIRUN]) for name, seconds in runs.items()]
        title = f"First line of the last rank, {PER_NODE} on each of {group}"
        table(title, ("", "median, s", "of mpirun"), rows)
    table(f"All gone, {FEW} x {PER_NODE} ranks", ("", "median, s"), list(cancel_medians.items()))
    title = f"A killed rank's peers have ended, {FEW} nodes; {LIMIT_S:g} s stand for more"
    table(title, ("", "median, s"), list(failure_medians.items()))
    table("The supervisor", ("", "measured"), list(supervisor.items()))
    bars("jobs-start", "First line of the last rank", start_medians, "seconds, median")
    ends = {"cancel": cancel_medians, "failure": failure_medians}
    bars("jobs-end", "Every process has ended", ends, "seconds, median")
    claims = [
        Claim(f"{group}: start beside mpirun", runs[OURS] / runs[MPIRUN], START, "x")
        for group, runs in start_medians.items()
    ]
    claims += [
        Claim("cancel: all gone", cancel_medians[CANCEL], END_S),
        Claim("cancel of deaf ranks: over the grace", cancel_medians[DEAF] - GRACE_S, END_S),
        Claim("a rank failure seen on all nodes", failure_medians[OURS], END_S),
        Claim("supervisor's memory", supervisor["memory, MB"], MEMORY_MB, "MB"),
        Claim("supervisor's part of a core", supervisor["of a core, %"], CORE, "%"),
    ]
    figures = {"start_s": starts, "cancel_s": cancels, "failure_s": failures, "supervisor": supervisor}
    return save("jobs", figures, claims)


def _medians(runs: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(seconds) for name, seconds in runs.items()}


# -- start ------------------------------------------------------------------------------------------


def measure_start(bench: Bench, count: int) -> dict[str, list[float]]:
    """Seconds of all three, in turn, after a launch that does not count: it brings the code to the nodes."""
    runs: dict[str, list[float]] = {OURS: [], MPIRUN: [], WHOLE: []}
    head, ranks = bench.names()[0], count * PER_NODE
    _start(bench, _launch("first.sh"), ranks)
    for _ in range(ROUNDS[count]):
        plan = _plan(bench)
        submit = f"python3 -I -S {plan['remote']}/__main__.py submit --follow"
        data = json.dumps(plan).encode()
        runs[OURS].append(_start(bench, _on(bench, head, submit), ranks, b"%010d" % len(data) + data))
        line = mpirun_line(bench, count, PER_NODE, f"bash {_pushed(plan)}/first.sh")
        runs[MPIRUN].append(_start(bench, _on(bench, head, line), ranks))
        runs[WHOLE].append(_start(bench, _launch("first.sh"), ranks))
    return runs


def _launch(line: str, *options: str) -> list[str]:
    return [
        "fab",
        "launch.torch",
        line,
        "--nproc-per-node",
        str(PER_NODE),
        "--source",
        "code",
        "--health",
        "off",
        *options,
    ]


def _plan(bench: Bench) -> dict[str, Any]:
    """A new job's plan, as ``fab launch.torch`` hands it to the head."""
    plan: dict[str, Any] = json.loads(bench.run(_launch("first.sh", "--dry-run", "--json")).stdout)
    return plan


def _pushed(plan: Mapping[str, Any]) -> str:
    """The folder of the pushed code on every node: others start there what jobs have a copy of."""
    return f"~/.ranklift/snapshots/{plan['snapshot']}"


def _on(bench: Bench, node: str, line: str) -> list[str]:
    """A bash line on a node, which first tells the time: the way to the node does not count."""
    script = f"echo began $EPOCHREALTIME; {line}"
    return ["ssh", "-F", str(bench.ssh_config), node, f"bash -c {shlex.quote(script)}"]


def _start(bench: Bench, argv: Sequence[str], ranks: int, stdin: bytes = b"") -> float:
    """Seconds until every rank has written its first line. Raises RuntimeError when one does not."""
    began = time.time()
    with _running(bench, argv) as process:
        pipe = _pipe(process.stdin)
        pipe.write(stdin)
        pipe.close()
        said, until = b"", 0.0
        while data := os.read(_pipe(process.stdout).fileno(), 65536):
            said += data
            if not until and said.count(_LINE) >= ranks:
                until = time.time()
        status = process.wait()
    if status or not until:
        spoke = f"{said.count(_LINE)} of {ranks} ranks spoke"
        last = said.decode(errors="replace").splitlines()[-5:]
        raise RuntimeError("\n".join([f"{argv[0]} ended with {status}, {spoke}:", *last]))
    if b"began " in said:
        began = float(said.split(b"began ")[1].split()[0])
    return until - began


@contextmanager
def _running(bench: Bench, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command while it runs; it is ended with the block."""
    with subprocess.Popen(
        argv,
        cwd=bench.folder,
        env=bench.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101  by construction
    return pipe


# -- cancel and failure -----------------------------------------------------------------------------


def measure_cancel(bench: Bench) -> dict[str, list[float]]:
    """Seconds from ``fab cancel`` until nothing of the job is left on any node."""
    runs: dict[str, list[float]] = {CANCEL: [], DEAF: []}
    for _ in range(ENDS):
        for name, how in zip(runs, ("", " deaf"), strict=True):
            mark, job = _hold(bench, how)
            watch = Watch(of_job(job))
            with _running(bench, ["fab", "cancel", job]) as process:
                runs[name].append(watch.wait(LIMIT_S + GRACE_S))
                process.wait(LIMIT_S)
            if of_job(job) or named(mark):
                raise RuntimeError(f"{job} was cancelled and has processes left")
    return runs


def _hold(bench: Bench, how: str = "") -> tuple[str, str]:
    """A job whose ranks are called ``mark`` and stay; gives ``mark`` and its id once all are there."""
    mark = f"bench-{secrets.token_hex(4)}"
    ran = bench.run(_launch(f"hold.sh {mark}{how}", "--detach", "--json"))
    until_named(mark, FEW * PER_NODE, STARTED_WITHIN_S)
    return mark, str(json.loads(ran.stdout)["job"])


def measure_failure(bench: Bench) -> dict[str, list[float]]:
    """Seconds from the end of a rank on the last node until every other rank has ended."""
    runs: dict[str, list[float]] = {OURS: [], MPIRUN: [], TORCHRUN: []}
    code = _pushed(_plan(bench))
    for _ in range(ENDS):
        mark, job = _hold(bench)
        runs[OURS].append(_kill_one(mark))
        Watch(of_job(job)).wait(LIMIT_S)
        for name, nodes, lines in ((MPIRUN, FEW, _by_mpirun), (TORCHRUN, WITH_TORCHRUN, _by_torchrun)):
            mark = f"bench-{secrets.token_hex(4)}"
            with ExitStack() as stack:
                for node, line in lines(bench, nodes, f"bash {code}/hold.sh {mark}").items():
                    stack.enter_context(_running(bench, _on(bench, node, line)))
                stack.callback(end_mentioning, mark)
                until_named(mark, nodes * PER_NODE, STARTED_WITHIN_S)
                runs[name].append(_kill_one(mark))
    return runs


def _kill_one(mark: str) -> float:
    """Kills the last rank of those called ``mark``; seconds until the others have ended."""
    *others, last = sorted(named(mark), key=rank_of)
    watch = Watch(others)
    os.kill(last, signal.SIGKILL)
    return watch.wait(LIMIT_S)


def _by_mpirun(bench: Bench, nodes: int, program: str) -> dict[str, str]:
    return {bench.names()[0]: mpirun_line(bench, nodes, PER_NODE, program)}


def _by_torchrun(bench: Bench, nodes: int, program: str) -> dict[str, str]:
    """The line for every node, as PyTorch's manual has it."""
    names = bench.names()[:nodes]
    options = f"--nnodes {nodes} --nproc-per-node {PER_NODE} --master-addr {names[0]} --master-port 29500"
    return {
        name: f"torchrun {options} --node-rank {place} --no-python {program}"
        for place, name in enumerate(names)
    }


# -- the supervisor ---------------------------------------------------------------------------------


def measure_supervisor(bench: Bench) -> dict[str, float]:
    """Its memory and its part of a core while every rank prints.

    Raises RuntimeError when the ranks themselves cannot keep up.
    """
    mark = f"bench-{secrets.token_hex(4)}"
    ran = json.loads(bench.run(_launch(f"tick.sh {mark}", "--detach", "--json")).stdout)
    job, head = ran["job"], ran["head"]
    folder = f".ranklift/jobs/{job}"
    try:
        until_named(mark, FEW * PER_NODE, STARTED_WITHIN_S)
        time.sleep(2)  # the last ones have only just begun
        state = json.loads(bench.ssh(head, f"cat {folder}/state.json").stdout)
        process = f"/proc/{state['supervisor']['pid']}"
        lines = f"wc -l < {folder}/logs/rank-0.log"
        look = f"cat {process}/stat; {lines}"
        said = bench.ssh(head, f"{look}; sleep {WATCHED_S:g}; {look}; grep VmHWM {process}/status").stdout
    finally:
        bench.fab("cancel", job)
    first, lines_before, last, lines_after, memory = said.splitlines()
    if int(lines_after) - int(lines_before) < 0.9 * LINES_A_SECOND * WATCHED_S:
        raise RuntimeError(f"rank 0 printed {lines_before} and then {lines_after} lines")
    used = (_ticks(last) - _ticks(first)) / os.sysconf("SC_CLK_TCK")
    return {"memory, MB": int(memory.split()[1]) * 1024 / 1e6, "of a core, %": 100 * used / WATCHED_S}


def _ticks(stat: str) -> int:
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    sys.exit(main())
