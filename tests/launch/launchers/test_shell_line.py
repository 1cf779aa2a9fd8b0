"""Lines of a shell are read without one, as far as that is sure, in time that grows with their length."""

from __future__ import annotations

import pytest

from launch.launchers.shell_line import simple_commands


def texts(line: str) -> list[list[str]]:
    return [[word.text for word in command] for command in simple_commands(line)]


@pytest.mark.parametrize("line", ["echo a; echo ${B", "echo a\necho '", "echo a && ${A ${B ${C"])
def test_what_is_not_closed_ends_the_reading_behind_the_commands_before_it(line: str) -> None:
    """bash refuses such a line as a whole."""
    commands = simple_commands(line)
    assert [word.text for word in next(commands)] == ["echo", "a"]
    with pytest.raises(ValueError, match="No closing"):
        next(commands)


def test_what_is_handed_on_as_a_file_is_no_command() -> None:
    for line in ("cat <<END\ntorchrun a.py\nEND\necho b\n", "cat <<-END\n\ttorchrun a.py\n\tEND\necho b\n"):
        found = texts(line)
        assert ["torchrun", "a.py"] not in found
        assert found[-1] == ["echo", "b"]


def test_a_file_without_its_last_line_does_not_hide_the_commands_behind_it() -> None:
    assert texts("cat <<END\necho a\n") == [["cat", "<<END"], ["echo", "a"]]


@pytest.mark.parametrize(
    "line",
    ["${A" * 300_000, "".join(f"cat <<E{number}\n" for number in range(100_000))],
    ids=["braces", "files"],
)
def test_a_hostile_line_is_read_to_its_end(line: str) -> None:
    """Each part once: minutes of processor time otherwise."""
    try:
        assert len(texts(line)) == 100_000
    except ValueError as error:
        assert str(error) == "No closing brace"
