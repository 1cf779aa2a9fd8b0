"""Names of container images, in the one form that a registry is asked with."""

from __future__ import annotations

from launch.errors import InputError
from launch.remote.environment.image_reference import ImageError, parse_reference

__all__ = ["image_reference"]


def image_reference(key: str, text: str) -> str:
    """Return ``REGISTRY/NAME[:TAG][@DIGEST]`` of an image as users write it; names without a registry are
    Docker Hub's, and ``latest`` stands for a missing tag, as for Docker (distribution/reference).

    >>> image_reference("image", "python:3.10"), image_reference("image", "mcr.microsoft.com/azureml/base")
    ('docker.io/library/python:3.10', 'mcr.microsoft.com/azureml/base:latest')

    ``http://`` in front, for a registry without TLS, stays. Raise :class:`~launch.errors.InputError`.
    """
    try:
        return parse_reference(text).written
    except ImageError:
        problem = "is not the name of an image"
        remedy = "write it as REGISTRY/NAME:TAG, e.g. docker.io/pytorch/pytorch:2.8.0"
        raise InputError(key, text, problem, remedy) from None
