"""The Azure ML CLI v2 command job file, read with the line of everything in it."""

from __future__ import annotations

from launch.jobfile.making import Flags, Made, Pushed, located, make, name_of, node_count
from launch.jobfile.model import Data, JobFile, JobFileError
from launch.jobfile.reading import read
from launch.jobfile.script import script_of

__all__ = [
    "Data",
    "Flags",
    "JobFile",
    "JobFileError",
    "Made",
    "Pushed",
    "located",
    "make",
    "name_of",
    "node_count",
    "read",
    "script_of",
]
