"""Data assets: files of Azure ML's "CLI (v2) data YAML schema" in a folder ``data``, by name and version."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.access import Access, read_resolved
from launch.data.data_spec import AssetName
from launch.errors import InputError, InputErrors, RetryError
from launch.jobfile import values
from launch.jobfile.fields import Reader
from launch.jobfile.schema import Data, JobFile
from launch.jobfile.sections import read_data
from launch.jobfile.yaml_source import Place, compose

__all__ = ["ASSETS", "DataAsset", "find_asset", "list_assets", "read_asset", "with_assets"]

ASSETS = "data"
"""The folder of the files, in the project and beside job files."""
_TYPES = ("uri_file", "uri_folder", "mltable")
_USED = ("$schema", "name", "version", "type", "path", "description", "tags")
_FILE = "uri_file"
_LARGEST = 256 * 1024
_LONGEST = 100
_PART = re.compile(rf"\w[\w.-]{{0,{_LONGEST - 1}}}")
_UNUSED = ("properties", "datastore", "stage")
_NAMED = re.compile(
    r"^(?:name|\"name\")[ \t]*:[ \t]*[\"']?([A-Za-z0-9][\w.-]*)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE
)
_TEXT = re.compile(r"^(?:type|path)[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DataAsset:
    """One version of a data asset."""

    name: str
    version: str
    data: Data
    file: Path


@dataclass(frozen=True, slots=True)
class _Known:
    """What was listed and read before: a job file may name thousands of assets."""

    listed: dict[Path, dict[str, list[Path]]] = field(default_factory=dict)
    """Files of a folder, by the name in them."""
    assets: dict[Path, DataAsset] = field(default_factory=dict)
    """By a listed file."""


def read_asset(path: Path, access: Access | None = None, above: Path | None = None) -> DataAsset:
    """Return the asset that a file describes.

    It may read its repository, that of the folder ``above`` it where that is given, and what ``access``
    allows. Without ``above`` it is the user who names the file.

    Raise :class:`~launch.errors.InputError` with file and line, or several of them.
    """
    access = access or Access()
    scope = access.of(above).at(path.parent) if above else access.typed("file", path)[0]
    place = compose(path, kind="a data asset of Azure ML")
    reader = Reader()
    found = reader.block(place, _USED, _UNUSED)
    name = reader.get(found, "name", lambda one: _name(one, values.text(one)), "")
    version = reader.get(found, "version", lambda one: _name(one, values.written(one)), "")
    kind = reader.get(found, "type", lambda one: values.one_of(one, _TYPES), "uri_folder")
    data = None
    if "path" in found:
        data = reader.get(found, "path", lambda one: read_data(reader, one, kind, scope), None)
    for key, example in (("name", "iris"), ("path", "azureml://datastores/workspaceblobstore/paths/iris")):
        if key not in found and not reader.errors:
            reader.add(place.wrong(f"the data asset has no {key}", f"add {key}: {example}"))
    if data is not None and isinstance(data.address, AssetName):
        reader.add(found["path"].wrong("names another asset", "give the address of the data itself"))
    if reader.errors or data is None:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    return DataAsset(name, version, data, path)


def _name(place: Place, text: str) -> str:
    """Return a name or a version, which ``fab data.register`` puts into the names of a file and a blob."""
    if text and not _PART.fullmatch(text):
        problem = f"is not at most {_LONGEST} letters, digits, dots, dashes and underscores"
        raise place.wrong(problem, "write it like iris-2 or 3")
    return text


def list_assets(folder: Path) -> dict[str, list[Path]]:
    """Return the files of a ``data`` folder that look like assets, by the name in them."""
    found: dict[str, list[Path]] = {}
    for path in sorted((folder / ASSETS).glob("*.y*ml")):
        try:
            text = read_resolved(Path(os.path.realpath(path)), _LARGEST).decode()
        except (OSError, RetryError, UnicodeDecodeError):
            continue  # a named asset's file is read again, with its error
        if (match := _NAMED.search(text)) and _TEXT.search(text):
            found.setdefault(match[1], []).append(path)
    return found


def find_asset(
    wanted: AssetName,
    where: str,
    folders: Sequence[Path],
    access: Access | None = None,
    known: _Known | None = None,
) -> DataAsset:
    """Return the asset of that name, of that version or the latest; the first folder that has it wins.

    Raise :class:`~launch.errors.InputError` naming ``where`` for an unknown one, and for a wrong file.
    """
    written = f"azureml:{wanted.name}" + (f":{wanted.version}" if wanted.version else "")
    known = known or _Known()
    real = dict.fromkeys(folder.resolve() for folder in folders)
    for folder in real.keys() - known.listed.keys():
        known.listed[folder] = list_assets(folder)
    versions: list[str] = []
    for folder in real:
        named = known.listed[folder].get(wanted.name, ())
        scope = (access or Access()).of(folder)
        for path in named:
            if path not in known.assets:
                known.assets[path] = read_asset(scope.admitted(where, path), access, folder)
        assets = [known.assets[path] for path in named]
        versions += [one.version for one in assets]
        chosen = [one for one in assets if wanted.version in ("", one.version)]
        if len({one.version for one in chosen}) < len(chosen):
            names = ", ".join(str(one.file) for one in chosen)
            raise InputError(where, written, f"has the same version in {names}", "remove one of the files")
        if chosen:
            return max(chosen, key=lambda one: _order(one.version))
    if versions:
        there = ", ".join(versions)
        remedy = "name one of these, or `fab data.register` it"
        raise InputError(where, written, f"has no such version, only {there}", remedy)
    close = values.nearest(wanted.name, [name for folder in real for name in known.listed[folder]])
    places = " or ".join(dict.fromkeys(str(folder / ASSETS) for folder in folders))
    meant = f"did you mean azureml:{close}? Else write" if close else "write"
    raise InputError(
        where,
        written,
        f"no file in {places} describes it",
        f"{meant} its YAML there, as `az ml data show -n {wanted.name}` prints it, or `fab data.register`",
    )


def with_assets(job: JobFile, folders: Sequence[Path], access: Access | None = None) -> JobFile:
    """Return the job file with what its assets stand for. Raise :class:`~launch.errors.InputError`."""
    inputs: dict[str, str | Data] = dict(job.inputs)
    reader = Reader()
    found: dict[AssetName, DataAsset] = {}
    known = _Known()
    for name, data in job.inputs.items():
        if isinstance(data, Data) and isinstance(data.address, AssetName):
            place = job.places[f"inputs.{name}.path"]
            with reader.collecting():
                if data.address not in found:
                    where = f"{place.where}: {place.key}"
                    found[data.address] = find_asset(data.address, where, folders, access, known)
                inputs[name] = _checked(found[data.address], data, job, name)
    if reader.errors:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    return replace(job, inputs=inputs)


def _checked(asset: DataAsset, wanted: Data, job: JobFile, name: str) -> Data:
    """Return the asset's data; refuse it where the job file wants a file and it is a folder, or not."""
    place = job.places.get(f"inputs.{name}.type")
    if place is not None and (wanted.type == _FILE) != (asset.data.type == _FILE):
        raise place.wrong(f"{asset.file} has type {asset.data.type}", f"write type: {asset.data.type}")
    return replace(asset.data, direct=wanted.direct, mounted=wanted.mounted)


def _order(version: str) -> tuple[bool, int, str]:
    """Return what versions are sorted by: numbers by their value, behind other texts.

    >>> max(["9", "10", "2024-05"], key=_order)
    '10'
    """
    return (version.isdecimal(), int(version) if version.isdecimal() else 0, version)
