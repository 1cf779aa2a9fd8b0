"""``ScriptRunConfig``: the script, its folder, its stack and its kind of job (guide G12)."""

from __future__ import annotations

from typing import Any

from launch.azureml.environment import Environment
from launch.azureml.exceptions import NotSupported, RunConfigurationException
from launch.azureml.missing import Element
from launch.azureml.notices import report
from launch.azureml.runconfig import DISTRIBUTED, DockerConfiguration, RunConfiguration

__all__ = ["ScriptRunConfig"]

_IGNORED = (
    "with a run_config, these are taken from it alone: compute_target, environment, "
    "distributed_job_config, max_run_duration_seconds, docker_runtime_config"
)


class ScriptRunConfig(Element):
    """The configuration of a run, for :meth:`launch.azureml.Experiment.submit`.

    ``script`` with ``arguments`` runs under Python, the arguments byte for byte but for the launcher's
    own variables (``$LOCAL_RANK``); ``command``, a line or words to be joined by spaces, runs in a shell.
    """

    MAX_DURATION_SECONDS_DEFAULT = 2592000

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        source_directory: str,
        script: str | None = None,
        arguments: Any = None,
        run_config: RunConfiguration | None = None,
        _telemetry_values: Any = None,
        compute_target: Any = None,
        environment: Environment | None = None,
        distributed_job_config: Any = None,
        resume_from: Any = None,
        max_run_duration_seconds: int | None = MAX_DURATION_SECONDS_DEFAULT,
        command: Any = None,
        docker_runtime_config: DockerConfiguration | None = None,
    ) -> None:
        if resume_from is not None:
            remedy = "stage the checkpoint on the nodes and give its path in `arguments`"
            raise NotSupported("ScriptRunConfig's resume_from", remedy)
        self.source_directory = source_directory
        self.script = script
        self.arguments = arguments
        self.command = command
        if run_config is not None:
            limited = max_run_duration_seconds != self.MAX_DURATION_SECONDS_DEFAULT
            if limited or any((compute_target, environment, distributed_job_config, docker_runtime_config)):
                report([_IGNORED])
            self.run_config = run_config
            self.script = script or run_config.script or script
            self.arguments = arguments or run_config.arguments or arguments
            self.command = command or run_config.command or command
        else:
            made = self.run_config = RunConfiguration()
            made.target = compute_target or "local"
            made.environment = environment or Environment("default-environment")
            made.max_run_duration_seconds = max_run_duration_seconds
            made.docker = _docker(made.environment, docker_runtime_config)
            if distributed_job_config is not None:
                _distribute(made, distributed_job_config)
        self._complete = True


def _distribute(run_config: RunConfiguration, job: Any) -> None:
    for kind, (configuration, framework, communicators) in DISTRIBUTED.items():
        if isinstance(job, configuration):
            setattr(run_config, kind, job)
            run_config.framework = framework
            run_config.communicator = getattr(job, "communication_backend", communicators[0])
            run_config.node_count = job.worker_count if kind == "tensorflow" else job.node_count
            return
    problem = "is not a configuration of a distributed job"
    remedy = "give a TensorflowConfiguration, an MpiConfiguration or a PyTorchConfiguration"
    raise RunConfigurationException("distributed_job_config", repr(job), problem, remedy)


def _docker(environment: Environment, given: Any) -> DockerConfiguration:
    if given is None:
        docker = environment.docker
        return DockerConfiguration(docker.enabled, docker.shared_volumes, docker.arguments, docker.shm_size)
    if not isinstance(given, DockerConfiguration):
        raise RunConfigurationException(
            "docker_runtime_config", repr(given), "is not a DockerConfiguration", "give one, or leave it out"
        )
    return given
