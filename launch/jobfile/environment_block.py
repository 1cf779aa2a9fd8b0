"""An environment as Azure ML's files write it: a mapping, or the name of one that is stored elsewhere.

The keys are those of Azure ML's "CLI (v2) environment YAML schema"; the names are those of its "CLI (v2) core
YAML syntax". Azure ML wants an image beside a conda file: here a conda file alone will do.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from launch.access import Scope
from launch.environment.environment_spec import (
    BuildEnvironment,
    Environment,
    ImageEnvironment,
    PythonEnvironment,
)
from launch.environment.image_reference import image_reference
from launch.environment.requirements import read_requirements
from launch.jobfile import values
from launch.jobfile.conda_file import conda_environment, read_conda
from launch.jobfile.environment_reference import NamedEnvironment, in_file, read_name
from launch.jobfile.fields import Reader
from launch.jobfile.yaml_source import Place, compose

__all__ = ["read_environment", "read_mapping"]

_KEYS = ("$schema", "name", "version", "description", "tags", "os_type", "image", "conda_file", "build")
_REFUSED = {
    "inference_config": ("is for deployments, and there are none here", "remove it"),
    "datastore": ("is where Azure ML stores a build's files; here they are pushed to the head", "remove it"),
}


def read_environment(
    reader: Reader, place: Place | None, scope: Scope, *, own: bool = False
) -> Environment | NamedEnvironment | None:
    """Return a job file's environment; None for a missing one, and for a wrong one, whose errors ``reader``
    collects.

    ``own`` is for the key that Azure ML does not have, which also takes ``bare``, plain names and
    ``requirements``. ``scope`` says what it may read.
    """
    if place is None:
        return None
    if place.is_mapping:
        return read_mapping(reader, place, scope, ("requirements",) if own else ())
    with reader.collecting():
        text = values.text(place)
        if text.startswith("file:"):
            what = "an environment's file, relative to this one"
            file = values.local(place, text.removeprefix("file:"), scope, what)
            described = compose(file, kind="an environment of Azure ML")
            return read_mapping(reader, described, scope.at(file.parent), ("requirements",) if own else ())
        found = read_name(f"{place.where}: {place.key}", text)
        if not own and not text.startswith("azureml:"):
            remedy = f"write azureml:{text} for an environment of that name, or {in_file(text)} for an image"
            raise place.wrong("is not the name of an environment", remedy)
        return found
    return None


def read_mapping(
    reader: Reader, place: Place, scope: Scope, more: tuple[str, ...] = ()
) -> Environment | None:
    """Return the environment of a mapping; None for a wrong one, whose errors ``reader`` collects.

    ``more`` are keys that it may have beside Azure ML's.
    """
    before = len(reader.errors)
    entries = reader.entries(place)
    reader.add(*(entries[key].wrong(*why) for key, why in _REFUSED.items() if key in entries))
    hints = {"requirements": "move the whole environment: under ranklift:, where it may have this key"}
    found = reader.block(place, (*_KEYS, *_REFUSED, *more), (), hints)
    for key in ("$schema", "description", "version"):
        reader.get(found, key, values.written, "")
    name = reader.get(found, "name", values.text, "")
    if reader.get(found, "os_type", values.text, "linux").lower() != "linux":
        reader.add(found["os_type"].wrong("is not what the nodes run", "write linux, or remove it"))
    reader.entries(found.get("tags"))
    image = reader.get(found, "image", _image, "")
    packages = _packages(reader, found, scope)
    build = None
    given = [key for key in ("image", "conda_file", "requirements", "build") if key in found]
    if not given:
        reader.add(place.wrong("has no image, conda_file or build", "add one of them"))
    elif "build" in given and len(given) > 1:
        remedy = "give one of the two; a Dockerfile can install packages itself"
        reader.add(found["build"].wrong(f"cannot be combined with {given[0]}", remedy))
    elif "build" in given:
        build = _build(reader, found["build"], scope)
    if len(reader.errors) > before:
        return None
    made = build or (ImageEnvironment(image, packages, found["image"].text) if image else packages)
    return dataclasses.replace(made, title=name) if made and name else made


def _packages(reader: Reader, found: dict[str, Place], scope: Scope) -> PythonEnvironment | None:
    if "conda_file" in found and "requirements" in found:
        remedy = "give one of the two; a conda file can have packages of pip"
        reader.add(found["requirements"].wrong("cannot be combined with conda_file", remedy))
    with reader.collecting():
        if "requirements" in found:
            place = found["requirements"]
            return read_requirements(_file(place, scope), None, f"{place.where}: {place.key}", scope)
        if "conda_file" in found and found["conda_file"].is_mapping:
            return conda_environment(found["conda_file"], scope)
        if "conda_file" in found:
            place = found["conda_file"]
            return read_conda(_file(place, scope), None, f"{place.where}: {place.key}", scope)
    return None


def _file(place: Place, scope: Scope) -> Path:
    return values.local(place, values.text(place), scope, "a file, relative to this one")


def _image(place: Place) -> str:
    return image_reference(f"{place.where}: {place.key}", values.text(place))


def _build(reader: Reader, place: Place, scope: Scope) -> BuildEnvironment | None:
    found = reader.block(place, ("path", "dockerfile_path"))
    file = reader.get(found, "dockerfile_path", values.text, "Dockerfile")
    if "path" not in found:
        reader.add(place.wrong("has no path", "add path: with the folder of the Dockerfile"))
        return None
    with reader.collecting():
        at = found["path"]
        if "://" in at.text or at.text.startswith("git@"):
            raise at.wrong("is not on this machine", "check it out, and give that folder")
        context = values.local(at, values.text(at), scope)
        try:
            dockerfile = (context / file).resolve()
            is_there = dockerfile.is_relative_to(context) and dockerfile.is_file()
        except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a NUL
            is_there = False
        if not is_there:
            raise found.get("dockerfile_path", at).wrong(
                f"there is no file {file} in {context}", "give its path there"
            )
        return BuildEnvironment(context, str(dockerfile.relative_to(context)), f"{at.text}/{file}")
    return None
