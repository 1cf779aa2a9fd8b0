"""Changes to Invoke's command line: the form of options' values in help, errors with a remedy.

For an unknown word Invoke prints ``No idea what 'extra' is!`` and ends with status 1. Most such words are the
rest of a command line that was not quoted.
"""

from __future__ import annotations

import ast
import atexit
import difflib
import gc
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fabric.exceptions import NothingToDo
from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext

from launch.errors import InputError
from playbooks.cli import output, signals
from playbooks.cli.newest_job import with_newest

__all__ = ["improve_command_line", "parse_repeated", "parser_error", "with_flag"]

_FORMS = {"env": "NAME[=VALUE]", "job": "JOB", "set": "KEY=VALUE"}
_UNKNOWN = re.compile(r"No idea what (?P<word>.*) is!", re.DOTALL)


class _Context(ParserContext):
    """Help in which options that may be repeated show the form of their value."""

    def help_for(self, flag: str) -> tuple[str, str]:
        spec, text = super().help_for(flag)
        argument = self.flags[flag]
        return (f"{spec}={_FORMS.get(argument.name, 'TEXT')}" if argument.kind is list else spec), text


def improve_command_line() -> None:
    """Change the ``fab`` that runs, if one does, in four ways.

    Errors on its command line end as tasks' errors do; help shows the form of repeated options' values;
    Ctrl-C ends a user's own task as it ends ours; and an argument that a task names both under ``positional``
    and under ``iterable`` may be left out or repeated. Invoke copies collections and tasks, so that neither
    can carry this.
    """
    main = sys.modules.get("fabric.main")
    if main is None:
        return
    program = main.program
    parse, show, run = program.parse_tasks, program.print_task_help, program.execute

    def parse_tasks() -> None:
        try:
            parse_repeated(parse, program.core)
        except ParseError as error:
            names = list(program.collection.task_names)
            output.error(parser_error(error, sys.argv[1:], names))
            raise Exit(code=2) from None

    def print_task_help(name: str) -> None:
        program.parser.contexts[name].__class__ = _Context
        show(name)

    def execute() -> None:
        try:
            signals.raise_on_interrupt()
            # Python's last garbage collection, over all that was imported, takes 40 ms of every command
            atexit.register(gc.freeze)
            run()
        except NothingToDo:  # Fabric runs what follows -- on the hosts of its own -H
            line = program.core.remainder
            remedy = f"put it in quotes: fab exec {shlex.quote(line)} --nodes 0-3"
            output.error(InputError("--", line, "no task takes the words after it", remedy))
            raise Exit(code=2) from None
        except KeyboardInterrupt:  # of a user's own task; ours print it themselves
            output.progress("interrupted")
            raise Exit(code=130) from None

    program.parse_tasks, program.print_task_help, program.execute = parse_tasks, print_task_help, execute


def parse_repeated(parse: Callable[[], None], core: Any) -> None:
    """Call ``parse`` on ``core.unparsed`` with flags inserted before arguments that may be repeated.

    Invoke takes a positional argument only where it is required. A job that is not given is the newest.

    Raises :class:`~invoke.exceptions.ParseError`.
    """
    while True:
        try:
            parse()
        except ParseError as error:
            words = with_flag(error, core.unparsed) or with_newest(error, core.unparsed)
            if words is None:
                raise
            core.unparsed = words
        else:
            return


def with_flag(error: ParseError, words: Sequence[str]) -> list[str] | None:
    """Return the command line with the flag of a repeated argument before the word unknown to Invoke.

    None when the word is not such an argument.
    """
    unknown = _UNKNOWN.fullmatch(str(error))
    context = error.context
    if unknown is None or context is None:
        return None
    word = str(ast.literal_eval(unknown["word"]))
    argument = next((one for one in context.positional_args if one.kind is list), None)
    if argument is None or word.startswith("-"):
        return None
    begin = next((n for n, one in enumerate(words) if one in (context.name, *context.aliases)), None)
    if begin is None:
        return None
    for place in range(begin + 1, len(words)):
        flag = context.flags.get(words[place - 1])
        if words[place] == word and (flag is None or not flag.takes_value):
            return [*words[:place], f"--{argument.name}", *words[place:]]
    return None


def parser_error(error: ParseError, words: Sequence[str], tasks: Sequence[str]) -> InputError:
    """Return the parser's error with a remedy."""
    unknown = _UNKNOWN.fullmatch(str(error))
    context = error.context
    task = _typed(context, words)
    if unknown is None or context is None:
        problem = str(error).rstrip("!.")
        return InputError(
            "command line", None, problem, f"see `fab --help {task}`" if task else "see `fab --list`"
        )
    word = str(ast.literal_eval(unknown["word"]))
    if word.startswith("-"):
        close = difflib.get_close_matches(word.partition("=")[0], list(context.flags), n=1)
        remedy = (
            f"did you mean {close[0]}?"
            if close
            else f"see `fab --help {task}`"
            if task
            else "see `fab --help`"
        )
        return InputError("option", word, f"{task or 'fab'} has no such option", remedy)
    taken = [str(argument.value) for argument in context.positional_args if argument.value is not None]
    if task is None or not taken:
        close = difflib.get_close_matches(word, tasks, n=1)
        remedy = f"did you mean {close[0]}?" if close else "see `fab --list`"
        return InputError("task", word, "no such task", remedy)
    if (argument := context.positional_args[-1].name) != "line":
        return InputError("word", word, f"{task} takes one {argument}", f"see `fab --help {task}`")
    line = _whole_line(taken[-1], word, words)
    if line is None:
        return InputError("word", word, f"{task} takes no further words", f"see `fab --help {task}`")
    return InputError("word", word, f"{task} takes the command line as one word", f"put it in quotes: {line}")


def _typed(context: ParserContext | None, words: Sequence[str]) -> str | None:
    """Return the name under which a task was called."""
    if context is None:
        return None
    return next((name for name in (*context.aliases, context.name) if name in words), context.name)


def _whole_line(taken: str, word: str, words: Sequence[str]) -> str | None:
    """Return the words from ``taken`` up to the next option as one word in quotes."""
    pairs = list(itertools.pairwise(words))
    if (taken, word) not in pairs:
        return None
    first = pairs.index((taken, word))
    together = " ".join(itertools.takewhile(lambda other: not other.startswith("-"), words[first:]))
    quote = "'" if re.search(r'["$`\\!]', together) else '"'
    return None if quote in together else f"{quote}{together}{quote}"
