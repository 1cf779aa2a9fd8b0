"""A job's samples as they come, for a screen."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from launch.client.events import JobState
from launch.client.rpc import check, readable, rpc_argv
from launch.client.samples import JobSamples
from launch.errors import GiveUpError
from launch.host import Host
from launch.remote.base import frames
from launch.remote.reading import parse, read
from launch.remote.sample.sample_records import History, SampleReport
from launch.remote.sample.watch_samples import WatchAnswer

__all__ = ["Watched", "watch_samples"]

_MOST_BYTES = 64 << 20
"""Limit of one answer once it is decompressed; that of 300 nodes with 2400 ranks has half a megabyte."""
_SIGNALLED = 128
"""Exit statuses from this one on mean that a signal ended the command."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The newest samples of a job, and its head's queue."""

    samples: JobSamples
    jobs: tuple[JobState, ...]
    """The head's jobs that have not ended, oldest first."""


def watch_samples(
    job: str,
    head: Host,
    on_answer: Callable[[Watched], object],
    on_sign: Callable[[], object],
    *,
    remote: str,
) -> None:
    """Report the job's samples, each change of them, over one connection, until its head ends it.

    ``on_sign`` is called at every sign of life. The last answer has a terminal state where the job has ended.
    Raise as :func:`launch.client.rpc.check`, :class:`~launch.errors.NodeUnreachable` when the connection
    breaks, and :class:`~launch.errors.GiveUpError` for an answer that cannot be decoded.
    """
    decoder = frames.Decoder()
    history: History | None = None

    def take(data: bytes) -> None:
        nonlocal history
        for kind, payload in decoder.feed(data):
            if kind == frames.SAMPLES:
                answer = _unpacked(payload)
                if not answer["is_same_history"]:
                    history = answer["report"]["history"]
                on_answer(_watched(answer, history))
            on_sign()

    with readable(head):
        try:
            done = head.stream(rpc_argv(remote, "watch-samples", job), take)
        except zlib.error as error:
            raise GiveUpError(f"{head.name}: its samples of job {job} cannot be decoded: {error}") from error
    if done.exit_status < _SIGNALLED:
        check(done, head, job)


def _unpacked(payload: bytes) -> WatchAnswer:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(payload, _MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise zlib.error(f"more than {_MOST_BYTES >> 20} MiB")
    return read(WatchAnswer, parse(data))


def _watched(answer: WatchAnswer, history: History | None) -> Watched:
    report: SampleReport = {**answer["report"], "history": history}
    return Watched(JobSamples.from_answer(report), tuple(map(JobState.from_dict, answer["jobs"])))
