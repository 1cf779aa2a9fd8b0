"""What a job's nodes and ranks use and print, as its head keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from launch.client.events import JobState
from launch.client.rpc import ask
from launch.host import Host
from launch.remote.sample.sample_records import Flag, History, Live, SampleReport

__all__ = ["JobSamples", "job_samples"]


@dataclass(frozen=True, slots=True)
class JobSamples:
    """The samples of one job; times are by its head's clock."""

    state: JobState
    live: Live | None
    """The newest of each node and rank; None before the first of a launch."""
    history: History | None
    """The job's course; None where nothing was sampled for ten seconds, nor to the end of a launch."""
    flags: tuple[Flag, ...]
    """What needs a look while it runs, the gravest first."""
    now: float
    """When the head answered, in Unix seconds."""

    @classmethod
    def from_answer(cls, answer: SampleReport) -> JobSamples:
        """Return the samples that a head's answer holds."""
        return cls(
            state=JobState.from_dict(answer["state"]),
            live=answer["live"],
            history=answer["history"],
            flags=tuple(answer["flags"]),
            now=answer["now"],
        )


def job_samples(job: str, head: Host, remote: str) -> JobSamples:
    """Return the samples of the job. Raise :class:`~launch.errors.NoSuchJob` when the head has no such job,
    and :class:`~launch.errors.GiveUpError` where its node code does not sample."""
    return JobSamples.from_answer(ask(SampleReport, head, remote, "samples", job, job=job))
