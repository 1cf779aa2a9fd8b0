"""The newest job as the default of every task that takes a job."""

from __future__ import annotations

from collections.abc import Sequence

from invoke.exceptions import ParseError

__all__ = ["NEWEST", "with_newest"]

NEWEST = "newest"
"""What stands for the newest job wherever a job's id is expected."""
_MISSING = "did not receive required positional arguments: 'job'"


def with_newest(error: ParseError, words: Sequence[str]) -> list[str] | None:
    """Return the command line with the newest job for the task that lacks one; None for any other error.

    The argument stays a required one: Invoke would take a job's name that is a task's name too as that task.
    """
    context = error.context
    if context is None or not str(error).endswith(_MISSING):
        return None
    place = max(n for n, one in enumerate(words, 1) if one in (context.name, *context.aliases))
    given = ["--job", NEWEST]
    return None if [*words[place : place + 2]] == given else [*words[:place], *given, *words[place:]]
