"""What ``fab --help TASK`` prints: how the task is called, its text, and its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from invoke.parser.context import ParserContext

from playbooks.cli import output
from playbooks.cli.table_layout import refilled

__all__ = ["Forms", "print_help_of", "usage"]

_NUMBERS = (
    *("after", "code", "count", "device", "fanout", "last", "max-restarts", "nodes-limit", "nproc-per-node"),
    *("number", "parameter-servers", "port", "rate", "repeat", "tail", "warm-up", "workers"),
)
_FILES = ("conda", "config", "registry-token", "requirements", "sas-file", "svg")
_FOLDERS = ("collected", "find-links", "into", "node-python", "search-root", "source", "target")
_FORMS = {
    **dict.fromkeys(_NUMBERS, "INT"),
    **dict.fromkeys(("grace", "hang-after", "seconds", "since", "timeout"), "SECONDS"),
    **dict.fromkeys(_FILES, "FILE"),
    **dict.fromkeys(_FOLDERS, "FOLDER"),
    **dict.fromkeys(("allow-path", "output", "path", "python"), "PATH"),
    **dict.fromkeys(("collection", "container", "environment", "fill", "list", "name", "stack"), "NAME"),
    **{"env": "NAME[=VALUE]", "file": "FILE", "grep": "PATTERN", "help": "TASK", "input": "NAME=ADDRESS"},
    **{"job": "JOB", "line": "COMMAND", "metric": "NAME=PATTERN", "node": "NODE", "nodes": "NODES"},
    **{"print-completion-script": "SHELL", "rank": "RANKS", "reason": "TEXT", "set": "KEY=VALUE"},
}
"""Forms of values, by the option; TEXT for others."""
_WORDS = {"line": "COMMAND"}
"""Positional arguments whose name is not what users call them."""


class Forms(ParserContext):
    """Help that shows the form of every value; Invoke calls all of them STRING, and shows none of those that
    may be repeated."""

    def help_for(self, flag: str) -> tuple[str, str]:
        """Return an option as it is typed, and its help."""
        spec, text = super().help_for(flag)
        argument = self.flags[flag]
        form = _FORMS.get(argument.names[0], "TEXT")
        return (f"{spec}={form}" if argument.kind is list else spec.replace("STRING", form)), text


def usage(called: str, context: ParserContext) -> str:
    """Return how a task is called.

    >>> from invoke.parser.argument import Argument
    >>> usage("scale", ParserContext("scale", args=[Argument("number", positional=True), Argument("stack")]))
    'fab scale NUMBER [--options]'
    >>> usage("logs", ParserContext("logs", args=[Argument("job", positional=True)]))
    'fab logs [JOB] [--options]'
    """
    words = []
    for argument in context.positional_args:
        name = argument.names[0]
        word = _WORDS.get(name, name.upper())
        more = " ..." if name == "job" and argument.kind is list else ""
        words.append(f"[{word}{more}]" if name == "job" or argument.kind is list else word)
    return " ".join(["fab", called, *words, *(["[--options]"] if context.args else [])])


def print_help_of(
    task: Any, called: str, context: ParserContext, print_columns: Callable[[Any], object], *, is_ours: bool
) -> None:
    """Print a task's help; the text of one of ours is filled to the width of the terminal."""
    if is_ours:
        context.__class__ = Forms
    text = refilled(inspect.getdoc(task) or "none", output.line_width() - 2).splitlines()
    lines = [f"  {line}" if line.strip() else "" for line in text]
    output.result("\n".join([f"Usage: {usage(called, context)}", "", *lines, "", "Options:"]))
    pairs = context.help_tuples()
    if pairs:
        print_columns(pairs)
    else:
        output.result("  none")
