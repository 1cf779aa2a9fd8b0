"""What shells complete: tasks and options from a table kept in a cache, values from files of the stack here.

An answer must come while the user waits: it needs no network, no Pulumi and none of the modules that tasks
import. The table is made again, by a whole ``fab``, when the fabfile or a module here has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra import inventory
from launch.errors import InputError, RankliftError
from launch.project_folder import project_around
from playbooks.selection import IMAGE_PROGRAM, NEWEST, noted_stack

__all__ = [
    "FILES",
    "SHELLS",
    "answers",
    "candidates",
    "fabfile_around",
    "load",
    "save",
    "script",
    "table_of",
]

SHELLS = ("bash", "zsh", "fish")
FILES = ":files"
"""The reply that leaves the names of files to the shell."""
_JOBS = 100
"""Number of jobs that are offered, newest first."""
_SOURCES = {
    **dict.fromkeys(("file", "line", "source", "into", "target", "node_python"), FILES),
    **dict.fromkeys(("requirements", "conda", "find_links", "registry_token", "sas_file"), FILES),
    **{"stack": ":stacks", "job": ":jobs", "nodes": ":nodes", "node": ":nodes", "help": ":tasks"},
    **{"scaling.nodes": "", "scaling.output": FILES},
    **{"environment_id": ":environments", "image.build.stack": ":image-stacks"},
    "environment": ":named-environments",
}
"""Where the values of an argument come from, by its name, or by task and name where a task means another."""


def script(shell: str) -> str:
    """Return the completion script of a shell; raise :class:`~launch.errors.InputError` for another."""
    if shell not in SHELLS:
        remedy = f"use one of {', '.join(SHELLS)}"
        raise InputError("--print-completion-script", shell, "is not a known shell", remedy)
    return Path(__file__).with_name(f"completion.{shell}").read_text()


def answers(table: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
    """Return the replies to ``fab --complete -- SHELL WORD…``: values, each with a tab and its help.

    bash takes ``=`` for the end of a word, and wants what comes behind it alone.
    """
    shell, *words = argv[argv.index("--") + 1 :] if "--" in argv[:-1] else [""]
    typed = (_joined(words) if shell == "bash" else words) or [""]
    cut = typed[-1].index("=") + 1 if shell == "bash" and re.match("-[^=]*=", typed[-1]) else 0
    return [value if value == FILES else f"{value[cut:]}\t{text}" for value, text in candidates(table, typed)]


def candidates(table: Mapping[str, Any], words: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the last of the words after ``fab`` may become, each with its help."""
    task: Mapping[str, Any] = table["core"]
    due: list[Any] = []
    pending = stack = None
    for word in words[:-1]:
        name, equals, value = word.partition("=")
        if pending is not None:
            stack, pending = word if pending == ":stacks" else stack, None
        elif word == "--":
            return [(FILES, "")]
        elif word.startswith("-"):
            source = task["options"].get(name, {}).get("values")
            stack = value if equals and source == ":stacks" else stack
            pending = None if equals else source
        elif due:
            due = due if due[0]["repeats"] else due[1:]
        elif word in table["tasks"]:
            task = table["tasks"][word]
            due = list(task["positional"])
    last = words[-1]
    name, equals, value = last.partition("=")
    if pending is not None:
        return _values(table, pending, last, stack)
    if last.startswith("-") and equals:
        found = _values(table, task["options"].get(name, {}).get("values") or "", value, stack)
        return [(one if one == FILES else f"{name}={one}", text) for one, text in found]
    options = [(one, option["help"]) for one, option in task["options"].items() if one.startswith(last)]
    if last.startswith("-"):
        return options
    own = _values(table, due[0]["values"], last.lstrip("\"'"), stack) if due else []
    tasks = _values(table, ":tasks", last, stack)
    return own or (options if task is not table["core"] and not last else [] if due else tasks)


def _values(table: Mapping[str, Any], source: Any, typed: str, stack: str | None) -> list[tuple[str, str]]:
    if source == FILES:
        return [(FILES, "")]
    if not isinstance(source, str):
        found: Iterable[tuple[str, str]] = [(str(one), "") for one in source]
    elif source == ":nodes":
        front = typed[: max(typed.rfind(","), typed.rfind("-")) + 1]
        nodes = _nodes(_folders(table, stack), by_name=typed[len(front) :][:1].isalpha())
        found = [(f"{front}{one}", text) for one, text in nodes]
    elif source == ":tasks":
        found = [(name, task["help"]) for name, task in table["tasks"].items() if not task["is_default"]]
    elif source == ":jobs":
        found = [*_jobs(_folders(table, stack)), (NEWEST, "the newest job")]
    elif source == ":environments":
        from launch.printable import for_terminal  # a node chose the titles

        notes = (path for folder in _folders(table, stack) for path in folder.glob("environments/*"))
        titles = ((path.name, path.read_text(errors="replace")) for path in sorted(notes))
        found = [(name, for_terminal(title, lines=False).replace("\t", " ")) for name, title in titles]
    elif source == ":named-environments":
        found = _named_environments(_project(table))
    elif source == ":image-stacks":
        project = _project(table)
        found = [(name, "") for name in sorted(_configured(project / IMAGE_PROGRAM))] if project else ()
    else:
        found = _stacks(_project(table)) if source == ":stacks" else ()
    return [(value, text) for value, text in found if value.startswith(typed)]


def _project(table: Mapping[str, Any]) -> Path | None:
    named = table["project"] or os.environ.get("RANKLIFT_PROJECT")
    if named:
        return Path(named).expanduser()
    fabfile = fabfile_around(Path.cwd())
    try:
        return project_around(fabfile.parent if fabfile else Path.cwd())
    except InputError:  # another user's
        return None


def _folders(table: Mapping[str, Any], stack: str | None) -> list[Path]:
    """Return the folder of the chosen stack; those of all stacks where none is chosen."""
    project = _project(table)
    if project is None:
        return []
    chosen = stack or os.environ.get("RANKLIFT_STACK") or noted_stack(project, os.environ)
    if chosen:
        return [project / ".ranklift" / chosen.rpartition("/")[2]]
    return [path.parent for path in sorted((project / ".ranklift").glob(f"*/{inventory.INVENTORY_FILE}"))]


def _stacks(project: Path | None) -> list[tuple[str, str]]:
    if project is None:
        return []
    up = {path.parent.name for path in (project / ".ranklift").glob(f"*/{inventory.INVENTORY_FILE}")}
    return [(name, "has nodes" if name in up else "not up") for name in sorted(up | _configured(project))]


def _named_environments(project: Path | None) -> list[tuple[str, str]]:
    from launch.environment.curated import CURATED
    from launch.environment.named_files import named_files

    own = named_files([Path.cwd(), *([] if project is None else [project])])
    files = [(name, str(path)) for name, path in own.items()]
    return [("bare", "the nodes as they are"), *files, *((name, "Microsoft's image") for name in CURATED)]


def _configured(program: Path) -> set[str]:
    """Return the stacks of a Pulumi program that have a configuration file."""
    return {path.name[len("Pulumi.") : -len(".yaml")] for path in program.glob("Pulumi.*.yaml")}


def _nodes(folders: Iterable[Path], *, by_name: bool) -> list[tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    for folder in folders:
        try:
            nodes = inventory.load(folder).nodes
        except RankliftError:
            continue
        found.update((node.instance_id, (node.name, node.state)) for node in nodes)
    if by_name:
        return [(name, state) for _, (name, state) in sorted(found.items())]
    return [(str(number), f"{name} {state}") for number, (name, state) in sorted(found.items())]


def _jobs(folders: Iterable[Path]) -> list[tuple[str, str]]:
    notes = [(path.stat().st_mtime, path.stem) for folder in folders for path in folder.glob("jobs/*.json")]
    return [(job, "") for _, job in sorted(notes, reverse=True)[:_JOBS]]


def _joined(words: Sequence[str]) -> list[str]:
    """Return bash's words with those that it split at ``=`` as one.

    >>> _joined(["logs", "--stack", "=", "de"]), _joined(["logs", "--stack", "="])
    (['logs', '--stack=de'], ['logs', '--stack='])
    """
    joined: list[str] = []
    for word in words:
        if joined and ((word == "=" and joined[-1].startswith("-")) or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def table_of(
    collection: Any,
    tasks: Iterable[Any],
    core: Any,
    choices: Mapping[str, Sequence[str]],
    project: Path | None,
) -> Any:
    """Return the table of a collection's tasks and options, and of ``fab``'s own."""
    contexts: dict[str, Any] = {}
    defaults = set()
    for context in tasks:
        contexts.update(dict.fromkeys((context.name, *context.aliases), context))
        # users type the collection's name for its default task
        defaults |= {context.name} & {f"{one}.{context.name.rpartition('.')[2]}" for one in context.aliases}
    return {
        "project": None if project is None else str(project),
        "core": _entry(core, "", choices),
        "tasks": {
            name: {
                **_entry(
                    contexts[name], (collection[name].__doc__ or "").strip().partition("\n")[0], choices
                ),
                "is_default": name in defaults,
            }
            for name in sorted(contexts)
        },
    }


def _entry(context: Any, text: str, choices: Mapping[str, Sequence[str]]) -> Any:
    def values(argument: Any) -> Any:
        name = argument.attr_name or argument.name
        own = _SOURCES.get(f"{context.name}.{name}", _SOURCES.get(name, ""))
        return list(choices[name]) if name in choices else own

    options = {}
    for flag in context.flag_names():
        argument = context.flags[flag]
        if not argument.positional:
            options[flag] = {
                "help": argument.help or "",
                "values": values(argument) if argument.takes_value else None,
            }
    return {
        "help": text,
        "options": options,
        "positional": [
            {"values": values(argument), "repeats": argument.kind is list}
            for argument in context.positional_args
        ],
    }


def load(fabfile: Path) -> Any:
    """Return the table for a fabfile; None where there is none, or what it was made of has changed."""
    try:
        kept = json.loads(_path(fabfile).read_text())
        return kept["table"] if kept["made_of"] == _made_of(fabfile) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def save(fabfile: Path, table: Any) -> None:
    """Keep the table for :func:`load`; where that cannot be written, each answer takes a whole ``fab``."""
    path = _path(fabfile)
    new = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.write_text(json.dumps({"made_of": _made_of(fabfile), "table": table}))
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def fabfile_around(folder: Path) -> Path | None:
    """Return the fabfile that ``fab`` finds: the nearest one, in ``folder`` or above it."""
    for one in (folder, *folder.parents):
        for path in (one / "fabfile.py", one / "fabfile" / "__init__.py"):
            if path.is_file():
                return path
    return None


def _path(fabfile: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(os.fsencode(fabfile)).hexdigest()[:16]
    return cache / "ranklift" / f"completion-{digest}.json"


def _made_of(fabfile: Path) -> list[Any]:
    """Return the last change of every file that the table is made of."""
    package = Path(__file__).resolve().parents[1]
    files = [fabfile, *package.rglob("*.py"), *(package.parent / "launch" / "launchers").glob("*.py")]
    return [str(package), len(files), max(path.stat().st_mtime_ns for path in files)]
