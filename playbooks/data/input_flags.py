"""``--input NAME=ADDRESS``: data of a launch without a job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.inventory import Inventory
from launch.access import Access
from launch.data.data_inputs import find_source, read_input_flags
from launch.data.data_spec import AssetName, BlobAddress, DataInput, DataSource, LocalPath, NodePath
from launch.data.data_stores import Storage
from launch.errors import InputError
from playbooks.data.stack_storage import stage_flag, storage_of
from playbooks.project import Stack

__all__ = ["FoundInputs", "read_inputs"]


@dataclass(frozen=True, slots=True)
class FoundInputs:
    """Where the inputs are."""

    storage: Storage
    sources: Sequence[DataSource] = ()
    """In storage."""
    local: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)
    """On this machine: the path, and what it leads to."""
    remote: Mapping[str, str] = field(default_factory=dict)
    """On the nodes already."""


def read_inputs(
    stack: Stack,
    inventory: Inventory,
    given: Sequence[str],
    signed: Sequence[BlobAddress],
    source: Path,
    stage: str | None,
    access: Access,
) -> FoundInputs:
    """Return what the options ask for; ``stage`` is that of ``--stage``. Raise
    :class:`~launch.errors.InputError`.

    Assets are looked for in ``data/`` of the pushed folder ``source``, of the current folder and of the
    project; they may read what ``access`` says.
    """
    storage = storage_of(stack, inventory) if given or stage else Storage(None)
    place = stage_flag(stage, storage)
    sources, local, remote = [], {}, {}
    for name, asked in read_input_flags(given).items():
        one = _without_name(asked, [source, Path.cwd(), stack.project], access)
        if isinstance(one.address, LocalPath):
            path = _existing(one.address.path, one.where)
            local[name] = path, one.address.real or access.typed(one.where, path)[1]
        elif isinstance(one.address, NodePath):
            remote[name] = one.address.path
        elif found := find_source(name, replace(one, stage=place), storage, signed):
            sources.append(found)
    return FoundInputs(storage, sources, local, remote)


def _without_name(asked: DataInput, folders: Sequence[Path], access: Access) -> DataInput:
    """Return the input with what its asset stands for."""
    from launch.jobfile import find_asset

    if not isinstance(asked.address, AssetName):
        return asked
    data = find_asset(asked.address, asked.where, folders, access).data
    address = (
        LocalPath(data.local, data.real)
        if data.local
        else NodePath(data.remote)
        if data.remote
        else data.address
    )
    assert address is not None  # noqa: S101  (an asset has one of the three)
    return DataInput("file" if data.type == "uri_file" else "folder", address, where=asked.where)


def _existing(path: Path, where: str) -> Path:
    path = path.expanduser()
    if not path.exists():
        remedy = "give a path of this machine, file:///PATH of the nodes, or an address"
        raise InputError(where, str(path), "does not exist", remedy)
    return path
