"""What users see: goldens for tables and merged output, one style of error, JSON of the same records."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from launch.errors import InputError, ManyNodesError, NodeUnreachable
from playbooks.cli import output

GOLDEN = Path(__file__).parent / "golden"


def test_a_table_is_never_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(
        ("name", "id", "address", "ssh"),
        [
            ("node000000", 0, "127.64.0.1:50000", "yes"),
            ("node00000a", 10, "", "no: it has no address yet " * 4),
        ],
    )
    assert capsys.readouterr().out == (GOLDEN / "table.txt").read_text()


def test_lines_name_rank_and_node(capsys: pytest.CaptureFixture[str]) -> None:
    output.log([3], ["node000001"], b"loss 0.25")
    output.log([None], ["node000000"], b"mpirun noticed")
    output.log([0], ["node000000"], b"aside", to_stderr=True)
    ran = capsys.readouterr()
    assert ran.out == "[3 node000001] loss 0.25\n[launcher node000000] mpirun noticed\n"
    assert ran.err == "[0 node000000] aside\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_ranks_that_say_the_same_are_folded(capsys: pytest.CaptureFixture[str]) -> None:
    output.log([0, 1, 2, 5, 7], ["node000000", "node000001", "node00000a"], b"epoch 1")
    output.log([None, 0], ["node000000"], b"warning")
    assert capsys.readouterr().out == (
        "[0-2,5,7 node[000000-000001,00000a]] epoch 1\n[launcher,0 node000000] warning\n"
    )


def test_bytes_of_a_line_survive_where_there_is_no_terminal(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    output.log([0], ["node000000"], b"\xff\x00\x1b[31mred\x1b[0m\x08\xc3\xa9")
    assert capfdbinary.readouterr().out == b"[0 node000000] \xff\x00red\x08\xc3\xa9\n"


def test_a_terminal_gets_colours_and_obeys_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.log([0], ["node000000"], b"\x1b[31mred\x1b[2J\x07\xff \xc3\xa9\ttab")
    shown = terminal.getvalue()
    assert shown.endswith("\x1b[31mred^G\\xff é\ttab\x1b[0m\n")
    monkeypatch.setenv("NO_COLOR", "1")
    output.log([0], ["node000000"], b"\x1b[31mred")
    assert terminal.getvalue() == shown + "[0 node000000] red\n"


def test_what_is_said_of_a_rank_is_told_apart_from_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    output.log([3], ["node000001"], b"left out 12.3 MB, 240,112 lines", "notice")
    assert capsys.readouterr().out == "[3 node000001] (left out 12.3 MB, 240,112 lines)\n"


def test_no_colours_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.error(InputError("--nodes", "x", "is no range", "write it like 0-3,7"))
    output.command(["pulumi", "up", "--stack", "a b"])
    output.log([1], ["node000000"], b"\x1b[31mtext\x1b[0m", "stderr")
    ran = capsys.readouterr()
    assert ran.err == "error: --nodes = 'x': is no range; write it like 0-3,7\n$ pulumi up --stack 'a b'\n"
    assert "\x1b" not in ran.out


def test_an_error_of_many_nodes_folds_those_that_failed_alike(capsys: pytest.CaptureFixture[str]) -> None:
    results = {f"node{n:06d}": NodeUnreachable(f"node{n:06d}", "refused") if n else None for n in range(4)}
    output.error(ManyNodesError("push", results))
    expected = "error: push failed on 3 of 4 nodes\nnode[000001-000003]: refused\n"
    assert capsys.readouterr().err == expected


def test_json_is_the_same_records(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(frozen=True)
    class Record:
        name: str
        when: datetime
        secret: str = field(repr=False, default="hidden")

    output.as_json(
        [Record("é", datetime(2026, 3, 1, tzinfo=UTC)), NodeUnreachable("a", "b"), Path("/x"), b"y"]
    )
    assert json.loads(capsys.readouterr().out) == [
        {"name": "é", "when": "2026-03-01T00:00:00+00:00"},
        {"error": "a: b", "kind": "NodeUnreachable"},
        "/x",
        "y",
    ]


def test_json_is_alone_on_stdout_whatever_is_printed_meanwhile(capfd: pytest.CaptureFixture[str]) -> None:
    with output.stdout_to_stderr(when=True):
        output.result("a result of a step")
        subprocess.run(["echo", "a line of Pulumi"], check=True, timeout=30)
    output.as_json(["done"])
    printed = capfd.readouterr()
    assert json.loads(printed.out) == ["done"]
    assert sorted(printed.err.splitlines()) == ["a line of Pulumi", "a result of a step"]
    with output.stdout_to_stderr(when=False):
        output.result("a result")
    assert capfd.readouterr() == ("a result\n", "")


def test_stdout_is_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), output.stdout_to_stderr(when=True):
        raise KeyboardInterrupt
    subprocess.run(["echo", "back"], check=True, timeout=30)
    output.result("here")
    assert sorted(capfd.readouterr().out.split()) == ["back", "here"]


_HOSTILE = "\x1b]52;c;Y3VybA==\x07\x1b[6n[/red] [link=x]y \x9b2J \u202eevil"
"""Writes the clipboard, asks for the cursor, ends markup of rich, clears the screen, turns writing."""


def test_a_progress_bar_shows_a_nodes_text_and_obeys_nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(output, "_REDRAW_S", -1.0)
    with output.progress_bar(_HOSTILE) as update:
        update(_HOSTILE, 1, 2)
    shown = terminal.getvalue()
    assert "[/red] [link=x]y \\x9b2J \\u202eevil" in shown
    assert [one for one in ("\x1b]52", "\x1b[6n", "\x9b", "\u202e") if one in shown] == []


def test_a_question_shows_a_nodes_text_and_obeys_nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr("builtins.input", answer)
    assert output.ask(f"End job {_HOSTILE}?")
    assert asked == ["End job [/red] [link=x]y \\x9b2J \\u202eevil? [y/N] "]


def test_progress_of_a_node_is_a_line_each_and_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    show = output.bounded_progress()
    for number in range(1500):
        show(f"{number}\n" + "x" * 1_000_000)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1001
    assert max(map(len, said)) <= 400
    assert said[1].startswith("1 xxx")
    assert said[-1] == "1000 lines of progress were printed; further ones are left out"


def test_without_stdin_there_is_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert output.ask("Remove it?") is None
