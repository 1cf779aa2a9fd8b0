"""Changes to Invoke's command line: what it prints of tasks, what it completes, errors with a remedy."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext

from launch.errors import InputError
from playbooks.cli import output, signals
from playbooks.cli.command_line import arranged, parser_error
from playbooks.cli.core_options import refuse_without_effect, with_effect
from playbooks.cli.overview import first_steps, task_list
from playbooks.cli.table_layout import described, refilled
from playbooks.project import find_project

__all__ = ["improve_command_line", "improve_program"]

_FORMS = {"env": "NAME[=VALUE]", "job": "JOB", "set": "KEY=VALUE"}


class _Context(ParserContext):
    """Help in which options that may be repeated show the form of their value."""

    def help_for(self, flag: str) -> tuple[str, str]:
        spec, text = super().help_for(flag)
        argument = self.flags[flag]
        return (f"{spec}={_FORMS.get(argument.name, 'TEXT')}" if argument.kind is list else spec), text


def improve_program(program: Any, version: str) -> None:
    """Let Fabric's ``program`` name Ranklift's version too, fit its lists of options to the terminal, and
    hide those of its own options that no task of ours obeys.

    All are printed without any fabfile.
    """
    show_version = program.print_version

    def print_version() -> None:
        output.result(f"Ranklift {version}")
        show_version()

    def print_columns(pairs: Iterable[tuple[str, str | None]]) -> None:
        lines = described([(name, text or "") for name, text in pairs], output.line_width())
        output.result("".join(f"{line}\n" for line in lines))

    def print_help() -> None:
        output.result(f"Usage: {program.binary} [--core-opts] task1 [--task1-opts] ... taskN [--taskN-opts]")
        output.result("\nCore options:\n")
        print_columns(with_effect(program.initial_context).help_tuples())

    program.print_version, program.print_columns, program.print_help = (
        print_version,
        print_columns,
        print_help,
    )


def improve_command_line(choices: Mapping[str, Any]) -> None:
    """Change the ``fab`` that runs, if one does, in six ways.

    Errors on its command line end as tasks' errors do; help shows the form of repeated options' values;
    Ctrl-C ends a user's own task as it ends ours; words are arranged by
    :func:`~playbooks.cli.command_line.arranged`; ``fab`` alone and ``--list`` show tasks by group; and shells
    complete values too, ``choices`` by the name of an option among them. Invoke copies collections and tasks,
    so that neither can carry this.
    """
    main = sys.modules.get("fabric.main")
    if main is None:
        return
    program = main.program
    parse, show, run, list_flat = (
        getattr(program, name) for name in ("parse_tasks", "print_task_help", "execute", "list_flat")
    )

    def print_task_help(name: str) -> None:
        program.parser.contexts[name].__class__ = _Context
        task = program.collection[name]
        task.__doc__ = refilled(task.__doc__ or "", output.line_width() - 2)  # Invoke indents it
        show(name)

    def list_tasks() -> None:
        if program.list_root or program.list_depth:
            list_flat()
        else:
            output.result(task_list(program.collection, output.line_width()))

    def no_tasks_given() -> None:
        room = output.line_width()
        output.result(f"{first_steps(room)}\n\n{task_list(program.collection, room)}")
        raise Exit

    def execute() -> None:
        try:
            signals.raise_on_interrupt()
            # Python's last garbage collection, over all that was imported, takes 40 ms of every command
            atexit.register(gc.freeze)
            run()
        except KeyboardInterrupt:  # of a user's own task; ours print it themselves
            output.progress("interrupted")
            raise Exit(code=130) from None

    program.parse_tasks = partial(_parse_tasks, program, parse)
    program.print_task_help, program.execute = print_task_help, execute
    program.list_flat, program.no_tasks_given = list_tasks, no_tasks_given
    invoke_program: Any = sys.modules["invoke.program"]
    invoke_program.complete = partial(_complete, program, choices)


def _parse_tasks(program: Any, parse: Callable[[], None]) -> None:
    words = program.argv[1:]
    completes = program.args.complete.value
    rest = words[words.index("--") + 1 :] if "--" in words and not completes else []
    parser = program._make_parser()  # once: a task gives the help of its options away
    program._make_parser = lambda: parser
    contexts, core = parser.contexts, program.core
    try:
        if not completes:
            front = words[: len(words) - len(rest) - ("--" in words) - len(core.unparsed)]
            core.unparsed, core.remainder = arranged(core.unparsed, rest, contexts, front), ""
        parse()
        ours = [task for task in program.tasks if _is_ours(program.collection[task.name])]
        refuse_without_effect(program.args, ours, words)
    except ParseError as error:
        raise _refused(parser_error(error, words, contexts, _examples(program.collection))) from None
    except InputError as error:
        raise _refused(error) from None


def _complete(program: Any, choices: Mapping[str, Any], **_: Any) -> None:
    from playbooks.cli import completion

    settings = program.collection.configuration().get("ranklift") or {}
    try:
        named = settings.get("project")
        project = find_project(named, Path(program.collection.loaded_from)) if named else None
    except InputError:
        project = None
    tasks = program.parser.contexts.values()
    table = completion.table_of(
        program.collection, tasks, with_effect(program.initial_context), choices, project
    )
    if (fabfile := completion.fabfile_around(Path.cwd())) is not None:
        completion.save(fabfile, table)
    output.result("\n".join(completion.answers(table, program.argv)))
    raise Exit


def _refused(error: InputError) -> Exit:
    output.error(error)
    return Exit(code=2)


def _examples(collection: Any) -> dict[str, str]:
    """Return the examples of tasks, by every name of a task."""
    found = {}
    for name, aliases in collection.task_names.items():
        if _is_ours(collection[name]):
            found.update(dict.fromkeys((name, *aliases), collection[name].body.example))
    return found


def _is_ours(task: Any) -> bool:
    """Return whether :func:`playbooks.cli.task.command` made a task; others are of the user's fabfile."""
    return hasattr(task.body, "example")
