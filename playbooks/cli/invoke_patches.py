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

from launch.errors import InputError
from playbooks.cli import output, signals
from playbooks.cli.command_line import arranged, no_such_task, parser_error
from playbooks.cli.core_options import refuse_without_effect, with_effect
from playbooks.cli.overview import first_steps, task_list
from playbooks.cli.table_layout import described, refilled
from playbooks.cli.task_help import Forms, print_help_of
from playbooks.project import find_project

__all__ = ["improve_command_line", "improve_program", "is_ours"]


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
        shown = Forms(args=with_effect(program.initial_context).args.values())
        print_columns(shown.help_tuples())
        output.result(
            refilled("fab lists every task; fab --help TASK shows how one is called.", output.line_width())
        )

    program.print_version, program.print_columns, program.print_help = (
        print_version,
        print_columns,
        print_help,
    )


def improve_command_line(choices: Mapping[str, Any]) -> None:
    """Change the ``fab`` that runs, if one does, in six ways.

    Errors on its command line end as tasks' errors do; help shows how a task is called;
    Ctrl-C ends a user's own task as it ends ours; words are arranged by
    :func:`~playbooks.cli.command_line.arranged`; ``fab`` alone and ``--list`` show tasks by group; and shells
    complete values too, ``choices`` by the name of an option among them. Invoke copies collections and tasks,
    so that neither can carry this.
    """
    main = sys.modules.get("fabric.main")
    if main is None:
        return
    program = main.program
    parse, run, list_flat = (getattr(program, name) for name in ("parse_tasks", "execute", "list_flat"))

    def print_task_help(name: str) -> None:
        task, context = program.collection[name], program.parser.contexts[name]
        print_help_of(task, name, context, program.print_columns, is_ours=is_ours(task))

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
            _read_help(program, contexts)
            front = words[: len(words) - len(rest) - ("--" in words) - len(core.unparsed)]
            core.unparsed, core.remainder = arranged(core.unparsed, rest, contexts, front), ""
        parse()
        _check_topic(program.args.help.value, contexts)
        ours = [task for task in program.tasks if is_ours(program.collection[task.name])]
        refuse_without_effect(program.args, ours, words)
    except ParseError as error:
        raise _refused(parser_error(error, words, contexts, _examples(program.collection))) from None
    except InputError as error:
        raise _refused(error) from None


def _read_help(program: Any, contexts: Mapping[str, Any]) -> None:
    """Take ``fab help`` for ``fab --help``, also with a task, unless a task of the user's has that name."""
    words = program.core.unparsed
    if words[:1] != ["help"] or "help" in contexts:
        return
    if not words[1:]:
        program.print_help()
        raise Exit
    program.args.help.value = ".".join(words[1:])  # as in fab help launch torch
    program.core.unparsed = []


def _check_topic(topic: str | bool | None, contexts: Mapping[str, Any]) -> None:
    if isinstance(topic, str) and topic not in contexts:
        raise no_such_task(topic, contexts)


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
        if is_ours(collection[name]):
            found.update(dict.fromkeys((name, *aliases), collection[name].body.example))
    return found


def is_ours(task: Any) -> bool:
    """Return whether :func:`playbooks.cli.task.command` made a task; others are of the user's fabfile."""
    return hasattr(task.body, "example")
