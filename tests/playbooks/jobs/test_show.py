"""The list of jobs as it changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.errors import NodeUnreachable
from playbooks.jobs import listing, show
from playbooks.jobs.listing import JobList
from playbooks.project import Stack
from tests.playbooks.jobs.test_tables import QUEUED, at, state
from tests.playbooks.screen import Terminal

NODES = tuple(Node(f"node00000{n}", n, "", "", 1, 8, "running") for n in range(2))
RUNNING = state("t-2", "RUNNING")
DONE = state("t-2", "SUCCEEDED", exit_status=0, ended=at(9))
SILENT = NodeUnreachable("node000001", "refused")


def listed(*jobs: object, **silent: Exception) -> JobList:
    seen = {job.job: at(5) for job in jobs}  # type: ignore[attr-defined]
    return JobList(list(jobs), 0, seen, {"node000000": (), "node000001": (), **silent})  # type: ignore[arg-type]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs ``fab jobs --watch`` over these lists, then Ctrl-C; returns the exit status."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    inventory = Inventory("dev", "size", "place", "me", NODES)
    monkeypatch.setattr(show, "open_from", lambda *_: Stack("dev", tmp_path, {}))
    monkeypatch.setattr(Stack, "saved", lambda _: inventory)
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: nullcontext())

    def run(*lists: JobList) -> int:
        left = list(lists)

        def sleep(_: float) -> None:
            if not left:
                raise KeyboardInterrupt

        monkeypatch.setattr(listing, "list_jobs", lambda *_: left.pop(0))
        monkeypatch.setattr(show, "sleep_while_read", sleep)
        with pytest.raises(Exit) as caught:
            show.jobs.body(Context(), watch=True)
        return int(caught.value.code)

    return run


def test_without_a_terminal_each_change_is_a_line(
    watch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    lists = [
        listed(RUNNING, QUEUED),
        listed(RUNNING, QUEUED),
        listed(DONE, replace(QUEUED, state="STARTING", reason="")),
    ]
    assert watch(*lists) == 130
    when = "2026-03-01 12:00:05 UTC"
    assert capsys.readouterr() == (
        f"{when}  t-2  RUNNING\n{when}  t-3  QUEUED: waits for t-2, other on node000001\n"
        f"{when}  t-2  SUCCEEDED\n{when}  t-3  STARTING\n",
        "interrupted\n",
    )


def test_a_node_that_falls_silent_is_reported_once(
    watch: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(listed(), listed(node000001=SILENT), listed(node000001=SILENT)) == 130
    assert capsys.readouterr().err == (
        "error: listing jobs failed on 1 of 2 nodes\nnode000001: refused\ninterrupted\n"
    )


def test_a_terminal_shows_the_newest_list_alone(
    watch: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert watch(listed(RUNNING), listed(DONE)) == 130
    first, second = terminal.getvalue().split("\x1b[H\x1b[2J")[1:]
    assert "RUNNING" in first
    assert "SUCCEEDED" in second


def test_json_and_a_list_that_changes_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit) as caught:
        show.jobs.body(Context(), watch=True, json=True)
    assert caught.value.code == 2
    assert "--watch: cannot be combined with --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("left_out", "last", "words"),
    [
        (1, "1", "1 older job not shown; use --last 2 or --all\n"),
        (30, "0", "30 older jobs not shown; use --last 20 or --all\n"),
        (0, "1", ""),
    ],
)
def test_older_jobs_that_are_left_out_are_counted(
    watch: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    left_out: int,
    last: str,
    words: str,
) -> None:
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: MagicMock())
    monkeypatch.setattr(listing, "list_jobs", lambda *_: replace(listed(DONE), left_out=left_out))
    show.jobs.body(Context(), last=last)
    assert capsys.readouterr().err == words


def test_what_a_head_moved_aside_is_named_and_is_no_failure(
    watch: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: MagicMock())
    aside = ["node000000: ~/.ranklift/queue.json.damaged-0a"]
    monkeypatch.setattr(listing, "list_jobs", lambda *_: replace(listed(DONE), aside=aside))
    show.jobs.body(Context())
    assert capsys.readouterr().err == (
        "node000000: ~/.ranklift/queue.json.damaged-0a was damaged, and is moved aside: remove it once you "
        "have looked at it\n"
    )
