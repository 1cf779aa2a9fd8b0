"""A job file's content, once it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import InputError
from launch.jobfile.yaml_source import Place

__all__ = ["Data", "Distribution", "JobFile", "JobFileError", "Own"]


class JobFileError(InputError):
    """Several things in a job file are wrong; ``errors`` has each, the text a line for each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.problem, first.remedy)
        self.errors = tuple(errors)
        self.args = ("\n".join(map(str, errors)),)


@dataclass(frozen=True, slots=True)
class Data:
    """An input that is a file or a folder."""

    type: str
    local: Path | None
    """On this machine: pushed to the nodes as it is."""
    remote: str | None
    """On the nodes already."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The launcher, and how many processes it starts."""

    kind: str
    """A name in :data:`launch.launchers.registry.LAUNCHERS`."""
    processes: int | None = None
    """On each node; None where the file has no count."""
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
    chief: bool = False
    max_restarts: int = 0
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobFile:
    """One job file, found sound in itself; ``launch.jobfile.to_spec`` makes a job of it."""

    path: Path
    command: str
    code: Path | None
    """A folder, or a file that is pushed alone; None for no code at all."""
    name: str | None
    display_name: str
    experiment: str
    description: str
    tags: Mapping[str, str]
    inputs: Mapping[str, str | Data]
    """Text for plain values, in which other inputs may still be named."""
    outputs: Mapping[str, str]
    """Types by name."""
    env: Mapping[str, str]
    distribution: Distribution | None
    instance_count: int | None
    shm_bytes: int | None
    timeout_s: float | None
    own: Own
    unused: tuple[str, ...]
    """Keys of the format that mean nothing here, in the file's order."""
    places: Mapping[str, Place] = field(repr=False)
    """Where each key that was read stands."""

    @property
    def notice(self) -> str | None:
        """One line about keys that mean nothing here."""
        if not self.unused:
            return None
        return f"{self.path}: without meaning here, and left alone: {', '.join(self.unused)}"

    def located(self, error: InputError, key: str) -> InputError:
        """``error`` with the line of ``key``, when the file has it; else with the file's name."""
        place = self.places.get(key)
        where = f"{place.where}: {key}" if place else f"{self.path}: {error.key}"
        return InputError(where, error.value, error.problem, error.remedy)
