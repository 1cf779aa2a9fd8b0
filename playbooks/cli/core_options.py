"""Options and settings of Fabric's own that no task of ours obeys: refused, never ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from invoke.parser.context import ParserContext

from launch.errors import InputError
from playbooks.cli.command_line import typed_name

__all__ = ["refuse_dry_setting", "refuse_without_effect", "with_effect"]

_RUN = "leave it out: it is for tasks of your own that call run() or sudo()"
_SSH = "leave it out: nodes are reached with the stack's own keys and ssh_config alone"
_LIST = "give it with --list"
_WITHOUT_EFFECT = {
    **dict.fromkeys(("dry", "echo", "hide", "pty", "warn-only", "prompt-for-sudo-password"), _RUN),
    **dict.fromkeys(("identity", "ssh-config", "prompt-for-login-password", "prompt-for-passphrase"), _SSH),
    **dict.fromkeys(("connect-timeout", "command-timeout"), "leave it out"),
    "hosts": "leave it out: it is for tasks of your own",
    "list-agent-keys": "give it alone",
    "no-dedupe": "leave it out: a task that is named twice runs twice",
}
"""What to do instead, by the option's long name. Fabric passes all of them to ``run()``, ``sudo()`` and the
connections that it makes for a task; our tasks call none of these: see ``update_config`` in invoke/program.py
and fabric/main.py, and ``expand_calls`` and ``dedupe`` in fabric/executor.py."""
_OF_LISTS = dict.fromkeys(("list-depth", "list-format"), _LIST)
_OWN = {"dry": ("dry-run",), "hosts": ("nodes", "node"), "connect-timeout": ("timeout",)}
_OWN["command-timeout"] = _OWN["connect-timeout"]
"""Options of our tasks that do what one of Fabric's promises."""
_DRY_VARIABLES = ("FABRIC_RUN_DRY", "INVOKE_RUN_DRY")


def with_effect(core: ParserContext) -> ParserContext:
    """Return the options of ``fab`` itself that have an effect on tasks of ours, to show them."""
    return ParserContext(
        args=[one for one in core.args.values() if not _WITHOUT_EFFECT.keys() & {*one.names}]
    )


def refuse_without_effect(core: Any, tasks: Sequence[ParserContext], words: Sequence[str]) -> None:
    """Raise :class:`~launch.errors.InputError` for an option of ``core`` that no task of ours obeys.

    ``tasks`` are ours on the command line, ``words`` all of it.
    """
    if not tasks or core["help"].value or core["list"].value:
        return
    for name, remedy in (_WITHOUT_EFFECT | _OF_LISTS).items():
        if core[name].got_value:
            flags = [f"--{one}" if len(one) > 1 else f"-{one}" for one in core[name].names]
            flag = next((word for word in words if word.partition("=")[0] in flags), flags[-1])
            own, task = _own_option(_OWN.get(name, ()), tasks)
            called = typed_name(task, words)
            better = f"give the task's own: fab {called} {own}" if own else remedy
            raise InputError("option", flag.partition("=")[0], f"has no effect on {called}", better)


def _own_option(names: Sequence[str], tasks: Sequence[ParserContext]) -> tuple[str, ParserContext]:
    """Return an option of a task by one of these names, and the task; the first task if none has it."""
    found = ((f"--{name}", task) for task in tasks for name in names if f"--{name}" in task.flags)
    return next(found, ("", tasks[0]))


def refuse_dry_setting(config: Any, environ: Mapping[str, str] = os.environ) -> None:
    """Raise :class:`~launch.errors.InputError` if settings ask for ``run.dry``: nobody is to believe that a
    task only shows what it does."""
    remedy = "remove it, and give the task's --dry-run where it has one"
    problem = "asks for a dry run, which no setting makes of this task"
    for name in _DRY_VARIABLES:
        if environ.get(name) not in (None, "", "0"):
            raise InputError(name, environ[name], problem, remedy)
    if config.run.dry:
        raise InputError(_place_of_dry(config), True, problem, remedy)


def _place_of_dry(config: Any) -> str:
    """Return the setting's name, with the file that has it if a file does."""
    for level in (
        "runtime",
        "project",
        "user",
        "system",
    ):  # by precedence; Invoke has no public name for them
        if (getattr(config, f"_{level}").get("run") or {}).get("dry"):
            return f"run.dry of {getattr(config, f'_{level}_path')}"
    return "run.dry"
