"""The file of a data asset in the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.errors import InputError
from launch.jobfile import ASSETS

__all__ = ["asset_document", "asset_fields", "asset_file", "next_version"]


def asset_file(project: Path, name: str, version: str) -> Path:
    """Return the file of one version of an asset."""
    return project / ASSETS / f"{name}-{version}.yml"


def next_version(known: Sequence[str]) -> str:
    """Return the number after the highest of these versions.

    >>> next_version([]), next_version(["1", "beta", "9", "10"])
    ('1', '11')
    """
    return str(max((int(one) for one in known if one.isdecimal()), default=0) + 1)


def asset_fields(file: Path) -> dict[str, object]:
    """Return the fields of an asset's file.

    Raise :class:`~launch.errors.InputError` for a value that YAML cannot read, and for aliases and tags: a
    few lines of aliases hold more than memory does, and each tag is another reader.
    """
    import yaml

    text = file.read_text(encoding="utf-8")
    try:
        if any(isinstance(token, (yaml.AliasToken, yaml.TagToken)) for token in yaml.scan(text)):
            raise InputError("file", str(file), "has YAML aliases or tags", "write the values out")
        fields = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InputError("file", str(file), f"is not a data asset: {error!s:.200}", "correct it") from None
    if not isinstance(fields, dict):
        raise InputError("file", str(file), "is not a data asset", "give it name, type and path")
    return fields


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
