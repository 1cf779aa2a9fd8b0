"""A ``#cloud-config`` document as the files it puts on a node.

The modules a rehearsed node runs are those that a node's image needs: ``ssh_deletekeys``, ``ssh_keys``,
``write_files``, ``mounts`` (of NFS: one folder that all nodes of the network share; of the temporary disk,
which no rehearsed node has, as with sizes without one) and ``runcmd``, which may start units with
``systemctl`` (``guest/systemctl.sh`` takes its place). ``packages`` are read and never installed: a node has
what this machine has, and its log names what it was to have. Everything else is refused by name: a setting
that a rehearsal passed over would first be missed on Azure.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import shlex
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import yaml

from launch.errors import InputError

__all__ = ["CloudConfig", "File", "Mount", "parse"]

_HEADER = "#cloud-config"
_PERMISSIONS = re.compile(r"0?[0-7]{3}")
_HOST_KEYS = {
    "ed25519_private": ("/etc/ssh/ssh_host_ed25519_key", 0o600),
    "ed25519_public": ("/etc/ssh/ssh_host_ed25519_key.pub", 0o644),
}
_MOUNT_FIELDS = 3
_TEMPORARY_DISK = "ephemeral0"
"""cloud-init's name of it, in every version; its entry may leave the type and options to cloud-init."""
_RECIPES_OWN = "power_state"
"""Only a node that installs its drivers on plain Ubuntu reboots."""
_SHARED_KINDS = ("nfs", "nfs4")
_SWITCHES = ("ssh_deletekeys", "package_update", "package_upgrade")
"""Nothing to do here: a node's image has no host keys to delete, and no packages to bring up to date."""
_MODULES = (*_SWITCHES, "packages", "ssh_keys", "users", "write_files", "mounts", "runcmd")
_USER_KEYS = {"name", "system", "no_create_home", "shell"}
_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_FILE_KEYS = {"path", "content", "owner", "permissions", "encoding", "append", "defer"}


@dataclass(frozen=True, slots=True)
class File:
    """One file to put on a node's disk."""

    path: str
    content: bytes = field(repr=False)
    mode: int
    append: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """An NFS share and where a node has it."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class CloudConfig:
    """Content of a document; ``files`` in the order in which cloud-init writes them."""

    files: tuple[File, ...] = ()
    runcmd: str = field(default="", repr=False)
    """A shell script, empty when nothing is to be run."""
    mounts: tuple[Mount, ...] = ()
    packages: tuple[str, ...] = ()
    """Named in the node's log only."""
    system_users: tuple[str, ...] = ()
    """Accounts besides the admin user's, whose id they share: no other exists on a rehearsed node."""

    @property
    def has_host_key(self) -> bool:
        """Whether the document has the host key; without it the first boot makes one."""
        return any(file.path == _HOST_KEYS["ed25519_private"][0] for file in self.files)


@lru_cache(maxsize=8)
def parse(user_data: str, admin_user: str) -> CloudConfig:
    """Read a document; the empty one asks for nothing.

    >>> parse("#cloud-config\\nwrite_files: [{path: /etc/motd, content: hi}]\\n", "azureuser").files
    (File(path='/etc/motd', mode=420, append=False),)

    Raises :class:`~launch.errors.InputError` naming the module or key that a rehearsed node does not know.
    """
    if not user_data.strip():
        return CloudConfig()
    if user_data.split("\n", 1)[0].strip() != _HEADER:
        raise InputError("customData", None, f"does not begin with {_HEADER}", "give a cloud-config document")
    try:
        document = yaml.load(user_data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        raise InputError(
            "customData", None, f"is not YAML: {error}", "correct the cloud-config document"
        ) from error
    if document is None:
        return CloudConfig()
    if not isinstance(document, dict):
        raise _wrong("cloud-config", document, "must be a mapping of modules")
    for module in document:
        if module == _RECIPES_OWN:
            problem = "without drivers, it installs them by a recipe, and a rehearsed node installs nothing"
            raise InputError("image", None, problem, "rehearse with an HPC image: leave ranklift:image out")
        if module not in _MODULES:
            known = ", ".join(_MODULES)
            raise InputError(
                f"cloud-config {module}", None, "not a module of a rehearsed node", f"use one of {known}"
            )
    for module in _SWITCHES:
        if document.get(module) not in (None, True, False):
            raise _wrong(module, document[module], "must be true or false")
    written = [
        _write_file(f"write_files[{number}]", entry, admin_user)
        for number, entry in enumerate(_listed("write_files", document.get("write_files")))
    ]
    late = [file for file, deferred in written if deferred]
    early = [file for file, deferred in written if not deferred]
    return CloudConfig(
        (*_host_keys(document.get("ssh_keys")), *early, *late),
        _runcmd(_listed("runcmd", document.get("runcmd"))),
        _mounts(_listed("mounts", document.get("mounts"))),
        _packages(_listed("packages", document.get("packages"), "must be a list of names")),
        _system_users(_listed("users", document.get("users"))),
    )


def _wrong(key: str, value: object, problem: str) -> InputError:
    # Never the value itself: private keys are among them.
    return InputError(
        key, None, f"{problem}, not {type(value).__name__}", "correct the cloud-config document"
    )


def _listed(module: str, value: object, problem: str = "must be a list") -> list[Any]:
    if not isinstance(value, list | None):
        raise _wrong(module, value, problem)
    return value or []


def _host_keys(value: Any) -> list[File]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise _wrong("ssh_keys", value, "must be a mapping")
    files = []
    for key, text in value.items():
        if key not in _HOST_KEYS:
            raise InputError(
                f"ssh_keys.{key}", None, "nodes show an ed25519 host key only", f"use {', '.join(_HOST_KEYS)}"
            )
        if not isinstance(text, str):
            raise _wrong(f"ssh_keys.{key}", text, "must be text")
        path, mode = _HOST_KEYS[key]
        files.append(File(path, text.rstrip("\n").encode() + b"\n", mode))
    if "ed25519_private" not in value:
        raise InputError("ssh_keys", None, "has no ed25519_private", "give both halves of the host key")
    return files


def _write_file(where: str, entry: Any, user: str) -> tuple[File, bool]:
    if not isinstance(entry, dict):
        raise _wrong(where, entry, "must be a mapping")
    for key in entry:
        if key not in _FILE_KEYS:
            raise InputError(f"{where}.{key}", None, "unknown key", f"use {', '.join(sorted(_FILE_KEYS))}")
    path = entry.get("path")
    if not isinstance(path, str) or not path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise InputError(f"{where}.path", path, "must be an absolute path", "write it like /etc/motd")
    for key in ("append", "defer"):
        if not isinstance(entry.get(key, False), bool):
            raise _wrong(f"{where}.{key}", entry[key], "must be true or false")
    owner = entry.get("owner", "root:root")
    if not isinstance(owner, str) or not set(owner.split(":")) <= {"root", user}:
        raise InputError(f"{where}.owner", owner, "is not a user of a node", f"use root or {user}")
    permissions = entry.get("permissions", "0644")
    if not isinstance(permissions, str) or not _PERMISSIONS.fullmatch(permissions):
        raise InputError(
            f"{where}.permissions", permissions, "is not an octal string", "write it like '0644'"
        )
    content = _decode(where, entry.get("content", ""), entry.get("encoding", "text/plain"))
    file = File(path, content, int(permissions, 8), bool(entry.get("append", False)))
    return file, bool(entry.get("defer", False))


def _decode(where: str, content: Any, encoding: Any) -> bytes:
    if isinstance(content, str):
        content = content.encode()
    if not isinstance(content, bytes):  # YAML's !!binary
        raise _wrong(f"{where}.content", content, "must be text")
    if encoding == "text/plain":
        return content
    try:
        if encoding in {"b64", "base64"}:
            return base64.b64decode(content)
        if encoding in {"gz", "gzip"}:
            return gzip.decompress(content)
        if encoding in {"gz+b64", "gz+base64", "gzip+b64", "gzip+base64"}:
            return gzip.decompress(base64.b64decode(content))
    except (binascii.Error, OSError, EOFError) as error:
        raise InputError(
            f"{where}.content", None, f"is not {encoding}: {error}", "encode it again"
        ) from error
    raise InputError(f"{where}.encoding", encoding, "unknown", "use b64, gzip or gz+b64")


def _runcmd(commands: list[Any]) -> str:
    lines = ["#!/bin/sh"]
    for number, command in enumerate(commands):
        if isinstance(command, str):
            lines.append(command)
        elif isinstance(command, list):
            lines.append(shlex.join(str(word) for word in command))
        else:
            raise _wrong(f"runcmd[{number}]", command, "must be text or a list")
    return "\n".join(lines) + "\n" if commands else ""


def _packages(names: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(one, str) for one in names):
        raise _wrong("packages", names, "must be a list of names")
    return tuple(names)


def _system_users(entries: list[Any]) -> tuple[str, ...]:
    names = []
    for number, entry in enumerate(entries):
        if entry == "default":  # the one that Azure makes, whom the node has in any case
            continue
        if not isinstance(entry, dict):
            raise _wrong(f"users[{number}]", entry, "must be default or a mapping")
        for key in entry:
            if key not in _USER_KEYS:
                problem = "a rehearsed node has system users without keys or rights only"
                raise InputError(
                    f"users[{number}].{key}", None, problem, f"use {', '.join(sorted(_USER_KEYS))}"
                )
        if entry.get("system") is not True or not _USER_NAME.fullmatch(str(entry.get("name"))):
            raise _wrong(f"users[{number}]", entry, "must have a name, and system: true")
        names.append(str(entry["name"]))
    return tuple(names)


def _mounts(entries: list[Any]) -> tuple[Mount, ...]:
    found = []
    for number, entry in enumerate(entries):
        where = f"mounts[{number}]"
        temporary = isinstance(entry, list) and entry[:1] == [_TEMPORARY_DISK]
        if not isinstance(entry, list) or len(entry) < _MOUNT_FIELDS - temporary:
            raise _wrong(where, entry, "must be a list of device, folder and type")
        source, target, kind = (str(word) for word in [*entry, "auto"][:_MOUNT_FIELDS])
        if kind not in _SHARED_KINDS and not temporary:
            raise InputError(where, kind, "rehearsed nodes mount NFS only", f"use {', '.join(_SHARED_KINDS)}")
        if not target.startswith("/") or ".." in PurePosixPath(target).parts:
            raise InputError(where, target, "must be an absolute path", "write it like /mnt/nfs")
        if not temporary:  # without such a disk cloud-init ignores the entry
            found.append(Mount(source, target))
    return tuple(found)
