"""The seam between what the project does on nodes and how it gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

__all__ = ["Completed", "Host"]


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ran to its end on a node."""

    exit_status: int
    """128+n when signal n ended it."""
    stdout: bytes
    """Empty when the output was streamed."""
    stderr: bytes
    """Its end, where there was more than is kept."""
    stdout_left_out: int = 0
    """Bytes that came before what is kept of it."""
    stderr_left_out: int = 0


class Host(Protocol):
    """One node on which commands can be run, in the home folder of its user.

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
        """Runs ``argv`` and keeps its output, which its caller reads: all of stdout, the end of stderr.

        Raises :class:`~launch.errors.GiveUpError` when there is more of stdout than any answer has.
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
        """Runs ``argv`` and hands its stdout to ``on_stdout`` as it comes."""
