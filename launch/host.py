"""The interface between what the project does on nodes and the transport that reaches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

__all__ = ["Completed", "Host"]


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ran to its end on a node."""

    exit_status: int
    """128+n when signal n ended the command."""
    stdout: bytes
    """Empty when the output was streamed."""
    stderr: bytes
    """The end of stderr, where there was more than is kept."""
    stdout_left_out: int = 0
    """Number of bytes of stdout before those kept."""
    stderr_left_out: int = 0


class Host(Protocol):
    """A node on which commands can be run, in the home folder of its user.

    Both methods raise :class:`~launch.errors.NodeUnreachable`, :class:`~launch.errors.HostKeyChanged` and,
    when ``timeout`` seconds are over, :class:`~launch.errors.StepTimeout`. A command that fails raises
    nothing: its exit status says so.
    """

    @property
    def name(self) -> str:
        """The node's computer name."""

    def run(
        self, argv: Sequence[str], /, *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        """Run ``argv`` and keep its output: all of stdout, the end of stderr.

        Raise :class:`~launch.errors.GiveUpError` when stdout is longer than any answer.
        """

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        """Run ``argv`` and pass its stdout to ``on_stdout`` as it arrives."""
