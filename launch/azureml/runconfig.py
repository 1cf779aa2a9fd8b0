"""``RunConfiguration`` and the configurations of the three kinds of distributed job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launch.azureml.conda_dependencies import CondaDependencies
from launch.azureml.environment import DEFAULT_SHM_SIZE, ContainerRegistry, Environment
from launch.azureml.exceptions import RunConfigurationException
from launch.azureml.missing import Element, WithVariables, named

__all__ = [
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
    "MPI_CPU_IMAGE",
    "MPI_GPU_IMAGE",
    "SUPPORTED_PYTORCH_BACKENDS",
    "CondaDependencies",
    "ContainerRegistry",
    "DockerConfiguration",
    "Environment",
    "EnvironmentDefinition",
    "MpiConfiguration",
    "PyTorchConfiguration",
    "RunConfiguration",
    "TensorflowConfiguration",
]

DEFAULT_CPU_IMAGE = MPI_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:20251130.v1"
DEFAULT_GPU_IMAGE = MPI_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04"
"""Microsoft's public images, as azureml-core 1.61.0 names them: https://pypi.org/project/azureml-core/1.61.0/"""
SUPPORTED_PYTORCH_BACKENDS = ["nccl", "gloo"]
EnvironmentDefinition = Environment


def __getattr__(name: str) -> Any:
    return named(__name__, name)


@dataclass(eq=False, repr=False)
class MpiConfiguration(Element):
    """Processes started by mpirun (guide G1): ``process_count_per_node`` on each of ``node_count`` nodes."""

    process_count_per_node: int = 1
    node_count: int = 1


@dataclass(eq=False, repr=False)
class PyTorchConfiguration(Element):
    """A PyTorch process group (guide G5 to G8).

    ``process_count`` is the total over all nodes; without it there is one process on each, or the
    command's own launcher. The script chooses the backend itself: the name given here is checked and
    kept, without an effect.

    >>> PyTorchConfiguration("mpi")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    launch.azureml.exceptions.RunConfigurationException: communication_backend = 'mpi': ...
    """

    communication_backend: str = "Nccl"
    process_count: int | None = None
    node_count: int = 1

    def __post_init__(self) -> None:
        given, self.communication_backend = self.communication_backend, self.communication_backend.lower()
        if self.communication_backend not in SUPPORTED_PYTORCH_BACKENDS:
            problem, remedy = "is not one of Azure ML's backends", "use 'Nccl' or 'Gloo'"
            raise RunConfigurationException("communication_backend", given, problem, remedy)
        super().__post_init__()


@dataclass(eq=False, repr=False)
class TensorflowConfiguration(Element):
    """Tasks with TF_CONFIG (guide G11), on as many nodes as there are workers."""

    worker_count: int = 1
    parameter_server_count: int = 1


DISTRIBUTED: dict[str, tuple[type[Any], str, Sequence[str]]] = {
    "mpi": (MpiConfiguration, "Python", ("IntelMpi", "OpenMpi", "Mpi")),
    "pytorch": (PyTorchConfiguration, "PyTorch", SUPPORTED_PYTORCH_BACKENDS),
    "tensorflow": (TensorflowConfiguration, "TensorFlow", ("ParameterServer",)),
}
"""By the launcher's name, which is also the attribute of a run configuration: the configuration's class, its
framework, and its communicators, in any case, of which the first is filled in."""


@dataclass(eq=False, repr=False)
class DockerConfiguration(Element):
    """Docker's settings: ``shm_size`` is the least size of the nodes' /dev/shm. Environments have images."""

    use_docker: bool = False
    shared_volumes: bool = True
    arguments: Sequence[str] = ()
    shm_size: str | None = DEFAULT_SHM_SIZE

    def __post_init__(self) -> None:
        self.arguments = list(self.arguments)
        super().__post_init__()


class RunConfiguration(WithVariables):
    """All settings of a run but its folder; :class:`ScriptRunConfig` fills one in."""

    def __init__(
        self,
        script: str | None = None,
        arguments: Any = None,
        framework: str | None = None,
        communicator: str | None = None,
        conda_dependencies: CondaDependencies | None = None,
        _history_enabled: Any = None,
        _path: Any = None,
        _name: Any = None,
        command: Any = None,
    ) -> None:
        self.script = script
        self.command: Any = command or ""
        self.arguments: Any = arguments or []
        self.framework = framework or "Python"
        self.communicator = communicator or "None"
        self.max_run_duration_seconds: int | None = None
        self.node_count = 1
        self.priority: int | None = None
        self.environment = Environment("default-environment")
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.docker = DockerConfiguration()
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.data: dict[str, Any] = {}
        self.data_references: dict[str, Any] = {}
        self.output_data: dict[str, Any] = {}
        self.credential_passthrough = False
        self._target = "local"
        self._variables = {}
        self._complete = True

    @property
    def target(self) -> str:
        """The compute target's name; ``local``, the chosen stack, when none was given."""
        return self._target

    @target.setter
    def target(self, target: Any) -> None:
        name = target if isinstance(target, str) else getattr(target, "name", None)
        if not isinstance(name, str) or not name:
            raise RunConfigurationException(
                "compute_target", repr(target), "is not a compute target", "give its name, or a ComputeTarget"
            )
        self._target = name
