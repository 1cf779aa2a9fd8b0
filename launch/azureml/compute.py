"""``ComputeTarget`` in the module from which scripts import it."""

from __future__ import annotations

from typing import Any

from launch.azureml.exceptions import ComputeTargetException
from launch.azureml.missing import absent
from launch.azureml.workspace import AmlCompute, ComputeTarget

__all__ = ["AmlCompute", "ComputeTarget", "ComputeTargetException"]


def __getattr__(name: str) -> Any:
    raise absent(__name__, name)
