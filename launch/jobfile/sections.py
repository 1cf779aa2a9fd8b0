"""The nested sections of a job file: inputs, outputs, distribution, the ``ranklift:`` block."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import get_args

from launch.access import Scope
from launch.data.data_address import is_address, read_address
from launch.data.data_spec import STAGES, LocalPath, NodePath, WebAddress
from launch.data.data_stores import refuse_sas
from launch.errors import InputError
from launch.job.spec import OutputType
from launch.jobfile import values
from launch.jobfile.environment_block import read_environment
from launch.jobfile.fields import Reader
from launch.jobfile.interpolation import destination
from launch.jobfile.mltable import MLTABLE, refuse_paths_elsewhere
from launch.jobfile.schema import Data, Distribution, Output, Own
from launch.jobfile.yaml_source import Place
from launch.launchers.base import either
from launch.launchers.registry import LAUNCHERS
from launch.launchers.tensorflow import MOST_SERVERS
from launch.remote.base.health_records import HealthMode
from launch.remote.mpi.registry import MPIS

__all__ = ["OWN", "read_data", "read_distribution", "read_input", "read_output", "read_own"]

OWN = (
    *("mpi", "mpirun_args", "nodes", "setup", "python", "environment", "chief", "metrics", "max_restarts"),
    *("hang_after", "health", "on_unhealthy", "grace", "upload", "upload_every", "probe"),
    *("flight_recorder", "identity", "stage"),
)
"""Keys of the ``ranklift:`` block."""
_ASSETS = get_args(OutputType)
_INPUT_MODES = ("ro_mount", "download", "direct", "eval_mount", "eval_download")
_OUTPUT_MODES = ("mount", "rw_mount", "upload", "direct")
_PATHS = ("data", "dataset", "file", "folder", "source", "uri", "url")
"""What the path is called elsewhere."""
_STAGED = ("ro_mount", "download")
_SOME_JOB = "job"
"""Stands for a job's id until it has one."""
_FILES, _FOLDERS = ("uri_file",), ("uri_folder", MLTABLE, "mlflow_model")

_PROCESSES = values.whole("give the number of processes on each node, or leave it out for one")
_WORKERS = values.whole("give the number of workers in all, or leave it out for one on each node")
_SERVERS = values.whole("give the number of parameter servers in all", low=0, high=MOST_SERVERS)
_RESTARTS = values.whole("give the number of launches after a failure", low=0)


def read_input(reader: Reader, place: Place, scope: Scope) -> str | Data | None:
    """Return an input: the text of a plain value, or a file or folder; None for a wrong one."""
    if not place.is_mapping:
        if place.is_list:
            reader.add(place.wrong("is a list", "give one value, or a type and a path"))
            return None
        return reader.get({"": place}, "", values.literal, "")
    keys = reader.entries(place)
    if "value" in keys and "path" not in keys:
        found = reader.block(place, ("value",))
        return reader.get(found, "value", values.literal, "")
    hints = {
        "path_on_compute": f"Ranklift chooses its path on the nodes: use ${{{{{place.key}}}}} in the command",
        "default": "give the value itself, as in lr: 0.1",
        **dict.fromkeys(_PATHS, "write path: with the path or the address"),
    }
    before = len(reader.errors)
    found = reader.block(place, ("type", "path", "mode"), ("datastore",), hints)
    if len(reader.errors) > before:
        return None
    with reader.collecting():
        mode = values.one_of(found["mode"], _INPUT_MODES) if "mode" in found else None
        kind = values.one_of(found["type"], _ASSETS) if "type" in found else "uri_folder"
        if "path" not in found:
            raise place.wrong("has no path", "add path:, or give a plain value in place of the mapping")
        return _with_mode(reader, read_data(reader, found["path"], kind, scope), found.get("mode"), mode)
    return None


def _with_mode(reader: Reader, data: Data, place: Place | None, mode: str | None) -> Data:
    if place is None or data.address is None:
        reader.unused += [place.key] if place else []
        return data
    if mode == "direct":
        return dataclasses.replace(data, direct=True)
    if mode not in _STAGED:
        raise place.wrong(
            "is not how data comes to the nodes here",
            "use download, which copies it to every node before the ranks start; ro_mount is the same, or "
            "makes one copy in the nodes' shared folder",
        )
    return dataclasses.replace(data, mounted=mode == "ro_mount")


def read_data(reader: Reader, place: Place, kind: str, scope: Scope) -> Data:
    """Return the data of Azure ML's type ``kind`` at a path or an address; raise its error."""
    value = values.without_file(values.text(place))
    if not value:
        raise place.wrong("is empty", "give a path relative to the job file, or file:///path on the nodes")
    if is_address(value):
        return _at_address(place, kind, value)
    found = values.local(
        place, value, scope, "a path relative to the job file; one on the nodes begins with file:///"
    )
    if kind in _FILES and not found.is_file():
        raise place.wrong("is a folder, not a file", "name the file, or make the type uri_folder")
    if kind in _FOLDERS and not found.is_dir():
        raise place.wrong("is a file, not a folder", "name the folder, or make the type uri_file")
    if kind == MLTABLE and found not in reader.tables:
        reader.tables.add(found)
        refuse_paths_elsewhere(found)
    named = Path(os.path.abspath(scope.named(value)))  # noqa: PTH100  (a link to a file keeps its name)
    return Data(kind, named if found.is_file() else found, None, real=found)


def _at_address(place: Place, kind: str, value: str) -> Data:
    key = f"{place.where}: {place.key}"
    address = read_address(key, value)
    if isinstance(address, NodePath):
        return Data(kind, None, address.path)
    assert not isinstance(address, LocalPath)  # noqa: S101  (it has a scheme)
    refuse_sas(key, address)
    if isinstance(address, WebAddress) and kind not in _FILES:
        raise InputError(key, address.url, "is one file of a web server", "make the type uri_file")
    return Data(kind, None, None, address)


def read_output(reader: Reader, place: Place) -> Output:
    """Return an output: its type, and where it goes."""
    if place.is_null:
        return Output()
    hints = dict.fromkeys(_PATHS, "write path: with the place in storage")
    found = reader.block(place, ("type", "path"), ("mode", "name", "version"), hints)
    kind, path = "uri_folder", ""
    with reader.collecting():
        if place.is_mapping and "mode" in (keys := place.entries()):
            values.one_of(keys["mode"], _OUTPUT_MODES)
        if "type" in found:
            kind = values.one_of(found["type"], _ASSETS)
        if "path" in found:
            destination(found["path"], _SOME_JOB)
            path = values.text(found["path"], replaced=True)
    return Output(kind, path)


def read_distribution(reader: Reader, place: Place) -> Distribution | None:
    """Return the distribution; None for a wrong one."""
    kind = None
    with reader.collecting():
        keys = place.entries()
        if "type" not in keys:
            remedy = f"add type: {either(LAUNCHERS)}"
            raise place.wrong("has no type", remedy)
        written = values.text(keys["type"])
        if written.lower() == "ray":
            raise keys["type"].wrong("Ray jobs cannot be started here", f"use {either(LAUNCHERS)}")
        kind = values.one_of(keys["type"], LAUNCHERS)
    if kind is None:
        return None
    mine = LAUNCHERS[kind].file_keys
    others = {key for one in LAUNCHERS.values() for key in one.file_keys if key not in mine}
    hints = dict.fromkeys(others, f"it is not for {kind}: leave it out")
    count = "process_count_per_instance"
    if count in mine:
        hints["process_count"] = f"it was the total over all nodes: give the count per node as {count}"
        hints["node_count"] = "give the number of nodes as resources.instance_count"
    found = reader.block(place, ("type", *mine), (), hints)
    processes = reader.get(found, count, _PROCESSES, None)
    workers = reader.get(found, "worker_count", _WORKERS, None)
    servers = reader.get(found, "parameter_server_count", _SERVERS, 0)
    if servers and "worker_count" not in found:
        at = found["parameter_server_count"]
        reader.add(at.wrong("need workers", "set worker_count too"))
    return Distribution(kind, processes, workers, servers)


def read_own(reader: Reader, place: Place, scope: Scope) -> Own:
    """Return the ``ranklift:`` block."""
    hints = {
        **dict.fromkeys(("image", "conda_file", "build", "requirements"), "write it under environment: here"),
        "timeout": "write it under limits:, beside ranklift:",
    }
    found = reader.block(place, OWN, (), hints)
    return Own(
        mpi=reader.get(found, "mpi", lambda place: values.one_of(place, MPIS), None),
        mpirun_args=reader.get(found, "mpirun_args", _words, ()),
        nodes=reader.get(found, "nodes", _nodes, None),
        setup=reader.get(found, "setup", values.text, ""),
        python=reader.get(found, "python", lambda place: _python(place, scope.folder), None),
        environment=read_environment(reader, found.get("environment"), scope, own=True),
        chief=reader.get(found, "chief", values.flag, False),
        metrics=_metrics(reader, found.get("metrics")),
        max_restarts=reader.get(found, "max_restarts", _RESTARTS, 0),
        hang_after_s=reader.get(found, "hang_after", values.span, None),
        health=reader.get(found, "health", _health, None),
        on_unhealthy=reader.get(
            found, "on_unhealthy", lambda place: values.one_of(place, ("refuse", "replace")), "refuse"
        ),
        grace_s=reader.get(found, "grace", values.span, None),
        upload=reader.get(found, "upload", values.flag, False),
        upload_every_s=reader.get(found, "upload_every", values.span, None),
        probe=reader.get(found, "probe", values.flag, None),
        flight_recorder=reader.get(found, "flight_recorder", values.flag, True),
        identity=reader.get(found, "identity", values.flag, False),
        stage=reader.get(found, "stage", lambda place: values.one_of(place, STAGES), None),
    )


def _metrics(reader: Reader, place: Place | None) -> dict[str, str]:
    found = {}
    for name, entry in reader.named(place, "a metric").items():
        with reader.collecting():
            found[name] = values.text(entry)
    return found


def _health(place: Place) -> HealthMode:
    mode = values.written(place)  # off is false in YAML
    for known in get_args(HealthMode):
        if mode.lower() == known:
            found: HealthMode = known
            return found
    raise place.wrong("is not a mode", f"use one of {', '.join(get_args(HealthMode))}")


def _words(place: Place) -> tuple[str, ...]:
    if not place.is_list:
        raise place.wrong("is not a list", "write each argument as a separate item, e.g. [--mca, pml, ob1]")
    return tuple(values.written(item) for item in place.items())


def _python(place: Place, folder: Path) -> str:
    """Return a command or a path on the nodes; make a relative path absolute from the job file's folder."""
    value = values.text(place)
    if "/" not in value or value.startswith(("/", "~")):
        return value
    return os.path.abspath(folder / value)  # noqa: PTH100  (an environment that is a link stays one)


def _nodes(place: Place) -> str:
    if place.is_list:
        return ",".join(values.written(item) for item in place.items())
    return values.written(place)
