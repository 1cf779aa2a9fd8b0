"""What ``fab top`` costs on a job of 300 nodes with 2400 ranks, and how soon it shows a new sample.

A real ``fab top`` on a terminal of 200 columns and 50 lines, a real sshd on loopback with the node code as
the job's head; its samples are made, and written twice a second, its history once. Processor times are the
kernel's, of the operator's process and of the watcher on the head.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.report import Claim, median, save, table
from launch.client.samples import JobSamples
from playbooks.cli.styled import sgr_text
from playbooks.observe.top_rows import make_rows
from playbooks.observe.top_screen import Link, draw
from playbooks.observe.top_view import View
from tests.playbooks.emulated_terminal import EmulatedTerminal
from tests.playbooks.observe.made_samples import samples
from tests.playbooks.observe.standin_head import StandInHead
from tests.playbooks.typed import FAB

__all__ = ["main"]

NODES, RANKS = 300, 8
SIZE = (200, 50)
ROUNDS, WRITE_S = 20, 0.5
REDRAW_MS, WATCHER_PERCENT, FRESH_S = 50.0, 6.0, 2.0
"""Most milliseconds of a redraw, percent of a processor for the watcher, seconds until a sample shows."""
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    made = samples(NODES, RANKS, points=240)
    redraw = time_redraw(made)
    with tempfile.TemporaryDirectory() as folder, StandInHead(Path(folder)).up() as head:
        shown = time_top(head, made)
    table(
        f"fab top, {NODES} nodes with {NODES * RANKS} ranks, {SIZE[0]} x {SIZE[1]}",
        (
            "redraw, ms",
            "operator, % of a core",
            "watcher, % of a core",
            "until shown, s, median",
            "at most, s",
        ),
        [(redraw, shown["operator"], shown["watcher"], shown["median_s"], shown["most_s"])],
    )
    claims = [
        Claim("processor time of a redraw with new samples", redraw, REDRAW_MS, "ms"),
        Claim("processor time of the watcher", shown["watcher"], WATCHER_PERCENT, "% of a core"),
        Claim("a new sample on the screen, median", shown["median_s"], FRESH_S),
    ]
    return save("see-top", {"redraw_ms": redraw, **shown}, claims)


def time_redraw(made: JobSamples) -> float:
    """Returns the milliseconds from decoded samples to the bytes for the terminal."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        screen = draw(make_rows(made), (), made.state.job, View(ranks=True), Link("head"), SIZE)
        _ = [sgr_text(line, colours=True) for line in screen.lines]
        taken.append(1000 * (time.process_time() - began))
    return median(taken)


def time_top(head: StandInHead, made: JobSamples) -> dict[str, float]:
    """Returns what operator and watcher take while samples come twice a second, and how late they show."""
    job = made.state.job
    head.write(made, ahead=600)
    until: list[float] = []
    with EmulatedTerminal([FAB, "top", job], head.folder, head.environment, *SIZE) as terminal:
        terminal.wait_for("step 1800 to 1804")
        (watcher,) = head.watchers(job)
        before = [processor_s(pid) for pid in (terminal.process.pid, watcher)]
        began = time.monotonic()
        for number in range(ROUNDS):
            written = time.monotonic()
            head.write(with_step(made, 2000.0 + number), ahead=600)
            terminal.wait_for(f"step {2000 + number} ")
            until.append(time.monotonic() - written)
            terminal.read(max(0.0, WRITE_S - until[-1]))
        spent = time.monotonic() - began
        after = [processor_s(pid) for pid in (terminal.process.pid, watcher)]
        terminal.type("q")
        terminal.wait()
    operator, watching = (100 * (end - start) / spent for start, end in zip(before, after, strict=True))
    return {"operator": operator, "watcher": watching, "median_s": median(until), "most_s": max(until)}


def with_step(made: JobSamples, step: float) -> JobSamples:
    """Returns the newest samples with every rank at that step."""
    live = copy.deepcopy(made.live)
    assert live is not None  # noqa: S101
    for rank in live["ranks"].values():
        rank["metrics"]["step"] = step
    return replace(made, live=live, history=None)


def processor_s(pid: int) -> float:
    """Returns the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
