"""The launchers that are known."""

from __future__ import annotations

from launch.errors import InputError
from launch.launchers.base import Launcher, either
from launch.launchers.mpi import Mpi
from launch.launchers.pytorch import PyTorch
from launch.launchers.tensorflow import TensorFlow

__all__ = ["LAUNCHERS", "WITHOUT_DISTRIBUTION", "launcher_of"]

LAUNCHERS: dict[str, Launcher] = {one.name: one for one in (Mpi(), PyTorch(), TensorFlow())}
"""By the kind of job."""

WITHOUT_DISTRIBUTION = PyTorch.name
"""The kind of a job file without a distribution, whose command runs once."""


def launcher_of(kind: str) -> Launcher:
    """Return the launcher of a kind of job; raise :class:`~launch.errors.InputError` for an unknown one.

    >>> launcher_of("mpi").task
    'mpi'
    """
    if kind not in LAUNCHERS:
        raise InputError("kind", kind, "is not a kind of job", f"use {either(LAUNCHERS)}")
    return LAUNCHERS[kind]
