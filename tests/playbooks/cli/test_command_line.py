"""Whose each word on a command line is: repeated arguments, command lines in quotes, behind -- and bare."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from launch.errors import InputError
from playbooks.cli.command_line import arranged, shell_word
from tests.playbooks.typed import fab


def contexts() -> dict[str, ParserContext]:
    return {
        "wait": ParserContext(
            "wait",
            args=[
                Argument("job", kind=list, positional=True),
                Argument("timeout"),
                Argument("json", kind=bool, default=False),
            ],
        ),
        "logs": ParserContext(
            "logs",
            args=[
                Argument("job", positional=True),
                Argument(names=("follow", "f"), kind=bool, default=False),
            ],
        ),
        "data.put": ParserContext(
            "data.put",
            args=[Argument("source", positional=True), Argument("path", kind=list, positional=True)],
        ),
        "status": ParserContext("status"),
        "launch.torch": ParserContext(
            "launch.torch",
            args=[
                Argument("line", positional=True),
                Argument(names=("nodes", "n")),
                Argument("detach", kind=bool, default=False),
            ],
        ),
        "exec": ParserContext(
            "exec", args=[Argument("line", positional=True), Argument(names=("nodes", "n"))]
        ),
    }


def parsed(*words: str) -> dict[str, object]:
    """The values of the last task's arguments, and the names of other tasks."""
    known = contexts()
    end = words.index("--") if "--" in words else len(words)
    parser = Parser(contexts=list(known.values()), initial=ParserContext())
    found: dict[str, object] = {}
    for context in parser.parse_argv(arranged(words[:end], words[end + 1 :], known)):
        if context.args and context.name:
            found.update(context.as_kwargs)
        elif context.name:
            found[context.name] = True
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
        ("logs", {"job": "newest", "follow": False}),
        ("logs -f", {"job": "newest", "follow": True}),
        ("logs -f a", {"job": "a", "follow": True}),
        ("logs --job a", {"job": "a", "follow": False}),
        ("logs a status", {"job": "a", "follow": False, "status": True}),
        ("status logs -f", {"job": "newest", "follow": True, "status": True}),
        ("logs logs", {"job": "logs", "follow": False}),
        ("logs -f status", {"job": "status", "follow": True}),
    ],
)
def test_a_job_that_is_not_given_is_the_newest_and_no_task_is_run_by_a_jobs_name(
    words: str, expected: dict[str, object]
) -> None:
    assert parsed(*words.split()) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("data.put a", {"source": "a", "path": []}),
        ("data.put a status", {"source": "a", "path": ["status"]}),
        ("data.put status wait", {"source": "status", "path": ["wait"]}),
        ("data.put a b status", {"source": "a", "path": ["b"], "status": True}),
        ("status data.put a wait", {"source": "a", "path": ["wait"], "status": True}),
    ],
)
def test_no_task_is_run_by_a_paths_name(words: str, expected: dict[str, object]) -> None:
    assert parsed(*words.split()) == expected


@pytest.mark.parametrize("words", ["wait --jsn", "status a", "a wait", "wait a --timeout"])
def test_what_is_wrong_stays_wrong(words: str) -> None:
    with pytest.raises(ParseError):
        parsed(*words.split())


@pytest.mark.parametrize(
    ("words", "line", "nodes"),
    [
        (["launch.torch", "train.py --lr 0.1", "--nodes", "0-3"], "train.py --lr 0.1", "0-3"),
        (["launch.torch", "-n", "0", "--", "train.py", "--lr", "0.1"], "train.py --lr 0.1", "0"),
        (["launch.torch", "--", "train.py", "--nodes", "3"], "train.py --nodes 3", None),
        (["exec", "--nodes=0", "--", "echo", "a b", "$HOME", "*"], "echo 'a b' '$HOME' '*'", "0"),
        (["exec", "-n3", "--", "status"], "status", "3"),
        (["exec", "--", "echo", "--"], "echo --", None),
        (["exec", "status"], "status", None),
    ],
)
def test_a_command_line_is_one_word_or_what_follows_two_dashes(
    words: list[str], line: str, nodes: str | None
) -> None:
    found = parsed(*words)
    assert (found["line"], found["nodes"]) == (line, nodes)


WORDS = [
    "plain",
    "a b",
    "it's",
    '"',
    "$HOME",
    "$RANKS",
    "`id`",
    "\\",
    "*",
    "~",
    "!x",
    "é",
    "",
    "\n",
    "--x=$1;y",
]


def test_words_behind_two_dashes_reach_bash_and_the_launcher_as_they_are() -> None:
    line = parsed("exec", "--", "printf", "%s\\0", *WORDS)["line"]
    assert isinstance(line, str)
    ran = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"HOME": "/x"})
    assert ran.stdout.decode().split("\0")[:-1] == WORDS
    launched = parsed("launch.torch", "--", "a.py", *WORDS)["line"]
    assert isinstance(launched, str)
    assert shlex.split(launched) == ["a.py", *WORDS]


def test_variables_of_the_launcher_expand_behind_two_dashes_too() -> None:
    line = parsed("launch.torch", "--", "a.py", "--out=/x $RANK/$HOME", "${LOCAL_RANK}")["line"]
    ran = subprocess.run(
        ["bash", "-c", f"echo {line}"], capture_output=True, check=True, env={"RANK": "3", "LOCAL_RANK": "1"}
    )
    assert ran.stdout == b"a.py --out=/x 3/$HOME 1\n"


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["launch.torch", "train.py", "--lr", "0.1"], 'fab launch.torch "train.py --lr 0.1"'),
        (["launch.torch", "train.py", "--lr=0.1", "-v"], 'fab launch.torch "train.py --lr=0.1 -v"'),
        (
            ["launch.torch", "--detach", "train.py", "-n", "0-3", "--lr", "0.1", "--name", "my run"],
            "fab launch.torch --detach \"train.py --lr 0.1 --name 'my run'\" -n 0-3",
        ),
        (["launch.torch", "a.py", "$RANK"], "fab launch.torch 'a.py \"${RANK}\"'"),
        (["exec", "echo", "$HOME"], "fab exec \"echo '\\$HOME'\""),
        (["exec", "nvidia-smi", "-L", "--nodes=0"], 'fab exec "nvidia-smi -L" --nodes=0'),
        (["exec", "echo", "it's", "!"], None),
        (["launch.torch", "a.py", "x", "--nodes", "0 1"], "fab launch.torch \"a.py x\" --nodes '0 1'"),
    ],
)
def test_a_command_line_that_was_not_quoted_is_refused_with_the_one_to_type(
    words: list[str], typed: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        parsed(*words)
    remedy = caught.value.remedy.removeprefix("put it in quotes: ")
    assert typed in (None, remedy)
    # What a shell makes of it is what was meant, and is taken.
    ran = subprocess.run(["bash", "-c", f"printf '%s\\0' {remedy}"], capture_output=True, check=True)
    again = ran.stdout.decode().split("\0")[1:-1]
    line = parsed(*again)["line"]
    assert isinstance(line, str)
    options = [word for word in again if word != line]
    assert sorted([*shlex.split(line.replace('"${RANK}"', "'$RANK'")), *options]) == sorted(words)


def test_the_line_to_type_has_what_came_before_the_task() -> None:
    with pytest.raises(InputError, match=r"quotes: fab --echo -c 'my file' status exec .ls -l.$"):
        arranged(["status", "exec", "ls", "-l"], [], contexts(), ["--echo", "-c", "my file"])


def test_an_option_is_suggested_where_one_may_have_been_misspelt() -> None:
    with pytest.raises(InputError, match=r"\(or did you mean --nodes\?\)$"):
        parsed("launch.torch", "train.py", "--nods", "0-3")
    with pytest.raises(
        InputError, match=r"^option = '--nods': exec has no such option; did you mean --nodes\?$"
    ):
        parsed("exec", "--nods", "3", "hostname")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["launch.torch", "a.py", "--", "b"], "one command line, not two; .*: fab launch.torch -- a.py b$"),
        (["status", "--", "ls", "a b"], r"no task takes .*: fab exec --nodes 0-3 -- ls 'a b'$"),
        (["exec", "ls", "status", "--", "x"], "no task takes the words after it"),
    ],
)
def test_what_follows_two_dashes_needs_one_task_that_takes_it(words: list[str], error: str) -> None:
    with pytest.raises(InputError, match=error):
        parsed(*words)


@pytest.mark.parametrize(
    "text", [*WORDS, "train.py --name 'a b'", 'a "b" $C', "a 'b' \"c\" $D \\ `e`", "x'!'y"]
)
def test_a_word_for_a_shell_is_that_word(text: str) -> None:
    ran = subprocess.run(["bash", "-c", f"printf %s {shell_word(text)}"], capture_output=True, check=True)
    assert ran.stdout.decode() == text


def test_typed_without_a_task_it_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text("from playbooks import ns\n")
    for words in (["ssh", "--node", "3", "--", "echo", "a b"], ["--", "echo", "a b"]):
        ran = fab(tmp_path, *words)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.startswith("error: -- = ")
        assert "no task takes the words after it; give it to exec: fab exec --nodes 0-3 -- echo" in ran.stderr
