"""What every task shares: help, errors, exit status, project and stack.

Exit statuses: 0 done, 1 failed, 2 wrong input, 130 Ctrl-C, 141 the reader of stdout has gone (as of a program
that SIGPIPE ends); a job's or a remote command's own where one ran.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task

from infra.inventory import Inventory
from launch import durations
from launch.errors import InputError, JobFailed, ManyNodesError, NodeUnreachable, RankliftError
from launch.numbers import whole
from playbooks.cli import output
from playbooks.cli.core_options import refuse_dry_setting
from playbooks.project import Stack, find_project, open_stack
from playbooks.unwritable import unwritable

__all__ = [
    "HELP",
    "SHORT",
    "command",
    "limit_help",
    "open_from",
    "project_of",
    "seconds",
    "seconds_left",
    "with_address_age",
]

HELP = {
    "stack": "stack to work on (default: RANKLIFT_STACK, else the one `pulumi stack select` chose)",
    "nodes": "names, instance ids and ranges of both: 0-3,node000007; all; any:4 (default: all)",
    "job": "job id, a unique beginning of it or of its last part, or newest (default: newest)",
    "json": "print the result as JSON",
    "dry-run": "print what would be done, without any connection or cloud call",
}
"""Help of arguments that mean the same in every task, by name; a task may override it."""


SHORT = {
    **{"stack": "s", "nodes": "n", "node": "n", "json": "j", "all": "a", "yes": "y", "detach": "d"},
    **{"follow": "f", "tail": "t", "rank": "r", "grep": "g", "merge": "m"},
}
"""The letters of options, by name: in every task the same."""


class _Task(Task[Any]):
    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in SHORT and name not in getattr(self.body, "counts", ()):
            options["names"].append(SHORT[name])
        return options


def limit_help(default: str) -> str:
    """Return the help of a ``--timeout`` with that default."""
    return f"give up after this many seconds (default: {default}); 90s, 10m and 2h are accepted too"


def command(
    name: str,
    *,
    example: str,
    help: dict[str, str] | None = None,
    called: str | None = None,
    counts: Sequence[str] = (),
    **options: Any,
) -> Callable[[Callable[..., None]], Task[Any]]:
    """Return a decorator that makes a task with ``example`` in its help and the module's exit statuses.

    ``called`` is what users type when that is not the task's name: the name of a collection whose default
    task it is. ``counts`` are options that take a number where other tasks take names: they get no letter.
    """

    def decorate(function: Callable[..., None]) -> Task[Any]:
        @functools.wraps(function)
        def body(context: Context, *arguments: Any, **keywords: Any) -> None:
            try:
                refuse_dry_setting(context.config)
                for given in options.get("positional", ()):
                    _refuse_option((name, called or name), given, str(keywords.get(given, "")))
                function(context, *arguments, **keywords)
            except InputError as error:
                raise _ended(error, 2) from None
            except JobFailed as error:
                raise _ended(error, error.exit_status or 1) from None
            except RankliftError as error:
                raise _ended(error, 1) from None
            except KeyboardInterrupt:
                output.progress("interrupted")
                raise Exit(code=130) from None
            except BrokenPipeError:
                # `fab logs | head`: the reader has gone. Python would complain again at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise Exit(code=141) from None
            except OSError as error:
                refusal = unwritable(error)
                if refusal is None:
                    raise
                raise _ended(refusal, 2) from None

        # Invoke prints the docstring as the task's help, line breaks and all.
        body.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nExample:\n    {example}\n"
        parameters = inspect.signature(function).parameters
        known = {key: text for key, text in HELP.items() if key.replace("-", "_") in parameters}
        options.setdefault("auto_shortflags", False)
        body.example, body.counts = example, counts  # type: ignore[attr-defined]
        return _Task(body, name=name, help={**known, **(help or {})}, **options)

    return decorate


def _refuse_option(names: tuple[str, str], argument: str, value: str) -> None:
    """Refuse an option in an argument's place, where Invoke takes any word; for ``--help`` print the help."""
    if value in ("--help", "-h"):
        from fabric.main import program

        called = next(n for n, word in enumerate(sys.argv) if n and word.rpartition(".")[2] in names)
        program.run([*sys.argv[:called], "--help", sys.argv[called]])
    if value.startswith("-") and whole(value) is None:  # a task refuses a negative number itself
        remedy = f"give {argument} first, and see `fab {names[1]} --help`"
        raise InputError(argument, value, "looks like an option, but the task has no such option", remedy)


def open_from(context: Context, stack: str | None) -> Stack:
    """Return the stack that a task's ``--stack`` and the fabfile's settings name.

    Raises :class:`~launch.errors.InputError` when it does not exist.
    """
    return open_stack(project_of(context), stack)


def project_of(context: Context) -> Path:
    """Return the project folder that the fabfile's settings name, else the one around the current folder.

    Raises :class:`~launch.errors.InputError` when there is none.
    """
    settings = context.config.get("ranklift") or {}
    # The only place where Invoke keeps the fabfile's folder.
    prefix = getattr(context.config, "_project_prefix", None)
    return find_project(settings.get("project"), Path(prefix) if prefix else None)


def seconds(key: str, text: str, *, none: bool = False) -> float:
    """Return the seconds of a duration as users write it.

    >>> seconds("--timeout", "90"), seconds("--timeout", "10m"), seconds("--timeout", "1.5h")
    (90.0, 600.0, 5400.0)

    Raises :class:`~launch.errors.InputError` naming ``key`` for anything else, and for 0 unless ``none``.
    """
    remedy = "write it like 0, 10s or 2m" if none else "write it like 90, 90s, 10m or 2h"
    span = durations.seconds(text)
    if span is None:
        raise InputError(key, text, "is not a duration", remedy)
    if span > durations.LONGEST_S:
        raise InputError(key, text, "is more than 365 days", remedy)
    if span < 0 or (span == 0 and not none):
        raise InputError(key, text, "must be 0 or more" if none else "must be more than 0", remedy)
    return span


def seconds_left(deadline: float) -> float:
    """Return the seconds until ``deadline``, a :func:`time.monotonic` time; 1 at least."""
    return max(1.0, deadline - time.monotonic())


def with_address_age(inventory: Inventory, error: ManyNodesError) -> ManyNodesError:
    """Add the age of the saved addresses to an error that wrong addresses may have caused."""
    if any(isinstance(failure, NodeUnreachable) for failure in error.errors.values()):
        hint = (
            f"\naddresses are {output.age(inventory.read_at)} old; `fab status` reads them from Azure again"
        )
        error.args = (f"{error}{hint}",)
    return error


def _ended(error: RankliftError, status: int) -> Exit:
    output.error(error)
    return Exit(code=status)
