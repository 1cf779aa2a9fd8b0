"""``fab top`` on rehearsed nodes: jobs that run, nodes that are cut off, connections that are killed."""

from __future__ import annotations

import html
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace
from tests.playbooks.emulated_terminal import EmulatedTerminal
from tests.see.browser import draw_page
from tests.see.running_jobs import running_job, state_of, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

RANKS = 8
_RANK = re.compile(r"\d+ \d+ [\d.]+M \d+ s \d+ [\d.]+ \d+")


def top(cluster: Workplace, job: str, columns: int = 110, lines: int = 30) -> EmulatedTerminal:
    return EmulatedTerminal(["fab", "top", job], cluster.own, cluster.environment, columns, lines)


def watchers(job: str) -> list[int]:
    """The processes that watch the job's samples on its head, as this machine numbers them."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().endswith(
                f"\0watch-samples\0{job}\0".encode()
            ):
                found.append(int(entry.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def all_sampled(text: str) -> bool:
    """Whether every node and every rank is on the screen, each rank with its step, loss and samples."""
    lines = [line.split() for line in text.splitlines()]
    nodes = [words for words in lines if words[1:2] == ["ok"] and words[0].startswith("node00000")]
    ranks = [words for words in lines if _RANK.fullmatch(" ".join(words))]
    return len(nodes) == 4 and len(ranks) == RANKS


@pytest.mark.for_every_change
def test_nodes_and_ranks_of_a_job_are_shown_while_it_runs(cluster: Workplace) -> None:
    with running_job(cluster, "--nproc-per-node", "2") as job:
        with top(cluster, job) as terminal:
            screen = terminal.wait_for(all_sampled, 60)
            assert f"{job}  RUNNING" in screen
            assert "samples_per_s 100 to 107" in screen
            terminal.type("q")
            assert terminal.wait() == 0
            assert (terminal.settings, terminal.shown.unknown) == (terminal.mode, [])
        once = cluster.fab("top", "--once")
        assert all_sampled(once.out), once
        record = cluster.fab("top", job, "--json").json()
        assert sorted(record["live"]["ranks"]) == [str(rank) for rank in range(RANKS)]
        assert {rank["metrics"]["samples_per_s"] for rank in record["live"]["ranks"].values()} == {
            100.0 + rank for rank in range(RANKS)
        }


COLOURS = {
    **{"1": "font-weight: bold", "2": "opacity: .6", "7": "background: #ddd; color: #111"},
    **{"31": "color: #ff7b72", "32": "color: #56d364", "33": "color: #e3b341", "36": "color: #39c5cf"},
}
"""Of a terminal's styles, by their numbers."""
LOADS = (91, 88, 95, 90, 87, 93, 89, 92)
"""Percent by GPU."""


def test_a_picture_is_drawn_of_the_screen(healed: Workplace, tmp_path: Path) -> None:
    for device, percent in enumerate(LOADS):
        where = ("--nodes", "0-3", "--device", str(device), "--count", str(percent))
        healed.fab("rehearsal.fault", "gpu-load", *where)
    with running_job(healed, "--nproc-per-node", "2") as job, top(healed, job, lines=18) as terminal:
        terminal.wait_for(lambda text: re.search(r"gpu, [3-9]\d s", text) and all_sampled(text), 150)
        lines = terminal.shown.styled
    page = tmp_path / "top.html"
    text = "\n".join(
        "".join(f'<span style="{COLOURS.get(style, "")}">{html.escape(part)}</span>' for part, style in line)
        for line in lines
    )
    style = "background: #111; color: #ddd; margin: 10px"
    page.write_text(f'<body style="{style}"><pre style="font: 14px/1.2 monospace; margin: 0">{text}</pre>')
    draw_page(page, tmp_path, "top", "950,324")


def test_killed_connections_and_a_stopped_watcher_are_replaced(cluster: Workplace) -> None:
    with running_job(cluster, "--nproc-per-node", "2") as job, top(cluster, job) as terminal:
        terminal.wait_for(all_sampled, 60)
        (watcher,) = watchers(job)
        os.kill(parent(watcher), signal.SIGKILL)
        assert all_sampled(terminal.wait_for("no answer for 1 s from node000000, connects again", 10))
        terminal.wait_for(lambda text: "no answer" not in text and all_sampled(text), 20)
        until(lambda: len(watchers(job)) == 1)
        (watcher,) = watchers(job)
        os.kill(watcher, signal.SIGSTOP)
        try:
            terminal.wait_for("no answer for 5 s", 15)
            terminal.wait_for(lambda text: "no answer" not in text and all_sampled(text), 30)
        finally:
            os.kill(watcher, signal.SIGKILL)
        assert state_of(cluster, job) == "RUNNING"


def test_the_screen_stays_while_the_head_is_cut_off(healed: Workplace) -> None:
    with running_job(healed, "--nproc-per-node", "2") as job, top(healed, job) as terminal:
        terminal.wait_for(all_sampled, 60)
        healed.fab("rehearsal.fault", "partition", "--nodes", "0")
        cut_off = terminal.wait_for("no answer for 5 s from node000000", 30)
        healed.fab("rehearsal.fault", "heal", "--nodes", "0")
        assert all_sampled(cut_off)
        terminal.wait_for(lambda text: "no answer" not in text, 60)
        terminal.type("q")
        assert terminal.wait() == 0


def test_a_node_that_is_lost_is_seen_and_so_is_the_end_of_its_job(healed: Workplace) -> None:
    with running_job(healed, "--nproc-per-node", "2") as job, top(healed, job) as terminal:
        terminal.wait_for(all_sampled, 60)
        healed.fab("rehearsal.fault", "partition", "--nodes", "3")
        terminal.wait_for("! node000003 has sent no sample for 6 s", 30)
        ended = terminal.wait_for("ended FAILED", 60)
        assert "node000003" in ended
        healed.fab("rehearsal.fault", "heal", "--nodes", "3")
        terminal.type("q")
        assert terminal.wait() == 0
