"""The words after ``fab``: whose each is, what follows ``--``, and command lines that were not quoted."""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from invoke.exceptions import ParseError
from invoke.parser.context import ParserContext

from launch.errors import InputError
from launch.launchers.shell_line import joined
from playbooks.selection import NEWEST

__all__ = ["arranged", "no_such_task", "parser_error", "shell_word", "typed_name"]

_UNKNOWN = re.compile(r"No idea what (?P<word>.*) is!", re.DOTALL)
_MISSING = re.compile(r"'(?P<task>.*)' did not receive required positional arguments: '(?P<argument>\w+)'.*")
_Contexts = Mapping[str, ParserContext]
_HELP = ("--help", "-h")
_NOUNS = {"line": "a command", "file": "a job file", "number": "a number of nodes"}
"""What a task needs, by the name of its argument."""

_WORDS = 3
"""Words of the longest ``fab config``, whose value may be any word."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A task on the command line; words are given by their places."""

    context: ParserContext
    place: int
    own: list[int] = field(default_factory=list)
    """Words that are neither options nor their values."""

    @property
    def argument(self) -> str:
        """The name of the task's last argument; empty without one."""
        return str(self.context.positional_args[-1].name) if self.context.positional_args else ""

    @property
    def takes_many(self) -> bool:
        """Whether its last argument may be left out or repeated."""
        return any(one.kind is list for one in self.context.positional_args)

    @property
    def due(self) -> int:
        """How many of the next words are its own, also where one is a task's name: paths, but not jobs."""
        if self.argument == "words":
            return _WORDS - len(self.own)
        return _required(self.context) + (self.takes_many and self.argument != "job") - len(self.own)


def arranged(
    words: Sequence[str],
    rest: Sequence[str],
    contexts: _Contexts,
    front: Sequence[str] = (),
) -> list[str]:
    """Return the words of tasks as Invoke takes them.

    ``rest`` is what follows ``--``: it becomes the command line of the last task, which gets each word as it
    is. An argument that may be repeated, which Invoke does not know, gets its flag. A job that is not given
    is the newest. ``front`` is what comes before the first task, for errors.

    Raise :class:`~launch.errors.InputError` for a command line of several words, with the line to type.
    """
    calls = _calls(words, contexts)
    is_all = bool(rest and calls) and calls[-1].argument == "line" and not calls[-1].own
    if is_all and rest[0].startswith("-"):
        if rest[0] in _HELP:
            return [*words, rest[0]]
        if not _is_module(calls[-1], rest[0]):
            problem, remedy = (
                "begins with an option",
                "put options of fab before --, and the command after it",
            )
            raise InputError("--", shlex.join(rest), problem, remedy)
    for call in calls:
        if call.argument == "line" and not {*_HELP} & {*words}:
            _check_line(call, [*front, *words], len(front), rest if call is calls[-1] else ())
    if rest and (not calls or calls[-1].argument != "line"):
        remedy = f"give it to exec: fab exec --nodes 0-3 -- {shlex.join(rest)}"
        raise InputError("--", shlex.join(rest), "no task takes the words after it", remedy)
    made: list[str] = []
    jobs = {call.place for call in calls if call.argument == "job" and not (call.own or call.takes_many)}
    many = {
        place: call.argument
        for call in calls
        if call.takes_many
        for place in call.own[_required(call.context) :]
    }
    for place, word in enumerate(words):
        made += [f"--{many[place]}"] if place in many and not word.startswith("-") else []
        made += [word, "--job", NEWEST] if place in jobs and "--job" not in words[place:] else [word]
    if not rest:
        return made
    line = _line(calls[-1], rest)
    return [*made, f" {line}" if line.startswith("-") else line]  # Invoke takes a word with - for an option


def _calls(words: Sequence[str], contexts: _Contexts) -> list[_Call]:
    calls: list[_Call] = []
    wants_value = False
    for place, word in enumerate(words):
        call = calls[-1] if calls else None
        if wants_value:
            wants_value = False
        elif call is not None and (flag := _flag(call.context, word)):
            wants_value = call.context.flags[flag].takes_value and word == flag
        elif call is not None and call.due > 0:
            call.own.append(place)
        elif word in contexts:
            calls.append(_Call(contexts[word], place))
        elif call is not None:
            call.own.append(place)
    return calls


def _flag(context: ParserContext, word: str) -> str | None:
    """Return the option that a word is, or begins with, as in ``--nodes=3`` and ``-n3``."""
    if not word.startswith("-"):
        return None
    name = word.partition("=")[0]
    if name in context.flags:
        return name
    return word[:2] if not word.startswith("--") and word[:2] in context.flags else None


def _required(context: ParserContext) -> int:
    return sum(one.kind is not list for one in context.positional_args)


def _check_line(call: _Call, words: Sequence[str], shift: int, rest: Sequence[str]) -> None:
    places = [shift + place for place in call.own]
    task = words[shift + call.place]
    if not places:
        return
    first = words[places[0]]
    if _is_module(call, first):
        typed = [word for place in places for word in words[place].split(" ")]
        others = [word for place, word in enumerate(words) if place not in places]
        remedy = f"put all of it behind --: fab {shlex.join([*others, '--', *typed, *rest])}"
        raise InputError("word", first, f"is no option of {task}", remedy)
    if first.startswith("-"):
        raise _no_such_option(call.context, task, first)
    if len(places) == 1 and not rest:
        return
    typed = [words[place] for place in places]
    options = [place for place in range(len(words)) if place not in places]
    if rest:
        fixed = [*(words[place] for place in options), "--", *typed, *rest]
        remedy = f"put all of it behind --: fab {shlex.join(fixed)}"
        raise InputError("word", first, f"{task} takes one command line, not two", remedy)
    line = shell_word(_line(call, typed))
    kept = sorted([*options, places[0]])
    fixed = [line if place == places[0] else shlex.quote(words[place]) for place in kept]
    close = _close(typed[1], call.context) if typed[1].startswith("-") else None
    remedy = f"put it in quotes: fab {' '.join(fixed)}" + (f" (or did you mean {close}?)" if close else "")
    raise InputError("word", typed[1], f"{task} takes the command line as one word", remedy)


def _is_module(call: _Call, word: str) -> bool:
    """Return whether a word begins a command as Python and torchrun take it: ``-m pkg.train``."""
    return call.context.name != "exec" and word.startswith(("-m", "--module"))


def _line(call: _Call, words: Sequence[str]) -> str:
    """Return the words as one line; a launcher's variables in them expand, as everywhere in a launch."""
    return shlex.join(words) if call.context.name == "exec" else joined(words)


def shell_word(text: str) -> str:
    """Return a text quoted for a shell, in the quotes that are easiest to read.

    >>> print(shell_word("train.py --name 'a b'"), shell_word('a.py "$RANK"'), shell_word("a.py $RANK 'b'"))
    "train.py --name 'a b'" 'a.py "$RANK"' "a.py \\$RANK 'b'"
    """
    if not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    if "'" not in text:
        return f"'{text}'"
    # A ! in double quotes is the history of an interactive bash, with or without a backslash.
    return shlex.quote(text) if "!" in text else '"{}"'.format(re.sub(r'(["$`\\])', r"\\\1", text))


def parser_error(
    error: ParseError,
    words: Sequence[str],
    contexts: _Contexts,
    examples: Mapping[str, str],
) -> InputError:
    """Return the parser's error with a remedy; ``examples`` are those of the tasks."""
    context = error.context
    missing = _MISSING.fullmatch(str(error))
    task = None if context is None else typed_name(context, words)
    if missing is not None:
        name, argument = missing["task"], missing["argument"]
        see = f"see `fab --help {task}`"
        remedy = f"e.g. {examples[name]}" if name in examples else see
        return InputError(task or name, None, f"needs {_NOUNS.get(argument, f'a {argument}')}", remedy)
    unknown = _UNKNOWN.fullmatch(str(error))
    if unknown is None or context is None:
        see = f"see `fab --help {task}`" if task else "see `fab --list`"
        return InputError("command line", None, str(error).rstrip("!."), see)
    word = str(ast.literal_eval(unknown["word"]))
    if word.startswith("-"):
        return _no_such_option(context, task, word)
    if task is None or not any(argument.value is not None for argument in context.positional_args):
        return no_such_task(word, contexts)
    last = context.positional_args[-1]
    within = f"{task}.{last.value}"
    remedy = f"did you mean fab {within} {word}?" if within in contexts else f"see `fab --help {task}`"
    return InputError("word", word, f"{task} takes one {last.name}", remedy)


def no_such_task(word: str, contexts: _Contexts) -> InputError:
    """Return the error for a word that is no task's name."""
    close = difflib.get_close_matches(word, _names(contexts), n=1)
    return InputError(
        "task", word, "no such task", f"did you mean {close[0]}?" if close else "see `fab --list`"
    )


def _names(contexts: _Contexts) -> Iterable[str]:
    return [name for context in contexts.values() for name in (context.name, *context.aliases) if name]


def _no_such_option(context: ParserContext, task: str | None, word: str) -> InputError:
    close = _close(word, context)
    see = f"see `fab --help {task}`" if task else "see `fab --help`"
    remedy = f"did you mean {close}?" if close else see
    return InputError("option", word, f"{task or 'fab'} has no such option", remedy)


def _close(word: str, context: ParserContext) -> str | None:
    """Return the option that a misspelt one is most similar to."""
    flags = [flag for flag, argument in context.flags.items() if not argument.positional]
    return next(iter(difflib.get_close_matches(word.partition("=")[0], flags, n=1, cutoff=0.7)), None)


def typed_name(context: ParserContext, words: Sequence[str]) -> str:
    """Return the name under which a task was called."""
    names = (*context.aliases, str(context.name or ""))
    return next((name for name in names if name in words), names[-1])
