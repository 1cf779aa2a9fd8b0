"""The Azure ML CLI v2 command job file, parsed with the line of every value."""

from __future__ import annotations

from launch.jobfile.parse import read
from launch.jobfile.schema import Data, JobFile, JobFileError
from launch.jobfile.script import script_of
from launch.jobfile.to_spec import Flags, Made, Pushed, located, make, name_of, node_count

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
