"""The file of a data asset in the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.jobfile import ASSETS

__all__ = ["asset_document", "asset_file", "next_version"]


def asset_file(project: Path, name: str, version: str) -> Path:
    """Return the file of one version of an asset."""
    return project / ASSETS / f"{name}-{version}.yml"


def next_version(known: Sequence[str]) -> str:
    """Return the number after the highest of these versions.

    >>> next_version([]), next_version(["1", "beta", "9", "10"])
    ('1', '11')
    """
    return str(max((int(one) for one in known if one.isdecimal()), default=0) + 1)


def asset_document(found: Mapping[str, object], version: str) -> str:
    """Return the text of an asset's file with this version.

    >>> print(asset_document({"name": "iris", "path": "azureml://datastores/data/paths/iris"}, "2"))
    name: iris
    version: '2'
    path: azureml://datastores/data/paths/iris
    <BLANKLINE>
    """
    import yaml

    first = {key: found[key] for key in ("$schema", "name") if key in found}
    rest = {key: value for key, value in found.items() if key not in (*first, "version")}
    return yaml.safe_dump({**first, "version": version, **rest}, sort_keys=False, allow_unicode=True)
