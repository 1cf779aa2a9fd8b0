"""The upload of a job's outputs by hand: one that was cut off goes on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence

from launch.client.rpc import check, readable, rpc_argv
from launch.errors import GiveUpError
from launch.host import Host
from launch.remote.base import frames, timing
from launch.remote.base.payloads import UploadProgress
from launch.remote.base.records import UploadEvent, UploadRecord
from launch.remote.reading import parse, read

__all__ = ["upload_job"]


def upload_job(
    job: str,
    head: Host,
    uploads: Sequence[UploadRecord],
    show: Callable[[int, int], object],
    *,
    remote: str,
) -> UploadEvent:
    """Have a job's nodes send their outputs to where its plan says, without that to ``uploads``.

    ``show`` takes the numbers of files and bytes that were sent. Raise as :func:`launch.client.rpc.ask`.
    """
    last: UploadEvent | None = None
    decoder = frames.Decoder()

    def take(piece: bytes) -> None:
        nonlocal last
        with readable(head):
            for kind, payload in decoder.feed(piece):
                if kind == frames.STATE:
                    last = read(UploadEvent, parse(payload))
                elif kind == frames.BEAT:
                    sent = read(UploadProgress, parse(payload))
                    show(sent["files"], sent["bytes"])

    stdin = io.BytesIO(json.dumps(list(uploads)).encode() + b"\n")
    done = head.stream(rpc_argv(remote, "upload-job", job), take, stdin=stdin, timeout=timing.STAGE_S)
    check(done, head, job)
    if last is None:
        raise GiveUpError(f"{head.name}: the upload of job {job} broke off; repeat the command")
    return last
