"""A conda environment file: its own, or as a mapping in another file.

One with nothing but Python and pip's packages needs no conda. The keys and the specifications of packages are
conda's ("Managing environments", "Package match specifications").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.environment.environment_spec import PythonEnvironment
from launch.environment.requirements import Source, parse_requirements
from launch.errors import InputError, InputErrors
from launch.jobfile import values
from launch.jobfile.fields import Reader
from launch.jobfile.yaml_source import Place, compose

__all__ = ["conda_environment", "read_conda"]

_SPEC = re.compile(r"(?:[\w./:-]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)(?P<rest>\s*[=<>!~\[].*| [\d*].*|)")
_EXACT = re.compile(r"(?P<sign>={0,2})\s*(?P<version>\d+(?:\.\d+)*)(?P<star>(?:\.?\*)?)")
_RANGE = re.compile(r"(?:(?:>=|<=|>|<|!=|~=)\s*\d+(?:\.\d+)*(?:\.\*)?\s*(?:,\s*|$))+")
_DEFAULT_CHANNEL = "defaults"
"""What conda searches where a file has no channels."""
_REFUSED = {
    "prefix": ("is a folder of another machine", "remove it"),
    "variables": (
        "are set by activating the environment, which no rank does",
        "set environment_variables of the job",
    ),
}


@dataclass(slots=True)
class _Dependencies:
    python: str | None = None
    conda: list[str] = field(default_factory=list)
    pip: list[Source] = field(default_factory=list)


def read_conda(path: Path, environ: Mapping[str, str], key: str = "--conda") -> PythonEnvironment:
    """Return the environment of a conda file; ``key`` named it.

    ``${NAME}`` in pip's part is replaced by that variable of ``environ``. Raise
    :class:`~launch.errors.InputError` with file, line, key, value and remedy.
    """
    try:
        place = compose(path, kind="a conda file, e.g. conda.yml")
    except InputError as error:
        if error.key != "file":
            raise
        raise InputError(key, error.value, error.problem, error.remedy) from None
    return replace(conda_environment(place, path.parent, environ), title=path.name)


def conda_environment(place: Place, folder: Path, environ: Mapping[str, str]) -> PythonEnvironment:
    """Return the environment of a conda file's mapping; paths in it start from ``folder``."""
    reader = Reader()
    entries = place.entries()
    reader.errors += [entries[key].wrong(*why) for key, why in _REFUSED.items() if key in entries]
    found = reader.block(place, ("name", "channels", "dependencies"), tuple(_REFUSED))
    reader.get(found, "name", values.text, "")
    channels: tuple[str, ...] = reader.get(found, "channels", _texts, ())
    dependencies = _Dependencies()
    if "dependencies" not in found:
        reader.errors.append(place.wrong("has no dependencies", "list packages, e.g. - python=3.10"))
    else:
        with reader.collecting():
            for item in found["dependencies"].items():
                with reader.collecting():
                    _read(reader, item, dependencies, folder)
    made = PythonEnvironment()
    with reader.collecting():
        made = parse_requirements(dependencies.pip, environ)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    conda = ""
    if dependencies.conda:
        content = {"channels": list(channels) or [_DEFAULT_CHANNEL], "dependencies": dependencies.conda}
        conda = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return replace(made, python=dependencies.python or "", conda=conda)


def _texts(place: Place) -> tuple[str, ...]:
    return tuple(values.text(item) for item in place.items())


def _read(reader: Reader, item: Place, into: _Dependencies, folder: Path) -> None:
    """Add one entry of ``dependencies``."""
    if item.is_mapping:
        for one in reader.block(item, ("pip",)).values():
            into.pip += [
                Source(f"{line.where}: {line.key}", values.text(line), folder) for line in one.items()
            ]
        return
    text = " ".join(values.text(item).split())
    spec = _SPEC.fullmatch(text)
    if spec is None:
        raise item.wrong("is not a package", "write a name and a version, e.g. numpy=1.26")
    name = spec["name"].lower()
    if name == "python":
        if into.python is not None:
            raise item.wrong("gives python a second time", "keep one of the two")
        into.python = _version(item, spec["rest"])
    elif name == "pip":
        into.pip.append(Source(f"{item.where}: {item.key}", f"pip{_pip_version(item, spec['rest'])}", folder))
    else:
        into.conda.append(text)


def _version(item: Place, rest: str) -> str:
    """Return the version of conda's specification: one like ``3.10``, a range, or nothing.

    ``=3.10`` and ``=3.10.*`` both mean the newest 3.10.
    """
    rest = rest.strip()
    exact = _EXACT.fullmatch(rest)
    if exact:
        return exact["version"]
    if rest and not _RANGE.fullmatch(rest):
        raise item.wrong("is not a version that can be had by itself", "write it as =3.10, or >=3.9,<3.12")
    return "".join(rest.split())


def _pip_version(item: Place, rest: str) -> str:
    version, exact = _version(item, rest), _EXACT.fullmatch(rest.strip())
    if exact is None:
        return version
    return f"=={version}" if exact["sign"] == "==" and not exact["star"] else f"=={version}.*"
