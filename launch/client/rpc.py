"""One command of the node code on a head: its command line, its answer and its errors."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TypedDict, TypeVar

from launch.errors import GiveUpError, InputError, NoSuchJob, NotPushed
from launch.host import Completed, Host
from launch.remote.base import frames, job_dir, timing
from launch.remote.cli import NO_COMMAND, NO_RECORDS, REFUSED, UNPUSHED
from launch.remote.reading import Malformed, parse, read

__all__ = ["MOST_NAMED", "Drop", "ask", "check", "code_of", "readable", "rpc_argv", "version_there"]

_Answer = TypeVar("_Answer")
Drop = Callable[[object, Malformed], object]
"""Gets malformed records that are left out of an answer: the first :data:`MOST_NAMED`."""
MOST_NAMED = 20
_NO_SUCH_FILE, _NOT_FOUND = 2, 127
_VERSIONS = "ls -t .ranklift/remote 2>/dev/null"
"""Shell command that lists a node's versions of the node code, newest first."""


class _CodePath(TypedDict):
    """The field of a plan that names its node code."""

    remote: str


def rpc_argv(remote: str, *words: str) -> list[str]:
    """Return the argv of a command of :mod:`launch.remote.cli`, by version ``remote`` of the node code.

    >>> rpc_argv("0123456789ab", "list")
    ['python3', '-I', '-S', '.ranklift/remote/0123456789ab/__main__.py', 'list']
    """
    return ["python3", "-I", "-S", f".ranklift/remote/{remote}/__main__.py", *words]


def code_of(plan: bytes, node: str) -> str:
    """Return the id of the node code that runs the job whose job.json ``node`` has. Raise
    :class:`~launch.errors.GiveUpError` for a plan that is torn or of another version."""
    try:
        return PurePosixPath(read(_CodePath, job_dir.parse_plan(plan))["remote"]).name
    except Malformed as error:
        raise GiveUpError(f"{node}: its job.json is damaged: {error}") from None
    except job_dir.OtherVersion as error:
        remedy = "repeat the command with the version of Ranklift that launched the job"
        raise GiveUpError(f"{node}: {error}: {remedy}") from error
    except job_dir.Torn as error:
        raise GiveUpError(f"{node}: {error}: the head went down while it was written") from error


def version_there(
    node: Host, wanted: str | None, timeout: float = timing.STEP_S, *, with_jobs: bool = False
) -> str | None:
    """Return the version of the node code to run on the node, ``wanted`` or the newest; None without one, and
    ``with_jobs`` also without a job."""
    line = f"test -d .ranklift/jobs && {_VERSIONS}" if with_jobs else _VERSIONS
    present = node.run(["sh", "-c", line], timeout=timeout).stdout.decode("utf-8", "replace").split()
    return wanted if wanted in present else next(iter(present), None)


def ask(
    _answer: type[_Answer],
    head: Host,
    remote: str,
    *words: str,
    timeout: float = timing.STEP_S,
    job: str | None = None,
    drop: Drop | None = None,
    most: int = sys.maxsize,
) -> _Answer:
    """Run a command of version ``remote`` of the node code on the head; return its answer, of this type and
    at most ``most`` bytes.

    ``drop`` gets malformed records that are left out of it, as by :func:`launch.remote.reading.read`: the
    first :data:`MOST_NAMED`, the last of which says that there are more.

    Raise :class:`~launch.errors.NoSuchJob` when the head has no records of ``job``, and
    :class:`~launch.errors.GiveUpError` when the head cannot answer.
    """
    done = head.run(rpc_argv(remote, *words), timeout=timeout)
    check(done, head, job)
    if len(done.stdout) > most:
        problem = f"its answer to {' '.join(words)} has {len(done.stdout)} bytes, at most {most} are read"
        raise GiveUpError(f"{head.name}: {problem}")
    with readable(head):
        for kind, payload in frames.Decoder().feed(done.stdout):
            if kind == frames.STATE:
                return read(_answer, parse(payload), drop and _first(drop))
    raise GiveUpError(f"{head.name}: no answer to {' '.join(words)}")


def _first(drop: Drop) -> Drop:
    numbers = itertools.count(1)

    def some(record: object, error: Malformed) -> None:
        number = next(numbers)
        if number == MOST_NAMED:
            error = Malformed(f"{error.problem}; more may be damaged, and are not named", error.where)
        if number <= MOST_NAMED:
            drop(record, error)

    return some


@contextmanager
def readable(head: Host) -> Iterator[None]:
    """Raise :class:`~launch.errors.GiveUpError`, naming the likely writer, where the node's answer is not
    made of frames, or one of them does not hold what it should."""
    try:
        yield
    except (frames.ProtocolError, Malformed) as error:
        raise GiveUpError(
            f"{head.name}: its answer cannot be decoded ({error}); a start-up file of the shell there, such "
            "as ~/.bashrc, may write to stdout: `fab exec` shows what, before the output of any command; "
            "or a job has changed the records in ~/.ranklift there"
        ) from None


def check(done: Completed, head: Host, job: str | None = None) -> None:
    """Raise the errors of :func:`ask` unless the command exited with status 0."""
    if done.exit_status == 0:
        return
    lines = done.stderr.strip().splitlines()  # as bytes, which split at line feeds and returns only
    last = lines[-1].decode("utf-8", "replace") if lines else f"exit status {done.exit_status}"
    if done.exit_status == NO_RECORDS:
        raise NoSuchJob(job, last)
    if done.exit_status == REFUSED and last.startswith(NO_COMMAND):
        raise GiveUpError(f"{head.name}: its node code is older than this command: `fab push` renews it")
    if done.exit_status == REFUSED:
        raise InputError("job", job, last, "see `fab jobs`")
    if done.exit_status == _NO_SUCH_FILE and job is not None:
        why = f"the code that runs job {job} is not there: the node was replaced, or its ~/.ranklift removed"
        raise NotPushed(head.name, f"{why}; `fab collect {job}` brings what other nodes have of the job")
    if done.exit_status in (UNPUSHED, _NO_SUCH_FILE):
        raise NotPushed(head.name, f"{last}: push first")
    if done.exit_status == _NOT_FOUND:
        raise GiveUpError(f"{head.name} lacks python3 ({last}): use an image that has it")
    raise GiveUpError(f"{head.name}: {last}")
