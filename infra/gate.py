"""The gate: the program waits under Pulumi's lock until the command that runs it has done its work.

Nodes are removed by their ids before the scale set's capacity is lowered. Pulumi allows one update at a time
on a stack, so no other can come between: `fab` opens a gate for the update, the program reports that it has
arrived, and continues when it is let through.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from launch.errors import GiveUpError

__all__ = ["KEY", "Gate", "pass_gate"]

KEY = "RANKLIFT_GATE"
"""The environment variable that names the gate's folder to the program."""
_CAME, _ANSWER, _KEEPER = "came", "answer", "keeper"
_POLL_S = 0.05


class Gate:
    """The command's side: does ``work`` once when the program has arrived."""

    def __init__(self, folder: Path, work: Callable[[], object]) -> None:
        self.folder = folder
        self.error: BaseException | None = None
        """Why the program was refused."""
        self.has_worked = False
        """Whether the work was begun."""
        self._work = work
        self._is_answered = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the gate open; a waiting program ends by itself when the keeper is gone."""
        self.folder.mkdir()
        with (self.folder / _KEEPER).open("wb") as keeper:
            fcntl.flock(keeper, fcntl.LOCK_EX)
            yield

    def attend(self) -> None:
        """Do the work if the program has arrived and has no answer yet; keep what it raises in ``error``."""
        if self._is_answered or not (self.folder / _CAME).exists():
            return
        self._is_answered = self.has_worked = True
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  Ctrl-C too: the program must be answered
            self.error = error
        self._answer("" if self.error is None else f"nothing was updated: {self.error or 'interrupted'}")

    def refuse(self, reason: str) -> None:
        """Refuse the program, arrived or not; work already done is not undone."""
        if not self._is_answered:
            self._is_answered = True
            self._answer(f"nothing was updated: {reason}")

    def _answer(self, text: str) -> None:
        new = self.folder / f"{_ANSWER}.new"
        new.write_text(text)
        new.rename(self.folder / _ANSWER)


def pass_gate(environment: Mapping[str, str]) -> None:
    """Wait at the gate that the environment names, if any, until the program may continue.

    Raises :class:`~launch.errors.GiveUpError` if it is refused, or the command that keeps the gate has ended.
    """
    name = environment.get(KEY)
    if not name:
        return
    folder = Path(name)
    try:
        (folder / _CAME).touch()
        with (folder / _KEEPER).open("rb") as keeper:
            while (text := _answer(folder)) is None:
                if _is_abandoned(keeper.fileno()) and _answer(folder) is None:
                    raise GiveUpError("nothing was updated: the command that started this update was killed")
                time.sleep(_POLL_S)
    except OSError as error:
        raise GiveUpError(f"nothing was updated: {KEY} = {name}: {error.strerror}") from None
    if text:
        raise GiveUpError(text)


def _answer(folder: Path) -> str | None:
    try:
        return (folder / _ANSWER).read_text()
    except FileNotFoundError:
        return None


def _is_abandoned(keeper: int) -> bool:
    try:
        fcntl.flock(keeper, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
