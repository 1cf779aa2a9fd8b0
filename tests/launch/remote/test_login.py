"""The output of a command is told from what the login has printed before it, however the pieces come."""

from __future__ import annotations

import subprocess

import pytest

from launch.remote.login import Login, marked, own_output

BANNERS = [b"", b"Welcome\n", b"Welcome", b"\x02rank", b"\x02ranklift\x02", b"\xff\n\x00" * 3000]


def output_of(line: str, before: bytes = b"") -> bytes:
    ran = subprocess.run(["sh", "-c", marked(line)], stdout=subprocess.PIPE, check=False)
    return before + ran.stdout


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("banner", BANNERS, ids=repr)
def test_the_command_has_its_own_output(banner: bytes, size: int) -> None:
    whole = output_of("printf 'of its own\\n\\002ranklift\\003\\n'", banner)
    login = Login()
    found = b"".join(login.feed(whole[at : at + size]) for at in range(0, len(whole), size))
    assert found == own_output(whole) == b"of its own\n\x02ranklift\x03\n"
    assert (login.is_over, login.problem) == (True, "")


@pytest.mark.parametrize(
    ("banner", "shown"),
    [(b"", ""), (b"\n Welcome \nto X\n", "'Welcome'"), (b"Wel", "'Wel'"), (b"a" * 999, repr("a" * 80))],
)
def test_the_first_line_of_a_login_is_shown(banner: bytes, shown: str) -> None:
    login = Login()
    login.feed(output_of("true", banner))
    assert login.printed == shown


def test_a_login_that_ends_before_the_command_is_named_with_what_it_printed() -> None:
    login = Login()
    login.feed(b"Maintenance\n")
    assert login.problem == (
        "its login ended before the command, after it had printed 'Maintenance': a start-up file of its "
        "shell, such as ~/.bashrc, ends it"
    )


def test_a_line_that_the_shell_does_not_understand_is_no_fault_of_the_login() -> None:
    login = Login()
    login.feed(output_of("'"))
    assert login.problem == ""
