"""On a terminal the lines of an error end between words, never in what somebody copies."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from launch.errors import InputError, InputErrors, ManyNodesError, RankliftError
from playbooks.cli import output
from playbooks.cli.table_layout import wrapped_lines
from tests.playbooks.typed import on_terminal, write_project

PATH = "/home/azureuser/.ranklift/jobs/train-20261122-120148-c8c2/logs/rank-0.log"
KEPT = [
    PATH,
    "/home/ann/my own clusters/ranklift/Pulumi.dev.yaml",
    "'a value of several words that is longer than a line'",
    '"a value: with punctuation; and (more) of it"',
    "`az group delete --name ranklift-dev --subscription 0000`",
    'fab exec --nodes 0-3,7 -- ls -l "my; file" --all',
    "sudo modprobe tun && sudo chmod 666 /dev/net/tun",
    "https://learn.microsoft.com/en-us/azure/virtual-machines/sizes",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(error: Exception, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of 40 columns as stderr shows of an error."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    output.error(error)
    return terminal.getvalue()


def test_a_long_error_continues_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    error = InputError("nodeCount", 0, "must be at least 1", "set it to the number of nodes wanted")
    assert shown(error, monkeypatch) == (
        "error: nodeCount = 0: must be at least\n  1; set it to the number of nodes\n  wanted\n"
    )


def test_each_of_several_errors_keeps_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [InputError(key, 1, "is odd, as far as anybody can tell", "double it") for key in ("a", "b")]
    assert shown(InputErrors(errors), monkeypatch) == (
        "error: a = 1: is odd, as far as anybody\n  can tell; double it\n"
        "b = 1: is odd, as far as anybody can\n  tell; double it\n"
    )


@pytest.mark.parametrize("whole", KEPT)
@pytest.mark.parametrize("before", ["", "it is", "node000000: nothing of what it has is in"])
def test_what_is_copied_is_never_broken(whole: str, before: str) -> None:
    text = f"{before} {whole}; correct it, or leave it out and wait until all of them have ended".strip()
    wrapped = wrapped_lines(text, 40)
    assert whole in wrapped
    assert [line for line in wrapped.split("\n") if whole not in line and len(line) > 40] == []
    assert wrapped.replace("\n  ", " ") == text


def test_a_folder_here_is_whole_though_its_name_has_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "my own clusters" / "dev").mkdir(parents=True)
    monkeypatch.chdir(folder)
    text = f"nothing of it is in {folder.parent}; look for it in {folder} or write it anew"
    printed = shown(RankliftError(text), monkeypatch)
    assert f"{folder.parent};" in printed
    assert f"{folder} or" in printed.replace("\n  or", " or")


def test_an_apostrophe_opens_no_quote() -> None:
    text = "the nodes' clocks and the job's files are all of them older than the operator's own"
    assert max(map(len, wrapped_lines(text, 30).split("\n"))) <= 30


def test_what_ranks_printed_and_commands_after_a_prompt_stay_as_they_are() -> None:
    text = (
        "first failure:\n  rank 5: a line of its own that is longer\n$ fab up --stack dev --timeout 2h --yes"
    )
    assert wrapped_lines(text, 20) == text


def test_wide_characters_count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RankliftError("漢字漢字漢字漢字 漢字漢字漢字漢字 漢字漢字漢字漢字")
    assert shown(error, monkeypatch) == "error: 漢字漢字漢字漢字 漢字漢字漢字漢字\n  漢字漢字漢字漢字\n"


def test_elsewhere_lines_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output.error(ManyNodesError("listing jobs", {"node000000": RankliftError("no answer " * 20)}))
    assert capsys.readouterr().err.splitlines()[1] == f"node000000: {'no answer ' * 20}"


def test_a_command_wraps_its_error_at_its_terminals_width(tmp_path: Path) -> None:
    write_project(tmp_path, "dev", fabfile=True)
    lines = on_terminal(tmp_path, 50, "up", "--stack", "dev", "--timeout", "soon").splitlines()
    assert len(lines) > 1
    assert max(map(len, (line.replace("\x1b[1;31m", "").replace("\x1b[0m", "") for line in lines))) <= 50
