"""Names of environments that are described elsewhere, in Azure ML's "CLI (v2) core YAML syntax"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launch.environment.environment_spec import Bare
from launch.environment.image_reference import image_reference
from launch.errors import InputError

__all__ = ["NamedEnvironment", "in_file", "read_name"]

_NAME = r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
_REFERENCES = (
    re.compile(rf"(?:azureml:)?{_NAME}(?::(?P<version>[\w.-]+)|@(?P<label>\w+))?"),
    re.compile(
        rf"azureml://registries/(?P<registry>[^/]+)/environments/{_NAME}"
        r"/(?:versions/(?P<version>[\w.-]+)|labels/(?P<label>\w+))"
    ),
    re.compile(
        rf"azureml:/*subscriptions/.+/environments/{_NAME}/(?:versions/(?P<version>[\w.-]+)|labels/(?P<label>\w+))"
    ),
)
_BARE = "bare"


@dataclass(frozen=True, slots=True)
class NamedEnvironment:
    """The name of an environment; :func:`launch.jobfile.named_environment.resolve` finds it."""

    name: str
    version: str
    """Empty for the latest."""
    registry: str
    """Azure ML's registry; empty for a workspace's."""
    written: str
    """The whole reference."""
    where: str
    """File, line and key, or the option, that has it."""

    def wrong(self, problem: str, remedy: str) -> InputError:
        """Return the error for this reference."""
        return InputError(self.where, self.written, problem, remedy)


def _names_image(text: str) -> bool:
    """Return whether a text may be a container image's name, and cannot be an environment's.

    >>> _names_image("pytorch/pytorch:2.8.0"), _names_image("train"), _names_image("python:3.12")
    (True, False, False)
    """
    if any(one.fullmatch(text) for one in _REFERENCES):
        return False
    try:
        return bool(image_reference("image", text))
    except InputError:
        return False


def in_file(image: str) -> str:
    """Return how a job file names an image."""
    return f"{{image: '{image}'}}"


def read_name(where: str, text: str) -> Bare | NamedEnvironment:
    """Return what an environment's name stands for; ``where`` is the key for errors.

    >>> read_name("--environment", "azureml:train:3").version, read_name("--environment", "bare")
    ('3', Bare(title='bare'))

    Raise :class:`~launch.errors.InputError` for another text, and for labels other than ``latest``.
    """
    if text == _BARE:
        return Bare()
    match = next(filter(None, (one.fullmatch(text) for one in _REFERENCES)), None)
    if match is None:
        remedy = "write it as azureml:NAME:VERSION or azureml:NAME@latest"
        if _names_image(image := text.removeprefix("azureml:")):
            remedy = (
                f"give --image {image}" if where.startswith("--environment") else f"write {in_file(image)}"
            )
        raise InputError(where, text, "is not the name of an environment", remedy)
    found = match.groupdict()
    if found["label"] not in (None, "latest"):
        raise InputError(where, text, f"has the label {found['label']}", "use @latest or a version")
    return NamedEnvironment(found["name"], found["version"] or "", found.get("registry") or "", text, where)
