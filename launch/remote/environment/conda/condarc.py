"""A node's settings of conda, as far as they say where packages come from.

Files, their order, keys and merging are conda's ("Searching for .condarc", "Configuration precedence" in
https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/use-condarc.html). The files are YAML,
of which this reads plain values, lists and mappings of one level; what it does not understand it refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from launch.remote.environment.build import Failed

__all__ = ["Condarc", "parse_condarc", "read_condarc"]

_FOLDERS = ("/etc/conda", "/var/lib/conda", "{root}", "~/.config/conda", "~/.conda")
_SCALARS = ("channel_alias", "channel_priority")
_LISTS = ("channels", "default_channels")
_ELSEWHERE = (
    *("allowlist_channels", "whitelist_channels", "denylist_channels", "migrated_channel_aliases"),
    *("migrated_custom_channels", "proxy_servers", "ssl_verify", "client_ssl_cert", "offline", "subdir"),
    *("subdirs", "channel_settings", "override_virtual_packages", "pinned_packages", "use_only_tar_bz2"),
)
"""Keys that change which packages are found, and that conda alone obeys."""
_HARMLESS = {"ssl_verify": "true", "offline": "false", "use_only_tar_bz2": "false"}
_PRIORITIES = {
    **{name: name for name in ("strict", "flexible", "disabled")},
    **{"true": "flexible", "false": "disabled"},
}
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?")
_Value = Union[str, "list[str]", "dict[str, str]", "dict[str, list[str]]"]


@dataclass(frozen=True)
class Condarc:
    """Where packages come from; the defaults are conda's own
    (https://docs.conda.io/projects/conda/en/stable/configuration.html)."""

    channel_alias: str = "https://conda.anaconda.org"
    channel_priority: str = "flexible"
    channels: tuple[str, ...] = ("defaults",)
    default_channels: tuple[str, ...] = (
        "https://repo.anaconda.com/pkgs/main",
        "https://repo.anaconda.com/pkgs/r",
    )
    custom_channels: Mapping[str, str] = field(default_factory=lambda: {"pkgs": "https://repo.anaconda.com"})
    custom_multichannels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    """Settings that conda alone obeys, each as ``FILE: KEY``."""


def read_condarc(environ: Mapping[str, str], root: str = "") -> Condarc:
    """Return this node's settings; ``root`` is the folder of its conda. Raise :class:`Failed`."""
    found = [parse_condarc(text, path) for path, text in _texts(environ, root)]
    own = {
        name: environ[f"CONDA_{name.upper()}"] for name in _SCALARS if environ.get(f"CONDA_{name.upper()}")
    }
    lists = {
        name: environ[f"CONDA_{name.upper()}"] for name in _LISTS if environ.get(f"CONDA_{name.upper()}")
    }
    found.append({**own, **{name: text.split(",") for name, text in lists.items()}})
    return _merged(found)


def _texts(environ: Mapping[str, str], root: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file, the one that wins last."""
    paths: list[str] = []
    for folder in _FOLDERS:
        top = os.path.expanduser(folder.format(root=root))
        if top:
            more = os.path.join(top, "condarc.d")
            paths += [os.path.join(top, name) for name in (".condarc", "condarc")]
            paths += [
                os.path.join(more, name) for name in sorted(_listed(more)) if name.endswith((".yml", ".yaml"))
            ]
    for path in (*paths, os.path.expanduser("~/.condarc"), environ.get("CONDARC", "")):
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise Failed(f"{path} cannot be read: {error}") from error
        yield path, text


def _listed(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def parse_condarc(text: str, path: str) -> dict[str, _Value]:
    """Return the settings of one file that this module knows. Raise :class:`Failed` with file and line.

    >>> parse_condarc("channel_alias: https://mirror # ours\\nchannels:\\n  - conda-forge\\n", "x")
    {'channel_alias': 'https://mirror', 'channels': ['conda-forge']}
    >>> parse_condarc("custom_channels: {conda-forge: 'https://mirror'}", "x")
    {'custom_channels': {'conda-forge': 'https://mirror'}}
    """
    found: dict[str, _Value] = {}
    for number, key, value, block in _entries(text, path):
        where = f"{path}, line {number}: {key}"
        if key in _SCALARS and not block:
            found[key] = _plain(value, where)
        elif key in _LISTS:
            found[key] = _list(value, block, where)
        elif key == "custom_channels":
            found[key] = {name: _plain(one, where) for name, one, _ in _mapping(value, block, where)}
        elif key == "custom_multichannels":
            found[key] = {
                name: _list(one, inner, where) for name, one, inner in _mapping(value, block, where)
            }
        elif key in _SCALARS:
            raise Failed(f"{where} is not one value")
        elif key in _ELSEWHERE and not (block == [] and value.lower() == _HARMLESS.get(key)):
            found.setdefault("elsewhere", []).append(where)  # type: ignore[union-attr]
    return found


def _entries(text: str, path: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield line, name, value and following lines of each key of the top level."""
    lines = [(number, _bare(line)) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line.strip() not in ("", "---")]
    while lines:
        number, line = lines.pop(0)
        key = _KEY.fullmatch(line)
        if key is None:
            raise Failed(f"{path}, line {number}: {line.strip()!r} is not understood; write `key: value`")
        block = []
        while lines and lines[0][1][0] in " -":
            block.append(lines.pop(0)[1])
        yield number, key[1], (key[2] or "").strip(), block


def _bare(line: str) -> str:
    """Return a line without its comment."""
    return re.sub(r"(^|\s)#.*", "", line).rstrip()


def _plain(text: str, where: str) -> str:
    value = text.strip()
    if value[:1] in "'\"" and value[:1] == value[-1:] and len(value) > 1:
        value = value[1:-1]
    if not value or value[0] in "'\"[]{}&*!|>%@`":
        raise Failed(f"{where}: {text!r} is not understood; write a plain value")
    return os.path.expandvars(value)


def _list(value: str, block: Iterable[str], where: str) -> list[str]:
    if value.startswith("[") and value.endswith("]") and not block:
        return [_plain(one, where) for one in value[1:-1].split(",") if one.strip()]
    lines = [line.strip() for line in block]
    if value or not all(line.startswith("- ") for line in lines):
        raise Failed(f"{where} is not understood; write a list, one `- value` a line")
    return [_plain(line[2:], where) for line in lines]


def _mapping(value: str, block: list[str], where: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, value and following lines of each key of a mapping."""
    if value.startswith("{") and value.endswith("}") and not block:
        block = [" " + one.strip() for one in value[1:-1].split(",") if one.strip()]
    elif value:
        raise Failed(f"{where} is not understood; write a mapping, one `name: value` a line")
    depth = min((len(line) - len(line.lstrip()) for line in block), default=0)
    rest = list(block)
    while rest:
        key = re.fullmatch(r"([\w./'\"-]+?)\s*:(?:\s+(.*))?", rest.pop(0)[depth:])
        if key is None:
            raise Failed(f"{where} is not understood; write a mapping, one `name: value` a line")
        inner = []
        while rest and rest[0][depth : depth + 1] in (" ", "-"):
            inner.append(rest.pop(0))
        yield key[1].strip("'\""), key[2] or "", inner


def _merged(found: Iterable[Mapping[str, _Value]]) -> Condarc:
    """Return the settings of all files: lists of later files come first, other values of later ones win."""
    scalars: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    custom: dict[str, str] = {"pkgs": "https://repo.anaconda.com"}
    multi: dict[str, tuple[str, ...]] = {}
    for settings in found:
        for key, value in settings.items():
            if isinstance(value, str):
                scalars[key] = value
            elif isinstance(value, list):
                lists[key] = [*value, *(one for one in lists.get(key, ()) if one not in value)]
            else:
                for name, one in value.items():
                    if isinstance(one, str):
                        custom[name] = one
                    else:
                        multi[name] = tuple(one)
    priority = scalars.get("channel_priority", "flexible").lower()
    if priority not in _PRIORITIES:
        raise Failed(f".condarc: channel_priority = {priority!r}: use strict, flexible or disabled")
    return Condarc(
        channel_alias=scalars.get("channel_alias", Condarc.channel_alias),
        channel_priority=_PRIORITIES[priority],
        channels=tuple(lists.get("channels") or Condarc.channels),
        default_channels=tuple(lists.get("default_channels") or Condarc.default_channels),
        custom_channels=custom,
        custom_multichannels=multi,
        elsewhere=tuple(lists.get("elsewhere", ())),
    )
