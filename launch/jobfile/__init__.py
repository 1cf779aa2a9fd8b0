"""The Azure ML CLI v2 command job file, parsed with the line of every value."""

from __future__ import annotations

from launch.jobfile.conda_file import read_conda
from launch.jobfile.data_asset import ASSETS, find_asset, list_assets, read_asset, with_assets
from launch.jobfile.environment_reference import NamedEnvironment, read_name
from launch.jobfile.interpolation import destination
from launch.jobfile.named_environment import resolve
from launch.jobfile.parse import read
from launch.jobfile.schema import Data, JobFile, Output
from launch.jobfile.to_spec import (
    Flags,
    Made,
    Pushed,
    identity_refusal,
    located,
    make,
    name_of,
    node_count,
    wanted_environment,
)
from launch.launchers.script import script_of

__all__ = [
    "ASSETS",
    "Data",
    "Flags",
    "JobFile",
    "Made",
    "NamedEnvironment",
    "Output",
    "Pushed",
    "destination",
    "find_asset",
    "identity_refusal",
    "list_assets",
    "located",
    "make",
    "name_of",
    "node_count",
    "read",
    "read_asset",
    "read_conda",
    "read_name",
    "resolve",
    "script_of",
    "wanted_environment",
    "with_assets",
]
