"""``MLTable``, the file that describes a table of Azure ML's: its data has to come to the nodes with it.

Keys and the kinds of paths: learn.microsoft.com/azure/machine-learning/reference-yaml-mltable.
"""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from launch.access import is_within
from launch.data.data_address import is_address
from launch.jobfile import values
from launch.jobfile.yaml_source import Place, compose

__all__ = ["MLTABLE", "refuse_paths_elsewhere"]

MLTABLE = "mltable"
"""The type of such data."""
_FILE = "MLTable"
_KEYS = ("file", "folder", "pattern")


def refuse_paths_elsewhere(folder: Path) -> None:
    """Raise :class:`~launch.errors.InputError` for a path of the folder's MLTable that leads out of it."""
    file = folder / _FILE
    if not file.exists() or not is_within(Path(os.path.realpath(file)), [folder]):
        return  # the push refuses a link that leaves the folder
    found = compose(file, kind="an MLTable file").entries()
    for item in found["paths"].items() if "paths" in found else ():
        for key, place in item.entries().items():
            if key in _KEYS:
                _check(place)


def _check(place: Place) -> None:
    path = values.text(place)
    # A path of its own kind, adl:, is not an address of a job.
    if is_address(path) or ":/" in path or posixpath.normpath(path).startswith(("/", "..")):
        remedy = "make that an input of its own, or put the data beside MLTable and give the relative path"
        raise place.wrong("is not below the table's folder, which is all that comes to the nodes", remedy)
