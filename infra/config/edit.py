"""Changes of a stack's settings, as ``pulumi config`` makes them, and the mistakes that they would make."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.config.collector import NotSet
from infra.config.readers import KEY
from infra.config.schema import known_keys, parse
from launch.errors import InputError, InputErrors

__all__ = [
    "SECRETS",
    "Steps",
    "changed",
    "full_key",
    "missing",
    "mistakes",
    "removed",
    "steps_of",
    "value_at",
]

Steps = tuple[str | int, ...]
"""A path below a setting: names in maps, places in lists."""

_PROVIDER = "azure-native"
SECRETS = frozenset({"clientCertificatePassword", "clientSecret", "oidcRequestToken", "oidcToken"})
"""The provider's settings that are secrets."""
_PROVIDER_KEYS = (
    *SECRETS,
    *("auxiliaryTenantIds", "clientCertificatePath", "clientId", "disableInstanceDiscovery"),
    *("disablePulumiPartnerId", "environment", "location", "metadataHost", "msiEndpoint", "oidcRequestUrl"),
    *("oidcTokenFilePath", "partnerId", "subscriptionId", "tenantId", "useDefaultAzureCredential", "useMsi"),
    "useOidc",
)
"""https://www.pulumi.com/registry/packages/azure-native/installation-configuration/"""
_STEP = re.compile(r"""\.([^.\[\]"]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]""")
_LIKELY = {f"{KEY}location": "southcentralus", f"{KEY}nodeCount": "1", f"{KEY}sshFrom": "127.0.0.1/32"}
"""Values with which settings that are still missing hide no mistake of others."""


def full_key(given: str) -> str:
    """Return the key with its namespace, as a configuration file has it.

    >>> full_key("nodeCount"), full_key("azure-native:subscriptionId")
    ('ranklift:nodeCount', 'azure-native:subscriptionId')

    Raises :class:`~launch.errors.InputError` for an unknown key, with the most similar one.
    """
    space, colon, name = given.rpartition(":")
    space = space if colon else KEY[:-1]
    known = {KEY[:-1]: known_keys(), _PROVIDER: sorted(_PROVIDER_KEYS)}
    if name in known.get(space, ()):
        return f"{space}:{name}"
    start = re.split(r"[.\[]", name, maxsplit=1)[0]
    if start in known.get(space, ()):
        remedy = f"give --path: fab config set --path {given} VALUE"
        raise InputError("key", given, f"is a path into {start}", remedy)
    spaces = [space] if space in known else difflib.get_close_matches(space, known, n=1)
    names = {key.lower(): f"{one}:{key}" for one in spaces for key in known[one]}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    if close:
        remedy = f"did you mean {names[close[0]].removeprefix(KEY)}?"
    elif space in known:
        remedy = f"known settings: {', '.join(known[space])}"
    else:
        remedy = f"`pulumi config` has what is neither {KEY[:-1]}'s nor {_PROVIDER}'s"
    raise InputError("key", given, "unknown setting", remedy)


def steps_of(given: str) -> tuple[str, Steps]:
    """Return the key that a path begins with, and the steps below it.

    >>> steps_of('tags.team'), steps_of('ranklift:datastores["my.store"]'), steps_of("dataOperators[0]")
    (('tags', ('team',)), ('ranklift:datastores', ('my.store',)), ('dataOperators', (0,)))
    """
    key = re.match(r"[^.\[\]\"]+", given)
    steps: list[str | int] = []
    place = key.end() if key else 0
    while key and place < len(given) and (step := _STEP.match(given, place)):
        name, number, quoted = step.groups()
        steps.append(int(number) if number else re.sub(r"\\(.)", r"\1", quoted) if quoted else name or "")
        place = step.end()
    if key is None or place < len(given):
        raise InputError("key", given, "is not a path", "write it like tags.team or dataOperators[0]")
    return key[0], tuple(steps)


def value_at(settings: Mapping[str, Any], key: str, steps: Steps) -> Any:
    """Return the value at a path. Raises :class:`~launch.errors.InputError` where there is none."""
    value: Any = settings.get(key)
    for step in steps:
        fits = isinstance(value, list if isinstance(step, int) else Mapping)
        there: Any = dict(enumerate(value)) if isinstance(value, list) else value
        value = there.get(step) if fits else None
    if value is None:
        raise InputError(f"{key}{_path(steps)}", None, "is not set", "`fab config` lists what is")
    return value


def changed(settings: Mapping[str, Any], key: str, steps: Steps, value: Any) -> dict[str, Any]:
    """Return the settings as Pulumi changes them.

    >>> changed({"ranklift:tags": {"a": "b"}}, "ranklift:tags", ("n",), "7")
    {'ranklift:tags': {'a': 'b', 'n': 7}}

    Raises :class:`~launch.errors.InputError` for a path through a value that is no map, or no list.
    """
    return {**settings, key: _with(settings.get(key), steps, _typed(value) if steps else value, key)}


def removed(settings: Mapping[str, Any], key: str, steps: Steps) -> dict[str, Any]:
    """Return the settings without a value. Raises :class:`~launch.errors.InputError` where there is none."""
    value_at(settings, key, steps)
    left = {name: value for name, value in settings.items() if name != key}
    if not steps:
        return left
    container = value_at(settings, key, steps[:-1])
    if isinstance(container, list):
        rest: Any = [value for place, value in enumerate(container) if place != steps[-1]]
    else:
        rest = {name: value for name, value in container.items() if name != steps[-1]}
    return {**settings, key: _with(settings[key], steps[:-1], rest, key)}


def mistakes(settings: Mapping[str, Any]) -> list[InputError]:
    """Return what :func:`~infra.config.schema.parse` refuses, except for settings that are missing."""
    errors = _errors({**_LIKELY, **settings})
    return [error for error in errors if not isinstance(error, NotSet)]


def missing(settings: Mapping[str, Any]) -> list[str]:
    """Return the keys that still have to be set."""
    return [error.key for error in _errors(settings) if isinstance(error, NotSet)]


def _errors(settings: Mapping[str, Any]) -> Sequence[InputError]:
    try:
        parse(settings)
    except InputErrors as errors:
        return errors.errors
    except InputError as error:
        return [error]
    return []


def _typed(value: Any) -> Any:
    """Return a value below a path as Pulumi stores it.

    >>> _typed("true"), _typed("12"), _typed("012"), _typed("a")
    (True, 12, '012', 'a')
    """
    if value in ("true", "false"):
        return value == "true"
    is_number = isinstance(value, str) and re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", value, re.ASCII)
    return int(value) if is_number else value


def _with(there: Any, steps: Steps, value: Any, where: str) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items = [] if there is None else there
        if not isinstance(items, list):
            raise _no_container(where, there, "list")
        if step > len(items):
            problem = f"has {len(items)} entries, and the next is [{len(items)}]"
            raise InputError(where, f"[{step}]", problem, "set that one")
        new = _with(items[step] if step < len(items) else None, rest, value, f"{where}[{step}]")
        return [*items[:step], new, *items[step + 1 :]]
    names = {} if there is None else there
    if not isinstance(names, Mapping):
        raise _no_container(where, there, "map")
    return {**names, step: _with(names.get(step), rest, value, f"{where}.{step}")}


def _no_container(where: str, there: Any, kind: str) -> InputError:
    remedy = f"set all of it, as JSON, or first run `fab config rm {where.removeprefix(KEY)}`"
    return InputError(where, there, f"is not a {kind}, and a path into it would replace it", remedy)


def _path(steps: Steps) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in steps)
