"""A job file's data and the stack's storage: where nodes get each input, and where the outputs go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launch.data.data_inputs import find_source
from launch.data.data_spec import BlobAddress, DataInput, DataKind, DataSource, Stage
from launch.data.data_stores import Storage, choose_stage
from launch.errors import InputError, InputErrors
from launch.remote.base.records import UploadRecord
from playbooks.data.stack_storage import read_stage, stage_flag
from playbooks.data.staging import pushed_path

if TYPE_CHECKING:
    from launch.jobfile import JobFile

__all__ = ["choose_job_stage", "find_sources", "find_uploads", "input_places"]


def choose_job_stage(job: JobFile, flag: str | None, storage: Storage) -> Stage | None:
    """Return where the option, else the file, wants all data. Raise :class:`~launch.errors.InputError`."""
    if flag is not None:
        return stage_flag(flag, storage)
    if job.own.stage is None:
        return None
    place = job.places["ranklift.stage"]
    key = f"{place.where}: {place.key}"
    return choose_stage(key, read_stage(key, job.own.stage), storage)


def find_sources(
    job: JobFile, storage: Storage, signed: Sequence[BlobAddress], stage: Stage | None
) -> dict[str, DataSource]:
    """Return what nodes fetch for each input in storage; without ``stage``, what is to be mounted goes into
    the shared folder, if there is one. Raise :class:`~launch.errors.InputError`."""
    from launch.jobfile import Data

    found, errors = {}, []
    for name, data in job.inputs.items():
        if not isinstance(data, Data) or data.address is None:
            continue
        place = job.places[f"inputs.{name}.path"]
        kind: DataKind = "file" if data.type == "uri_file" else "folder"
        chosen = stage or ("nfs" if data.mounted and storage.shared else "disk")
        wanted = DataInput(kind, data.address, data.direct, f"{place.where}: {place.key}", chosen)
        try:
            if source := find_source(name, wanted, storage, signed):
                found[name] = source
        except InputError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors)
    return found


def find_uploads(job: JobFile, identifier: str, storage: Storage) -> tuple[UploadRecord, ...]:
    """Return where the outputs of the job of this id go. Raise :class:`~launch.errors.InputError`."""
    from launch.data.output_places import output_places, refuse_part_of_whole, whole_place
    from launch.jobfile import destination

    places = {name: job.places[f"outputs.{name}.path"] for name, one in job.outputs.items() if one.path}
    written = {
        name: (destination(place, identifier), f"{place.where}: {place.key}")
        for name, place in places.items()
    }
    found = output_places(written, storage)
    if job.own.upload:
        place = job.places["ranklift.upload"]
        whole = whole_place(identifier, storage, f"{place.where}: {place.key}")
        for one in found:
            refuse_part_of_whole(one, whole, written[one["name"]][1])
        found.append(whole)
    if job.own.upload_every_s is not None and not found:
        raise job.places["ranklift.upload_every"].wrong(
            "has nothing to upload", "set ranklift.upload: true, or give an output a path in storage"
        )
    return tuple(found)


def input_places(
    job: JobFile, pushed: Mapping[Path, str], home: str, sources: Mapping[str, DataSource]
) -> dict[str, str]:
    """Return what stands for each data input that is known now: its path on the nodes, or its address.

    ``pushed`` are ids of snapshots by what they hold of this machine, ``home`` is the nodes' home folder.
    """
    from launch.jobfile import Data

    places = {}
    for name, value in job.inputs.items():
        if not isinstance(value, Data):
            continue
        if value.local is not None:
            places[name] = pushed_path(home, pushed[value.local], value.local)
        elif value.remote is not None:
            places[name] = value.remote
        elif value.direct:
            places[name] = sources[name].address.url
    return places
