"""The interface to the cluster: the project, and the ``fab`` program, run as a user would run it."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from launch.azureml.exceptions import ExperimentExecutionException
from launch.azureml.notices import write_line
from launch.errors import MissingTool
from launch.project_folder import project_around

__all__ = ["Answer", "Fab", "project_folder"]

_FABFILE = "from playbooks import ns\n"
_CHUNK = 1 << 16
_GIVE_UP_S = 20.0


def project_folder() -> Path | None:
    """Return the project's folder: RANKLIFT_PROJECT, else the nearest around the current folder.

    Return None without one. A fabfile may name another project, which commands then use. Raise
    :class:`~launch.errors.InputError` as :func:`~launch.project_folder.project_around`.
    """
    named = os.environ.get("RANKLIFT_PROJECT")
    if named:
        return Path(named).expanduser()
    return project_around(Path.cwd())


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's exit status and output."""

    status: int
    out: str
    error: str
    """stderr from the line that begins with ``error:`` on; all of it without such a line."""


class Fab:
    """A runner of tasks on one stack, ``None`` for the chosen one, from the current folder.

    The fabfile is the one in or above the current folder; without one, the tasks are Ranklift's alone.
    """

    def __init__(self, stack: str | None, reworded: Callable[[str], str] = str) -> None:
        """``reworded`` returns a line of stderr, and an error, as they are shown."""
        self.stack, self._reworded = stack, reworded

    def json(self, *words: str) -> Any:
        """Run a task with ``--json`` and return its output, parsed.

        Raise ExperimentExecutionException with the task's own error, MissingTool without ``fab``.
        """
        found, problem = self._json(words)
        if problem:
            raise ExperimentExecutionException(problem)
        return found

    def jobs(self, *words: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return the records of ``fab jobs``, and why some may be missing: a silent node, a damaged record;
        "" where none is. Raise as :meth:`json` when no record can be listed."""
        return self._json(("jobs", "--all", *words))

    def _json(self, words: Sequence[str]) -> tuple[Any, str]:
        answer = self.run([*words, "--json"])
        problem = self._explained(answer) if answer.status != 0 else ""
        try:
            return json.loads(answer.out), problem
        except ValueError:
            said = answer.out.strip() or "nothing"
            no_json = f"`fab {words[0]}` did not print JSON but: {said}"
            raise ExperimentExecutionException(problem or no_json) from None

    def run(
        self,
        words: Sequence[str],
        on_line: Callable[[str], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Answer:
        """Run a task; its lines go to ``on_line`` as they arrive, its progress to ``on_note`` (stderr).

        An interrupt of this call interrupts the task too.
        """
        notes = _Notes(on_note or self._note)
        out: list[str] = []
        with tempfile.TemporaryDirectory(prefix="ranklift-") as spare:
            argv = [*_program(Path(spare)), *words, *(["--stack", self.stack] if self.stack else [])]
            with subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                try:
                    assert process.stdout is not None and process.stderr is not None  # noqa: S101
                    _pump({process.stdout: on_line or out.append, process.stderr: notes})
                    status = process.wait()
                except BaseException:
                    _interrupt(process)
                    raise
        return Answer(status, "\n".join(out), self._reworded(notes.error()))

    def _note(self, line: str) -> None:
        if shown := self._reworded(line):
            write_line(shown, sys.stderr)

    def _explained(self, answer: Answer) -> str:
        text = answer.error.removeprefix("error: ") or f"fab ended with exit status {answer.status}"
        if (
            self.stack
            and text.startswith(f"stack = {self.stack!r}:")
            and not os.environ.get("RANKLIFT_STACK")
        ):
            text += (
                f"\ncompute target {self.stack} was read as a stack's name; RANKLIFT_STACK can name another"
            )
        return text


class _Notes:
    """A filter that passes lines on until one begins an error, which it keeps for the exception."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        self._pass_on = pass_on
        self._passed: list[str] = []
        self._kept: list[str] = []

    def __call__(self, line: str) -> None:
        if self._kept or line.startswith("error: "):
            self._kept.append(line)
        else:
            self._passed.append(line)
            self._pass_on(line)

    def error(self) -> str:
        return "\n".join(self._kept or self._passed[-10:])


def _program(spare: Path) -> list[str]:
    beside = Path(sys.executable).with_name("fab")
    fab = str(beside) if beside.is_file() else shutil.which("fab")
    if fab is None:
        raise MissingTool("fab", f"install Ranklift into the environment of {sys.executable}")
    here = Path.cwd()
    if any(
        (folder / "fabfile.py").is_file() or (folder / "fabfile").is_dir() for folder in (here, *here.parents)
    ):
        return [fab]
    project = project_folder()
    named = f"ns.configure({{'ranklift': {{'project': {str(project)!r}}}}})\n" if project else ""
    (spare / "fabfile.py").write_text(_FABFILE + named)
    return [fab, "--search-root", str(spare)]


def _pump(sinks: dict[IO[bytes], Callable[[str], None]]) -> None:
    rest = dict.fromkeys(sinks, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in sinks:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                stream: Any = key.fileobj
                data = os.read(key.fd, _CHUNK)
                *lines, rest[stream] = (rest[stream] + data).split(b"\n")
                if not data:
                    selector.unregister(stream)
                    lines = [rest[stream]] if rest[stream] else []
                for line in lines:
                    sinks[stream](line.decode("utf-8", "replace"))


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GIVE_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
