"""What ``fab collect`` shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from launch.errors import NodeUnreachable
from launch.results.download import CollectReport, NodeFiles, Progress
from playbooks.jobs.collect import format_report, progress_bar, remarks


def report(**more: NodeFiles | Exception) -> CollectReport:
    return CollectReport(Path("results/job"), more)


def test_what_came_is_told_in_one_line() -> None:
    assert format_report(report(a=NodeFiles(2, 0, 1500), b=NodeFiles(1, 3, 500, continued=1))) == (
        "results/job: 3 files, 2.0 kB from 2 nodes, 1 of them continued, 3 already copied"
    )
    gone = NodeUnreachable("b", "no answer")
    assert (
        format_report(report(a=NodeFiles(2, 0, 1500), b=gone)) == "results/job: 2 files, 1.5 kB from 1 node"
    )


def test_what_the_user_may_not_expect_is_told_by_name_without_moving_the_cursor() -> None:
    files = NodeFiles(
        1,
        0,
        1,
        renamed={"outputs/a/m": "outputs/a/m.~2~"},
        vanished=("outputs/old",),
        skipped={"outputs/\x1b[2J": "is a socket, a pipe or a device"},
    )
    assert list(remarks(report(a=files))) == [
        "outputs/a/m differs from the file on a, which is saved as outputs/a/m.~2~",
        "outputs/old was removed on a meanwhile",
        "'outputs/\\x1b[2J' on a is a socket, a pipe or a device: skipped",
    ]


def test_many_alike_are_not_all_told() -> None:
    vanished = tuple(f"outputs/{number}" for number in range(100))
    shown = list(remarks(report(a=NodeFiles(1, 0, 1, vanished=vanished))))
    assert (len(shown), shown[-1]) == (21, "and 80 more like it on a")


def test_names_with_braces_are_names() -> None:
    assert list(remarks(report(a=NodeFiles(1, 0, 1, vanished=("outputs/{node}",))))) == [
        "outputs/{node} was removed on a meanwhile"
    ]


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm")
        with progress_bar() as show:
            Progress(show).add(total=2_000_000, come=500_000)
        shown = ""
        while "MB" not in shown:
            shown += os.read(ours, 65536).decode("utf-8", "replace")
    os.close(ours)
    assert "collecting" in shown
    assert "0.5/2.0 MB" in shown


def test_anything_else_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as show:
        Progress(show).add(total=1, come=1)
    assert capsys.readouterr() == ("", "")
