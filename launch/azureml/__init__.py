"""The classes of Azure ML's SDK v1 that start jobs, on one's own cluster.

``ranklift run-v1 submit.py`` runs a script that imports them from ``azureml``. Settings that do not carry
over are reported on stderr; names that only Azure ML has can be imported, and their use raises
:class:`~launch.azureml.exceptions.NotSupported`.

Unlike the rest of the library these classes write to stdout and stderr, as Azure ML's do.
"""

from __future__ import annotations

from typing import Any

from launch.azureml.compute import AmlCompute, ComputeTarget
from launch.azureml.conda_dependencies import CondaDependencies
from launch.azureml.dataset import Dataset, Datastore, OutputFileDatasetConfig
from launch.azureml.environment import ContainerRegistry, Environment
from launch.azureml.exceptions import (
    ActivityFailedException,
    ExperimentExecutionException,
    NotSupported,
    RunConfigurationException,
    UserErrorException,
)
from launch.azureml.experiment import Experiment
from launch.azureml.missing import named
from launch.azureml.run import Run, ScriptRun
from launch.azureml.runconfig import (
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
    TensorflowConfiguration,
)
from launch.azureml.script_run_config import ScriptRunConfig
from launch.azureml.workspace import Workspace

__all__ = [
    "VERSION",
    "ActivityFailedException",
    "AmlCompute",
    "ComputeTarget",
    "CondaDependencies",
    "ContainerRegistry",
    "Dataset",
    "Datastore",
    "DockerConfiguration",
    "Environment",
    "Experiment",
    "ExperimentExecutionException",
    "MpiConfiguration",
    "NotSupported",
    "OutputFileDatasetConfig",
    "PyTorchConfiguration",
    "Run",
    "RunConfiguration",
    "RunConfigurationException",
    "ScriptRun",
    "ScriptRunConfig",
    "TensorflowConfiguration",
    "UserErrorException",
    "Workspace",
]

VERSION = __version__ = "1.61.0"
"""Version of azureml-core whose signatures and defaults these are."""


def __getattr__(name: str) -> Any:
    return named(__name__, name)
