"""A conda environment file: its own, or as a mapping in another file.

One with nothing but Python and pip's packages needs no conda. The keys and the specifications of packages are
conda's ("Managing environments", "Package match specifications").
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from launch.access import Access, Scope
from launch.environment.environment_spec import PythonEnvironment
from launch.environment.requirements import Source, parse_requirements
from launch.errors import InputError, InputErrors
from launch.jobfile import values
from launch.jobfile.fields import Reader
from launch.jobfile.yaml_source import Place, compose

__all__ = ["conda_environment", "read_conda"]

_SPEC = re.compile(r"(?:[\w./:][\w./:-]*::)?(?P<name>[A-Za-z0-9_][\w.-]*)(?P<rest>\s*[=<>!~\[].*| [\d*].*|)")
_EXACT = re.compile(r"(?P<sign>={0,2})\s*(?P<version>\d+(?:\.\d+)*)(?P<star>(?:\.?\*)?)")
_RANGE = re.compile(r"(?:(?:>=|<=|>|<|!=|~=)\s*\d+(?:\.\d+)*(?:\.\*)?\s*(?:,\s*|$))+")
_CHANNEL = re.compile(r"https?://\S+|[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*")
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)|(?<=/t/)[^/\s]+")
_FOLDER = ("file://", "/", "./", "../", "~")
_PREFIX = "prefix"
"""The folder that ``conda env export`` adds: conda does not read it where a file is given to it."""
_REFUSED = {
    "variables": (
        "are not taken from a conda file",
        "set environment_variables of the job",
    ),
}


@dataclass(slots=True)
class _Dependencies:
    python: str | None = None
    python_spec: str = ""
    conda: list[str] = field(default_factory=list)
    pip: list[Source] = field(default_factory=list)
    pip_itself: list[tuple[str, Source]] = field(default_factory=list)
    """Specifications of pip, and what they are as requirements."""


@dataclass(slots=True)
class _Channels:
    names: list[str] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)


def read_conda(
    path: Path, access: Access | None = None, key: str = "--conda", scope: Scope | None = None
) -> PythonEnvironment:
    """Return the environment of a conda file; ``key`` named it.

    ``${NAME}`` in pip's part is replaced where ``access`` allows that variable; paths have to lie in the
    file's repository, which is ``scope``'s where another file has named it. Raise
    :class:`~launch.errors.InputError` with file, line, key, value and remedy.
    """
    if scope is None:
        scope, _ = (access or Access()).typed(key, path)
    try:
        place = compose(path, kind="a conda file, e.g. conda.yml")
    except InputError as error:
        if error.key != "file":
            raise
        raise InputError(key, error.value, error.problem, error.remedy) from None
    return replace(conda_environment(place, scope.at(path.parent)), title=path.name)


def conda_environment(place: Place, scope: Scope) -> PythonEnvironment:
    """Return the environment of a conda file's mapping, which may read what ``scope`` says."""
    reader = Reader()
    entries = place.entries()
    reader.add(*(entries[key].wrong(*why) for key, why in _REFUSED.items() if key in entries))
    found = reader.block(place, ("name", _PREFIX, "channels", "dependencies"), tuple(_REFUSED))
    if _PREFIX in found:
        line = f"{found[_PREFIX].where}: prefix is not used: it names a folder of another machine"
        scope.access.notes.append(line)
    reader.get(found, "name", values.text, "")
    channels, dependencies = _Channels(), _Dependencies()
    if "channels" in found:
        with reader.collecting():
            for item in found["channels"].items():
                with reader.collecting():
                    _read_channel(item, channels, scope)
            if channels.names == ["nodefaults"]:
                raise found["channels"].wrong("has no channel but nodefaults", "add one, e.g. conda-forge")
    if "dependencies" not in found:
        reader.add(place.wrong("has no dependencies", "list packages, e.g. - python=3.10"))
    else:
        with reader.collecting():
            for item in found["dependencies"].items():
                with reader.collecting():
                    _read(reader, item, dependencies, scope)
    if dependencies.conda:
        if "::" in dependencies.python_spec and dependencies.python_spec not in dependencies.conda:
            dependencies.conda.append(dependencies.python_spec)
            dependencies.python = ""
        dependencies.conda += [spec for spec, _ in dependencies.pip_itself]
    else:
        dependencies.pip = [source for _, source in dependencies.pip_itself] + dependencies.pip
    made = PythonEnvironment()
    with reader.collecting():
        made = parse_requirements(dependencies.pip)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    made = replace(made, python=dependencies.python or "")
    if not dependencies.conda:
        return made
    content = {"channels": channels.names, "dependencies": dependencies.conda}
    conda = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return replace(made, conda=conda, channels=tuple(channels.folders))


def _read_channel(item: Place, into: _Channels, scope: Scope) -> None:
    """Add one entry of ``channels``; a folder of this machine by its number."""
    text = values.text(item).strip()
    if text.startswith(_FOLDER):
        path = values.local(item, unquote(text.removeprefix("file://")), scope, "the folder above noarch")
        if not any(path.glob("*/repodata.json*")):
            raise item.wrong(
                "is not a folder with a channel, which has noarch/repodata.json",
                "name the folder above noarch; `conda index FOLDER` makes a channel of packages",
            )
        into.names.append(f"folder:{len(into.folders)}")
        into.folders.append(path)
        return
    if not _CHANNEL.fullmatch(text):
        remedy = "write a name such as conda-forge, an https:// URL, or file:// and a folder"
        raise item.wrong("is not a channel", remedy)
    _refuse_login(item, text)
    into.names.append(text)


def _refuse_login(item: Place, text: str) -> None:
    if _LOGIN.search(text):
        remedy = "use a channel without one, or copy its packages into a folder and name that"
        problem = "has a password or token, which would stay in the environment's records"
        raise InputError(f"{item.where}: {item.key}", _LOGIN.sub("***", text), problem, remedy)


def _read(reader: Reader, item: Place, into: _Dependencies, scope: Scope) -> None:
    """Add one entry of ``dependencies``."""
    if item.is_mapping:
        for one in reader.block(item, ("pip",)).values():
            into.pip += [
                Source(f"{line.where}: {line.key}", values.text(line, replaced=True), scope)
                for line in one.items()
            ]
        return
    text = " ".join(values.text(item).split())
    _refuse_login(item, text)
    spec = _SPEC.fullmatch(text)
    if spec is None:
        raise item.wrong("is not a package", "write a name and a version, e.g. numpy=1.26")
    name = spec["name"].lower()
    if text.startswith(_FOLDER):
        raise item.wrong("names a folder as its channel", "list the folder under channels")
    version = _version(spec["rest"])
    if name == "python":
        if into.python is not None:
            raise item.wrong("gives python a second time", "keep one of the two")
        into.python, into.python_spec = version or "", text
        if version is None:  # a build of it, which its channel alone has
            into.conda.append(text)
    elif name == "pip" and version is not None:
        requirement = f"pip{_pip_version(version, spec['rest'])}"
        into.pip_itself.append((text, Source(f"{item.where}: {item.key}", requirement, scope)))
    else:
        into.conda.append(text)


def _version(rest: str) -> str | None:
    """Return the version of conda's specification: one like ``3.10``, a range, or an empty text; None for
    what only conda understands.

    ``=3.10`` and ``=3.10.*`` both mean the newest 3.10.
    """
    rest = rest.strip()
    exact = _EXACT.fullmatch(rest)
    if exact:
        return exact["version"]
    return None if rest and not _RANGE.fullmatch(rest) else "".join(rest.split())


def _pip_version(version: str, rest: str) -> str:
    exact = _EXACT.fullmatch(rest.strip())
    if exact is None:
        return version
    return f"=={version}" if exact["sign"] == "==" and not exact["star"] else f"=={version}.*"
