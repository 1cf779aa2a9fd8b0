"""Places in storage of what a job leaves."""

from __future__ import annotations

from collections.abc import Mapping

from launch.data.data_spec import BlobAddress, DatastorePath
from launch.data.data_stores import DEFAULT_DATASTORE, Storage
from launch.errors import InputError
from launch.remote.base.records import UploadRecord

__all__ = ["output_places", "refuse_part_of_whole", "usual_places", "whole_place"]

_TREES = ("logs", "outputs")
"""Folders of all that a job leaves: :data:`launch.remote.collect.trees.TREES`."""


def output_places(
    outputs: Mapping[str, tuple[DatastorePath | BlobAddress, str]], storage: Storage
) -> list[UploadRecord]:
    """Return where each output goes; with its address comes what errors name.

    Raise :class:`~launch.errors.InputError` for an address without a path, and for two that overlap.
    """
    found: dict[str, str] = {}
    for name, (written, where) in outputs.items():
        address = (
            storage.locate(written, where, output=True) if isinstance(written, DatastorePath) else written
        )
        if not address.path:
            raise InputError(where, address.url, "is a container", "name a folder in it")
        for other, url in found.items():
            if _overlap(url, address.url):
                raise InputError(
                    where, address.url, f"overlaps with that of output {other}, {url}", "give each its own"
                )
        found[name] = address.url
    return [{"name": name, "url": url} for name, url in found.items()]


def whole_place(job: str, storage: Storage, where: str) -> UploadRecord:
    """Return where all that a job leaves goes: a folder of its name in the container of results.

    >>> whole_place("train-1", Storage("https://acme.blob.core.windows.net"), "ranklift.upload")["url"]
    'https://acme.blob.core.windows.net/results/train-1'

    Raise :class:`~launch.errors.InputError` without storage.
    """
    return {"name": "", "url": storage.locate(DatastorePath(DEFAULT_DATASTORE, job), where, output=True).url}


def refuse_part_of_whole(output: UploadRecord, whole: UploadRecord, where: str) -> None:
    """Raise :class:`~launch.errors.InputError` for an output among the folders of all that a job leaves."""
    for tree in _TREES:
        if _overlap(output["url"], f"{whole['url']}/{tree}"):
            problem = f"overlaps with {whole['url']}/{tree}, where ranklift.upload puts the job's {tree}"
            raise InputError(where, output["url"], problem, "give the output another folder")


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def usual_places(job: str, storage: Storage) -> list[UploadRecord]:
    """Return where a job's outputs go if its job file names no place, as its head knows; nowhere without
    storage.

    >>> usual_places("train-1", Storage(None))
    []
    """
    has_place = storage.account_url is not None or DEFAULT_DATASTORE in storage.datastores
    return [whole_place(job, storage, "job")] if has_place else []
