"""Settings of a stack, checked as ``up`` checks them before Pulumi writes them."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from infra.config import edit
from infra.config.readers import KEY, is_encrypted
from launch.errors import InputError, InputErrors
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.settings_file import Setting

__all__ = ["configure"]

_WORDS = {"get": ("KEY",), "set": ("KEY", "VALUE"), "rm": ("KEY",)}
_ENCRYPTED = {"secure": ""}
"""Stands for a secret, whose value is not looked at."""


def configure(
    chosen: Stack, words: Sequence[str], *, path: bool, secret: bool, json: bool, dry_run: bool
) -> None:
    """List, print, change or remove settings, as the words after ``fab config`` say.

    Raises :class:`~launch.errors.InputError` for a change that makes a mistake, before anything is written.
    """
    action, given = (words[0], words[1:]) if words else ("", ())
    _check_words(action, given, secret=secret)
    if not action:
        _show_all(chosen, json=json)
        return
    there = chosen.placed_settings() if chosen.configuration.exists() or action == "get" else {}
    name, steps = edit.steps_of(given[0]) if path else (given[0], ())
    key = next((one for one in (name, f"{KEY}{name}") if one in there and action == "rm"), None)
    key = key or edit.full_key(name)  # one that is unknown can be removed all the same
    before = {one: setting.value for one, setting in there.items()}
    if action == "get":
        _show(key, edit.value_at(before, key, steps), there[key], json=json)
        return
    value = given[1] if given[1:] else None
    if action == "set":
        _check_secret(key, value, secret=secret)
        after = edit.changed(before, key, steps, _ENCRYPTED if secret else value)
    else:
        after = edit.removed(before, key, steps)
        _check_file(chosen, key, there[key])
    wrong = _refuse_new(key, before, after)
    target = key + given[0].removeprefix(name) if path else key
    flags = [
        *(["--path"] if path else []),
        *([] if action == "rm" else ["--secret" if secret else "--plaintext"]),
    ]
    if dry_run:
        shown = [] if value is None else [value]
        output.steps([_line(chosen, [action, *flags, target, *shown])], json=json)
        return
    if action == "set" and value is None:
        value = _typed_secret(key)
    _change(chosen, [action, *flags, target], value)
    if json:
        output.as_json({"key": target, "file": str(chosen.configuration)})
    else:
        output.result(f"{'set' if action == 'set' else 'removed'} {target} in {chosen.configuration.name}")
    for error in wrong:
        output.progress(f"still wrong: {error}")
    _show_missing(after)


def _check_words(action: str, given: Sequence[str], *, secret: bool) -> None:
    """Raise :class:`~launch.errors.InputError` for words that are no action with what it takes."""
    wanted = _WORDS.get(action)
    if wanted is None and action:
        typed = " ".join(
            [action.partition("=")[0], *([action.partition("=")[2]] if "=" in action else given)]
        )
        remedy = f"did you mean fab config {'set' if '=' in action or given else 'get'} {typed}?"
        if action in ("list", "ls", "show"):
            remedy = "`fab config` alone lists all settings"
        raise InputError("config", action, "is none of get, set and rm", remedy)
    if secret and action != "set":
        raise InputError("--secret", None, "belongs to fab config set", "leave it out")
    if secret and given[1:]:
        problem = "is given on the command line, where other users and the shell's history see it"
        raise InputError("value", None, problem, "leave it out: it is read from stdin, or asked for")
    wanted = (wanted or ())[: 1 if secret else None]
    if len(given) != len(wanted):
        key, equals, value = given[0].partition("=") if given else ("", "", "")
        remedy = f"type fab config {action} {key} {value}" if equals else "put a value with blanks in quotes"
        if len(given) < len(wanted) and not equals:
            remedy = f"type fab config {action} {' '.join([*given, *wanted[len(given) :]])}"
        raise InputError("config", action, f"takes {' and '.join(wanted)}, not {len(given)} words", remedy)


def _check_secret(key: str, value: str | None, *, secret: bool) -> None:
    is_secret = key.rpartition(":")[2] in edit.SECRETS and not key.startswith(KEY)
    if is_secret and not secret:
        raise InputError(key, None, "is a secret", f"run fab config set --secret {key}, without the value")
    if secret and not is_secret:
        raise InputError(key, None, "is no secret", "leave --secret out: its readers need it as it is")
    if value == "":
        remedy = f"fab config rm {key.removeprefix(KEY)} removes the setting"
        raise InputError(key, value, "is empty", remedy)


def _check_file(stack: Stack, key: str, setting: Setting) -> None:
    if setting.file != stack.configuration:
        problem = f"is set in {setting.place} for all stacks of the project"
        remedy = f"remove it there, or fab config set {key.removeprefix(KEY)} for this stack"
        raise InputError(key, None, problem, remedy)


def _refuse_new(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[InputError]:
    """Return the mistakes that were there before; raise :class:`~launch.errors.InputError` for others.

    One that was there must not hinder: several can only be corrected one after the other.
    """
    known = {error.key for error in edit.mistakes(before)}
    found = edit.mistakes(after)
    own = [one for one in found if one.key == key or one.key.startswith(f"{key}.") or one.key not in known]
    if own:
        raise own[0] if len(own) == 1 else InputErrors(own)
    return found


def _typed_secret(key: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{key}: ")
    else:
        value = "" if sys.stdin is None else sys.stdin.read().rstrip("\r\n")
    if not value:
        raise InputError(key, None, "got no value", "pipe it to the command, or type it at the terminal")
    return value


def _change(stack: Stack, words: Sequence[str], value: str | None) -> None:
    try:
        stack.configure(*words, given=value)
    except InputError as error:
        if error.key != "stack":
            raise
        rehearsed = 'eval "$(fab rehearsal.env)"; ' if stack.is_rehearsed else ""
        make = f"`{rehearsed}{stack.pulumi_command} stack init {stack.name}`"
        remedy = (
            f"{stack.meant}make it first: {make}; `{stack.update_command}` makes one with its file's settings"
        )
        raise InputError("stack", stack.name, "Pulumi has no such stack", remedy) from None


def _line(stack: Stack, words: Sequence[str]) -> str:
    import shlex

    return f"{stack.pulumi_command} config {shlex.join(words)} --stack {stack.name}"


def _show_all(stack: Stack, *, json: bool) -> None:
    found = stack.placed_settings()
    values = {key: setting.value for key, setting in found.items()}
    if json:
        output.as_json([_record(key, setting.value, setting) for key, setting in found.items()])
    else:
        rows = [(_short(key), _text(one.value), one.place) for key, one in sorted(found.items())]
        output.table(("key", "value", "set in"), rows)
    for error in edit.mistakes(values):
        output.progress(f"wrong: {error}")
    _show_missing(values)


def _show(key: str, value: Any, setting: Setting, *, json: bool) -> None:
    if json:
        output.as_json(_record(key, value, setting))
        return
    if is_encrypted(value):
        raise InputError(key, None, "is encrypted", f"`pulumi config get {key}` decrypts it")
    output.result(_text(value))


def _record(key: str, value: Any, setting: Setting) -> dict[str, Any]:
    return {
        "key": key,
        "value": None if (secret := is_encrypted(value)) else value,
        "secret": secret,
        "file": str(setting.file),
        "line": setting.line,
    }


def _show_missing(settings: Mapping[str, Any]) -> None:
    left = edit.missing(settings)
    if left:
        output.progress(f"still to be set: {', '.join(map(_short, left))}")


def _short(key: str) -> str:
    return key.removeprefix(KEY)


def _text(value: Any) -> str:
    import json

    if is_encrypted(value):
        return "[secret]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
