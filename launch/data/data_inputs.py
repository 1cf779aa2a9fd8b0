"""Inputs of a job that are in storage: their sources, and their paths in a command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from launch.data.data_address import read_address, without_query
from launch.data.data_spec import (
    AssetName,
    BlobAddress,
    DataInput,
    DataSource,
    DatastorePath,
    LocalPath,
    NodePath,
    WebAddress,
)
from launch.data.data_stores import Storage, refuse_sas, with_sas
from launch.errors import InputError
from launch.expressions import expressions, remedy_of, replaced, unclosed
from launch.remote.base.records import DataRecord

__all__ = ["fill_inputs", "find_source", "placeholder", "planned_data", "read_input_flags"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_input_flags(given: Iterable[str]) -> dict[str, DataInput]:
    """Return the inputs that ``--input NAME=ADDRESS`` gives; an address with a slash at its end is a folder.

    >>> read_input_flags(["iris=azureml://datastores/data/paths/iris/"])["iris"].kind
    'folder'

    Raise :class:`~launch.errors.InputError`.
    """
    found: dict[str, DataInput] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or not value:
            remedy = "write it like --input iris=azureml://datastores/workspaceblobstore/paths/iris/"
            shown = f"{name}{equals}{without_query(value)}"
            raise InputError("--input", shown, "is not NAME=ADDRESS", remedy)
        if name in found:
            raise InputError(f"--input {name}", None, "is given twice", "give each input once")
        where = f"--input {name}"
        address = read_address(where, value)
        refuse_sas(where, address)
        found[name] = DataInput("folder" if value.endswith("/") else "file", address, where=where)
    return found


def find_source(
    name: str, wanted: DataInput, storage: Storage, signed: Iterable[BlobAddress] = ()
) -> DataSource | None:
    """Return what nodes fetch for an input; None for one that is a path. Raise
    :class:`~launch.errors.InputError`."""
    address = wanted.address
    if isinstance(address, LocalPath | NodePath):
        return None
    assert not isinstance(address, AssetName)  # noqa: S101  (it stands for one of the others)
    if isinstance(address, DatastorePath):
        address = storage.locate(address, wanted.where)
    if isinstance(address, BlobAddress):
        if wanted.kind == "file" and not address.path:
            raise InputError(wanted.where, address.url, "is a container, not a file", "name a file in it")
        address = with_sas(address, signed)
    elif wanted.kind == "folder":
        remedy = "name one file, without a slash at its end"
        raise InputError(
            wanted.where, address.url, "is a folder of a web server, which lists no files", remedy
        )
    if wanted.direct and (isinstance(address, WebAddress) and address.query):
        raise InputError(
            wanted.where,
            address.url,
            "has a query, which would be in the job's records",
            "use mode: download",
        )
    return DataSource(name, wanted.kind, address, wanted.stage)


def planned_data(sources: Iterable[DataSource], shared: str | None) -> tuple[DataRecord, ...]:
    """Return the records of data that the nodes have not got yet: without an id, and with a path where all
    share the folder ``shared``."""
    return tuple(
        {
            "name": one.name,
            "id": "",
            "path": shared or "" if one.stage == "nfs" else "",
            "bytes": 0,
            "files": 0,
            "url": one.address.url,
            "seconds": 0.0,
        }
        for one in sources
    )


def placeholder(name: str) -> str:
    """Return what stands for an input's path until it is known.

    >>> placeholder("iris")
    '${{inputs.iris}}'
    """
    return f"${{{{inputs.{name}}}}}"


def fill_inputs(line: str, paths: Mapping[str, str]) -> str:
    """Return a command line with the paths of its inputs, quoted for a shell.

    >>> fill_inputs("train.py --data ${{inputs.iris}}", {"iris": "/mnt/my data"})
    "train.py --data '/mnt/my data'"

    Raise :class:`~launch.errors.InputError` for an input that is not given, and for any other expression.
    """
    if begun := unclosed(line):
        raise InputError("line", begun, "${{ is not closed", "close it with }}, as in ${{inputs.NAME}}")
    known = {}
    for one in expressions(line):
        group, _, name = one.name.partition(".")
        if group != "inputs":
            problem, remedy = remedy_of(one.name) or (
                "is not replaced in a line: inputs alone are",
                "write ${{inputs.NAME}} and give --input NAME=ADDRESS; results belong into the folder that "
                "RANKLIFT_OUTPUT_DIR names",
            )
            raise InputError("line", one.text, problem, remedy)
        if name not in paths:
            shown = name if _NAME.fullmatch(name) else "NAME"
            raise InputError("line", one.text, "is not given", f"give --input {shown}=ADDRESS")
        known[one.name] = one.text if paths[name] == placeholder(name) else shlex.quote(paths[name])
    return replaced(line, known)
