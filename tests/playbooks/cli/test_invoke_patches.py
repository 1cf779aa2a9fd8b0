"""What Invoke's parser is taught: arguments that may be left out, or given more than once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from playbooks.cli.invoke_patches import parse_repeated
from tests.playbooks.typed import fab


def parsed(*words: str) -> dict[str, object]:
    """The values of ``wait``'s and ``logs``'s arguments, ``status`` being another task."""
    wait = ParserContext(
        "wait",
        args=[
            Argument("job", kind=list, positional=True),
            Argument("timeout"),
            Argument("json", kind=bool, default=False),
        ],
    )
    logs = ParserContext(
        "logs",
        args=[Argument("job", positional=True), Argument(names=("follow", "f"), kind=bool, default=False)],
    )
    core = SimpleNamespace(unparsed=list(words))
    found: dict[str, object] = {}

    def parse() -> None:
        result = Parser(contexts=[wait, logs, ParserContext("status")], initial=ParserContext()).parse_argv(
            core.unparsed
        )
        for context in result:
            if context.name == "wait":
                found.update(context.as_kwargs)
            elif context.name == "logs":
                found["logs"] = (context.as_kwargs["job"], context.as_kwargs["follow"])
            elif context.name:
                found[context.name] = True

    parse_repeated(parse, core)
    return found


NOTHING: dict[str, object] = {"job": [], "timeout": None, "json": False}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("wait", {}),
        ("wait a", {"job": ["a"]}),
        ("wait a b", {"job": ["a", "b"]}),
        ("wait a a", {"job": ["a", "a"]}),
        ("wait a --timeout 3 b --json c", {"job": ["a", "b", "c"], "timeout": "3", "json": True}),
        ("wait --timeout a a", {"job": ["a"], "timeout": "a"}),
        ("wait --json a", {"job": ["a"], "json": True}),
        ("wait --job a b", {"job": ["a", "b"]}),
        ("wait a status", {"job": ["a"], "status": True}),
        ("status wait a", {"job": ["a"], "status": True}),
    ],
)
def test_words_that_nobody_else_takes_are_the_repeated_argument(
    words: str, expected: dict[str, object]
) -> None:
    assert parsed(*words.split()) == NOTHING | expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("logs", {"logs": ("newest", False)}),
        ("logs -f", {"logs": ("newest", True)}),
        ("logs -f a", {"logs": ("a", True)}),
        ("logs a status", {"logs": ("a", False), "status": True}),
        ("status logs -f", {"logs": ("newest", True), "status": True}),
        ("logs logs", {"logs": ("logs", False)}),
        ("logs -f status", {"logs": ("status", True)}),
    ],
)
def test_a_job_that_is_not_given_is_the_newest_and_no_task_is_run_by_a_jobs_name(
    words: str, expected: dict[str, object]
) -> None:
    assert parsed(*words.split()) == expected


@pytest.mark.parametrize("words", ["wait --jsn", "status a", "a wait", "wait a --timeout"])
def test_what_is_wrong_stays_wrong(words: str) -> None:
    with pytest.raises(ParseError):
        parsed(*words.split())


def test_a_command_line_after_two_dashes_is_told_where_it_goes(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text("from playbooks import ns\n")
    ran = fab(tmp_path, "ssh", "--node", "3", "--", "echo", "a b")
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: -- = 'echo a b': no task takes the words after it; "
        "put it in quotes: fab exec 'echo a b' --nodes 0-3\n"
    )
