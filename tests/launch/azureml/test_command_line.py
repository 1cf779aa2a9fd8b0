"""Arguments reach each process byte for byte; nothing but the launcher's own variables expands."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launch.azureml.command_line import joined, line, strings
from launch.azureml.exceptions import UserErrorException
from launch.azureml.experiment import _yaml
from launch.job.rank_env import EXPANDED
from launch.jobfile import read
from launch.jobfile.interpolation import filled
from launch.remote.node.rank_env import expand

ENV = {"LOCAL_RANK": "3", "RANK": "11", "HOME": "/root", "PATH": "/usr/bin:/bin", "NODE_RANK": "a b*"}
TORTURE = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "\\",
    "a\\\nb",
    "\t\n",
    "*",
    "~",
    "$HOME",
    "$(id)",
    "`id`",
    "!x",
    "#",
    "-n",
    "é😀\x7f\x85\u2028",
    "${{inputs.x}}",
    "{inputs.x}",
    "{outputs.y}",
    "$[[z]]",
    "$$",
    "$",
    "${",
    "$RANKS",
    "${RANK",
    "'${{'",
]
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
PIECES = st.one_of(TEXT, st.sampled_from([*TORTURE, "$RANK", "${LOCAL_RANK}", "$NODE_RANK", "{"]))
WORDS = st.lists(st.lists(PIECES, max_size=4).map("".join), max_size=5)


def words_of(text: str, env: Mapping[str, str]) -> list[str]:
    """The arguments that a process started by bash gets."""
    done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def test_every_kind_of_character_arrives() -> None:
    assert words_of(line(["printf", "%s\\0", "first", *TORTURE]), ENV) == ["first", *TORTURE]


@settings(max_examples=60, deadline=None)
@given(WORDS)
@example(TORTURE)
def test_words_arrive_as_the_launcher_would_expand_them(words: list[str]) -> None:
    # From a job file too, whose own names for inputs and outputs they may look like.
    text = line(["printf", "%s\\0", "first", *words])
    assert words_of(text, ENV) == ["first", *expand(words, list(EXPANDED), ENV)]


@settings(max_examples=60, deadline=None)
@given(WORDS)
@example(TORTURE)
def test_a_job_file_takes_them_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    path = tmp_path_factory.mktemp("job") / "job.yml"
    text = line(["python", "train.py", *words])
    path.write_text(_yaml({"command": text, "code": "."}))
    job = read(path)
    assert filled(job.command, {}, job.places["command"]) == text


def test_a_variable_inside_a_word_expands_with_what_stands_around_it() -> None:
    words = ["--local_rank=$LOCAL_RANK", "${RANK}of", "$LOCAL_RANK$RANK", "$NODE_RANK"]
    # Values are not split into words, and no pattern in them matches files.
    assert words_of(line(["printf", "%s\\0", *words]), ENV) == ["--local_rank=3", "11of", "311", "a b*"]


def test_arguments_that_are_no_text_become_text() -> None:
    assert strings([1, 0.5, True, Path("a/b"), "x"]) == ["1", "0.5", "True", "a/b", "x"]
    assert strings(("--epochs", 50)) == ["--epochs", "50"]


def test_a_command_is_one_line_for_a_shell_as_it_is() -> None:
    assert joined("echo $NODE_RANK && ls *") == "echo $NODE_RANK && ls *"
    assert joined(["bash", "-c", "echo", "$NODE_RANK"]) == "bash -c echo $NODE_RANK"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a\0b"], "hold a NUL byte"),
        (["a" * 131072], "are 131072 bytes, the limit is 126976"),
        (["\udcff"], "hold bytes that are not UTF-8"),
    ],
)
def test_what_no_process_can_be_given_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UserErrorException, match=f"^arguments: {problem}"):
        line(words)


@pytest.mark.parametrize(("given", "problem"), [("a 'b", "no closing quotation"), (7, "is not a list")])
def test_arguments_that_are_no_words_are_refused(given: object, problem: str) -> None:
    with pytest.raises(UserErrorException, match=problem):
        strings(given)
