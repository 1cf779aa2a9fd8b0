"""The parsed content of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.data.data_spec import AssetName, BlobAddress, DatastorePath, WebAddress
from launch.environment.environment_spec import Environment
from launch.errors import InputError
from launch.jobfile.environment_reference import NamedEnvironment
from launch.jobfile.yaml_source import Place
from launch.remote.base.health_records import HealthMode

__all__ = ["Data", "Distribution", "JobFile", "Output", "Own", "StoredAddress"]

StoredAddress = DatastorePath | AssetName | BlobAddress | WebAddress


@dataclass(frozen=True, slots=True)
class Data:
    """An input that is a file or a folder."""

    type: str
    local: Path | None
    """Path on this machine, whose content is pushed to the nodes as it is."""
    remote: str | None
    """Path that exists on the nodes."""
    address: StoredAddress | None = None
    """Where it is, if it is in storage."""
    direct: bool = False
    """Whether ``${{inputs.x}}`` is its address; else it is staged, and that is its path on the nodes."""
    real: Path | None = field(default=None, compare=False)
    """What ``local`` leads to, as it was allowed: a file may be a link, whose name it has on the nodes."""
    mounted: bool = False
    """Whether its ``mode`` asks for a mount, which the nodes' shared folder is."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the job."""

    type: str = "uri_folder"
    path: str = ""
    """Where it goes when the job has ended, as it is written: see
    :func:`launch.jobfile.interpolation.destination`. Empty for the nodes alone."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The launcher and its number of processes."""

    kind: str
    """A name in :data:`launch.launchers.registry.LAUNCHERS`."""
    processes: int | None = None
    """Number of processes on each node; None where the file has no count."""
    workers: int | None = None
    parameter_servers: int = 0


@dataclass(frozen=True, slots=True)
class Own:
    """The ``ranklift:`` block: keys that Azure ML does not have."""

    mpi: str | None = None
    mpirun_args: tuple[str, ...] = ()
    nodes: str | None = None
    setup: str = ""
    python: str | None = None
    environment: Environment | NamedEnvironment | None = None
    chief: bool = False
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Patterns by name."""
    max_restarts: int = 0
    hang_after_s: float | None = None
    health: HealthMode | None = None
    on_unhealthy: str = "refuse"
    grace_s: float | None = None
    upload: bool = False
    """Whether all that the job leaves goes to storage when it has ended."""
    upload_every_s: float | None = None
    probe: bool | None = None
    flight_recorder: bool = True
    identity: bool = False
    stage: str | None = None
    """Where data in storage are staged, of :data:`launch.data.data_spec.STAGES`; None for the default."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A valid job file; ``launch.jobfile.to_spec`` makes a job of it."""

    path: Path
    command: str
    code: Path | None
    """A resolved folder, or a file that is pushed alone; None without code."""
    name: str | None
    display_name: str
    experiment: str
    description: str
    tags: Mapping[str, str]
    inputs: Mapping[str, str | Data]
    """Inputs by name; the text of a plain value may refer to other inputs."""
    outputs: Mapping[str, Output]
    env: Mapping[str, str]
    distribution: Distribution | None
    instance_count: int | None
    shm_bytes: int | None
    timeout_s: float | None
    environment: Environment | NamedEnvironment | None
    """What the file itself names, in Azure ML's words."""
    own: Own
    unused: tuple[str, ...]
    """Keys of the format without an effect here, in the file's order."""
    places: Mapping[str, Place] = field(repr=False)
    """The place in the file of each key that was read."""

    @property
    def notice(self) -> str | None:
        """A line about keys without an effect here; None without such keys."""
        if not self.unused:
            return None
        return f"{self.path}: ignored here: {', '.join(self.unused)}"

    def located(self, error: InputError, key: str) -> InputError:
        """Return ``error`` with the line of ``key``; where the file lacks the key, with the file's name."""
        place = self.places.get(key)
        where = f"{place.where}: {key}" if place else f"{self.path}: {error.key}"
        return InputError(where, error.value, error.problem, error.remedy)
