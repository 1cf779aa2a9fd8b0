"""Environments by name: files of the user, in Azure ML's format, and Microsoft's own.

``environments/NAME.yml`` is what ``az ml environment create --file`` takes. It is looked for in several
folders; the first that has it wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from launch.access import Access
from launch.environment.curated import CURATED, curated_image, curated_name
from launch.environment.environment_spec import Bare, Environment, ImageEnvironment
from launch.environment.named_files import ENDINGS, FOLDER, named_files
from launch.errors import InputErrors
from launch.jobfile import values
from launch.jobfile.environment_block import read_mapping
from launch.jobfile.environment_reference import NamedEnvironment
from launch.jobfile.fields import Reader
from launch.jobfile.yaml_source import compose

__all__ = ["resolve"]

_MICROSOFT = ("", "azureml")
"""Registries that can have a curated environment: the workspace's own, and Microsoft's."""


def resolve(
    found: Environment | NamedEnvironment | None, folders: Sequence[Path], access: Access | None = None
) -> Environment | None:
    """Return the environment itself: a name's file in one of the ``folders``, else Microsoft's.

    Raise :class:`~launch.errors.InputError` for an unknown name or version, and for a wrong file.
    """
    if not isinstance(found, NamedEnvironment):
        return found
    path = named_files(folders).get(found.name)
    if path is not None:
        return _read(found, path, access or Access())
    image = curated_image(found.name, found.version) if found.registry in _MICROSOFT else None
    if image is None:
        raise _unknown(found, folders)
    return ImageEnvironment(image, title=found.written)


def _read(named: NamedEnvironment, path: Path, access: Access) -> Environment:
    """Return the environment that a file describes, if it is the wanted one."""
    scope = access.of(path.parent.parent)
    path = scope.admitted(named.where, path)
    place = compose(path, kind="an environment of Azure ML")
    reader = Reader()
    made = read_mapping(reader, place, scope.at(path.parent), ("requirements",))
    entries = reader.entries(place)
    if "name" not in entries:
        reader.add(place.wrong("the environment has no name", f"add name: {named.name}"))
    elif entries["name"].text != named.name:
        reader.add(entries["name"].wrong("differs from the file's name", f"write {named.name}"))
    there = values.written(entries["version"]) if "version" in entries else ""
    if named.version and named.version != there:
        holds = f"version {there}" if there else "no version"
        reader.add(
            named.wrong(
                f"{path} has {holds}",
                f"use azureml:{named.name}@latest, or that file of version {named.version}",
            )
        )
    if reader.errors or made is None:
        raise reader.errors[0] if len(reader.errors) == 1 else InputErrors(reader.errors)
    return made if isinstance(made, Bare) else dataclasses.replace(made, title=named.written)


def _unknown(named: NamedEnvironment, folders: Sequence[Path]) -> Exception:
    close = values.nearest(named.name, list(named_files(folders))) or values.nearest(
        curated_name(named.name), CURATED
    )
    where = " or ".join(dict.fromkeys(str(folder / FOLDER) for folder in folders))
    problem = f"there is no {named.name}{ENDINGS[0]} in {where}, nor does Microsoft have a known image for it"
    meant = f"did you mean {close}? Else write" if close else "write"
    return named.wrong(
        problem, f"{meant} that file in Azure ML's format, name an image, or launch with --environment bare"
    )
