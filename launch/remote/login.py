"""What a node's login prints, kept apart from the output of the command that was started over ssh.

sshd has the user's shell run the command, and bash then reads ~/.bashrc first (bash(1), "INVOCATION"; so does
zsh with ~/.zshenv). Whatever these print comes before the command's output, on the same stream. So the line
that the shell runs begins with a mark, and what comes before the mark is the login's.
"""

from __future__ import annotations

__all__ = ["SILENCE_LOGIN", "Login", "marked", "own_output"]

SILENCE_LOGIN = "remove that from the shell's start-up files, such as ~/.bashrc, or print it where `[ -t 1 ]`"
"""What a user does about a login that prints."""

_MARK = b"\x02ranklift\x03\n"
_PRINT_MARK = "printf '\\002ranklift\\003\\n'"
_KEPT = 4096
"""Bytes of what a login prints that are kept."""
_SHOWN = 80
"""Characters of it in a message."""


def marked(line: str) -> str:
    """Return a line for a node's shell that prints the mark first.

    On a line of its own: a shell that reads the rest and finds it wrong has printed the mark by then.
    """
    return f"{_PRINT_MARK}\n{line}"


class Login:
    """The output of one command that a node's shell was given as a :func:`marked` line."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the mark has come."""
        self._before = bytearray()
        self._unsure = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of ``data``, the next piece of the output, is the command's own.

        >>> login = Login()
        >>> login.feed(b"Welcome\\n\\x02rank"), login.feed(b"lift\\x03\\n4 nodes"), login.printed
        (b'', b'4 nodes', "'Welcome'")
        """
        if self.is_over:
            return data
        before, mark, after = (self._unsure + data).partition(_MARK)
        self.is_over = bool(mark)
        keep = 0 if mark else len(_MARK) - 1
        self._unsure = before[-keep:] if keep else b""
        before = before[: len(before) - len(self._unsure)]
        self._before += before[: _KEPT - len(self._before)]
        return after

    @property
    def printed(self) -> str:
        """The first line that the login printed, in quotes; empty where it printed nothing."""
        lines = bytes(self._before if self.is_over else self._before + self._unsure).split(b"\n")
        first = next((line.strip() for line in lines if line.strip()), b"")
        return repr(first.decode("utf-8", "replace")[:_SHOWN]) if first else ""

    @property
    def problem(self) -> str:
        """Why the command was not run, of a shell that has ended; empty once the mark has come."""
        if self.is_over:
            return ""
        printed = f", after it had printed {self.printed}" if self.printed else ""
        why = "a start-up file of its shell, such as ~/.bashrc, ends it"
        return f"its login ended before the command{printed}: {why}"


def own_output(output: bytes) -> bytes:
    """Return the part of a whole output that is the command's own."""
    return Login().feed(output)
