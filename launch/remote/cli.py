"""Commands that the operator's client runs on the head, one per connection; ``_COMMANDS`` lists them.

Answers are frames on stdout (:mod:`launch.remote.base.frames`), errors text on stderr with exit status 3.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from launch.remote.base import frames, job_dir, timing
from launch.remote.base.files import write_all
from launch.remote.base.payloads import Handover, LogQuery, MpiAnswer, MpiRequest

__all__ = ["NO_COMMAND", "NO_RECORDS", "OTHER_VERSION", "REFUSED", "TORN", "UNPUSHED", "main"]

NO_COMMAND = "no such command"
"""Beginning of the line for a command that a newer operator sends to older node code."""
_FAILED = 1
REFUSED = 3
"""Exit status when the request itself is at fault; stderr holds one line for the user."""
UNPUSHED = 4
"""Exit status when no job was made, because a node is not known to hold the snapshots."""
NO_RECORDS = 5
"""Exit status when this head has no records of the job, or not any more."""
TORN = 6
"""Exit status when a record of the job is torn, see :class:`launch.remote.base.job_dir.Torn`."""
OTHER_VERSION = 7
"""Exit status when another version of the code made the job's plan."""

_UNREADABLE = {
    job_dir.Torn: (
        TORN,
        "the head went down while it was written; `fab collect` copies what the nodes have of the job, "
        "`fab cancel` ends what still runs; then its folder may be removed",
    ),
    job_dir.OtherVersion: (
        OTHER_VERSION,
        "repeat the command with the version of Ranklift that launched the job",
    ),
}


def main(arguments: list[str]) -> int:
    """Run one command; return its exit status."""
    what, *rest = arguments or [""]
    command = _COMMANDS.get(what)
    if command is None:
        return _refuse(f"{NO_COMMAND}: {what!r}")
    try:
        return command(*rest)
    except FileNotFoundError as error:
        folder, _, name = str(error.filename).rpartition("/")
        if name not in ("job.json", "state.json"):
            return _refuse(str(error))
        job = os.path.basename(folder)
        why = f"no job {job} on this head: it never existed, or its records were removed ({folder})"
        return _refuse(why, NO_RECORDS)
    except job_dir.Unreadable as error:
        status, remedy = _UNREADABLE[type(error)]
        return _refuse(f"{error}: {remedy}", status)
    except BrokenPipeError:
        return 0  # the follower has gone; the job goes on


def _refuse(text: str, status: int = REFUSED) -> int:
    sys.stderr.write(text + "\n")
    return status


def _answer(value: Mapping[str, object]) -> int:
    frames.send_answer(frames.STATE, json.dumps(value).encode())
    return 0


def _metrics() -> int:
    from launch.remote.metrics import head_metrics

    return _answer(head_metrics.head_metrics(os.path.expanduser("~/.ranklift"), time.time()))


def _serve_metrics(*words: str) -> int:
    from launch.remote.metrics import node_service

    return node_service.main(list(words))


def _list(last: str = "") -> int:
    from launch.remote.head import query

    return _answer(query.list_jobs(int(last) if last else None))


def _show(job: str) -> int:
    from launch.remote.head import query

    return _answer(query.job_report(job))


def _wait(job: str) -> int:
    """Send every state until the last, and signs of life in between."""
    from launch.remote.head import query

    spoken = time.monotonic()
    for state in query.state_changes(job):
        if state is not None:
            _answer(state)
        elif time.monotonic() - spoken > timing.FOLLOW_BEAT_S:
            frames.send_answer(frames.BEAT, b"")
        else:
            continue
        spoken = time.monotonic()
    return 0


def _tag(job: str, tags: str) -> int:
    """Add tags, a JSON object, to a job, and send its report."""
    from launch.remote.head import query

    if not query.add_tags(job, json.loads(tags)):
        return _refuse("the tags were not kept: the disk is full, or the job has 256 KiB of tags", _FAILED)
    return _show(job)


def _watch_samples(job: str) -> int:
    from launch.remote.sample import watch_samples

    return watch_samples.watch(job)


def _submit(*words: str) -> int:
    """Make a job of the plan on stdin, if all its nodes hold what was pushed for it."""
    from launch.remote.head import node_contents, supervisor

    try:
        size = int(sys.stdin.buffer.read(10))
        plan = job_dir.parse_plan(sys.stdin.buffer.read(size), "the request")
    except (ValueError, job_dir.Torn):
        return _refuse("the plan was incomplete, so no job was created")
    missing = node_contents.find_missing(plan)
    if missing:
        return _refuse(f"not every node holds {', '.join(missing)}", UNPUSHED)
    job_dir.all_jobs()  # those whose supervisor was killed lose the values of their variables now
    folder = job_dir.Folder(plan["id"])
    try:
        folder.create(plan)
    except FileExistsError:
        return _refuse(f"job {plan['id']} already exists")
    except OSError as error:
        return _refuse(f"no job was created: {folder.path} cannot be written: {error.strerror}", _FAILED)
    try:
        supervisor.detach(folder, plan)
    except OSError as error:
        with suppress(FileNotFoundError):  # the job's folder was removed
            folder.lose(job_dir.first_state(folder.job, plan, time.time(), None), str(error))
        return _refuse(str(error), _FAILED)
    handover: Handover = {"job": plan["id"]}
    frames.send_answer(frames.JOB, json.dumps(handover).encode())
    return _watch(folder, {}) if "--follow" in words else 0


def _follow(job: str, query: str = "{}") -> int:
    return _watch(job_dir.Folder(job), json.loads(query))


def _watch(folder: job_dir.Folder, query: LogQuery) -> int:
    from launch.remote.log import follow

    return follow.follow(folder, query, partial(write_all, 1))


def _cancel(job: str, grace: str = "") -> int:
    from launch.remote.head import cancel

    return _answer(cancel.cancel(job, float(grace) if grace else None))


def _debug(job: str, py_spy: str = "") -> int:
    """Send what the job's ranks do, as its supervisor finds it; ``py_spy`` is the path of py-spy on nodes."""
    from launch.remote.debug import debug_request

    try:
        return _answer(debug_request.request_debug(job, py_spy))
    except debug_request.NotDebugged as error:
        return _refuse(str(error))


def _sweep(job: str, grace: str = "0", keep: str = "") -> int:
    """End the job's processes on this node; clear its working folder unless ``keep`` is set."""
    from launch.remote.head import cancel
    from launch.remote.node import work_dir

    swept = cancel.sweep(job, float(grace))
    if not keep:
        work_dir.clear(job_dir.Folder(job).path)
    return _answer(swept)


def _end_upload(job: str) -> int:
    from launch.remote.head import cancel

    return _answer(cancel.end_upload(job))


def _release(job: str) -> int:
    from launch.remote.head import cancel

    return _answer(cancel.release(job))


def _samples(job: str) -> int:
    from launch.remote.sample import sample_report

    return _answer(sample_report.sample_report(job))


def _sample_gpus() -> int:
    from launch.remote.sample import gpu_queries

    return gpu_queries.main()


def _slots(count: str) -> int:
    """Print this node's held slots and their holders as JSON."""
    from launch.remote.node import slots

    sys.stdout.write(json.dumps(slots.taken_slots(int(count))))
    return 0


def _mpi() -> int:
    """Print as JSON which of the MPIs named on stdin this node has, and which folders cannot be written."""
    from launch.remote.base import files
    from launch.remote.mpi.detect import CannotLaunch, find_mpi

    request: MpiRequest = json.loads(sys.stdin.buffer.readline())
    unwritable = files.unwritable(files.expand_home("~"), files.temporary_folder())
    answer: MpiAnswer = {"unwritable": unwritable}
    try:
        mpi = find_mpi(request["known"], request["first"])
        answer.update({"title": mpi.title, "command": mpi.command})
    except CannotLaunch as error:
        answer["error"] = str(error)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _environment() -> int:
    """Make the environment of the request on stdin where this head lacks it, and spread it."""
    from launch.remote.environment import make

    return make.serve(sys.stdin.buffer)


def _environments() -> int:
    from launch.remote.environment import usage

    return _answer(usage.list_environments())


def _remove_environments(cache: str, *names: str) -> int:
    from launch.remote.environment import usage

    return _answer(usage.remove_environments(names, cache=cache == "cache"))


def _ring(size: str, seconds: str) -> int:
    from launch.remote.probe import mpi_ring

    return mpi_ring.main(int(size), float(seconds))


def _stage() -> int:
    """Bring the data of the request on stdin to the nodes that it names."""
    from launch.remote.data import stage_head

    return stage_head.serve(sys.stdin.buffer)


def _staged_data(shared: str = "") -> int:
    from launch.remote.data import cache

    return _answer(cache.list_data(shared))


def _remove_staged_data(shared: str, *names: str) -> int:
    from launch.remote.data import cache
    from launch.remote.data.faults import FetchError

    try:
        return _answer(cache.remove_data(names, shared))
    except FetchError as error:
        return _refuse(error.reason, _FAILED)


def _list_files(job: str, more: str = "") -> int:
    from launch.remote.collect import send

    return send.files(job, with_work=more == "work")


def _left(job: str = "") -> int:
    """Send what the job, or each job, left in its working folder on this node."""
    from launch.remote.collect import trees

    return _answer(trees.answer(job))


def _send_files(job: str) -> int:
    from launch.remote.collect import send

    return send.send(job)


def _relay(job: str, what: str, *more: str) -> int:
    from launch.remote.collect import relay

    return relay.relay(job, what, *more)


def _upload(job: str) -> int:
    from launch.remote.data import upload

    return upload.serve(job, sys.stdin.buffer)


def _upload_job(job: str) -> int:
    """Upload a job's outputs from all its nodes, to where its plan or the request on stdin says."""
    from launch.remote.head import uploads
    from launch.remote.head.cancel import cancelled_at

    folder = job_dir.Folder(job)
    plan = folder.plan()
    wanted = plan.get("uploads") or json.loads(sys.stdin.buffer.readline())
    if not wanted:
        why = (
            "its job file names no place in storage, and the stack has none: `ranklift:storage` gives it one"
        )
        return _refuse(f"job {job} has nowhere to send its outputs: {why}; then launch or upload again")
    spoken = [time.monotonic()]

    def report(files: int, size: int) -> None:
        if time.monotonic() - spoken[0] > timing.FOLLOW_BEAT_S:
            spoken[0] = time.monotonic()
            frames.send_answer(frames.BEAT, json.dumps({"files": files, "bytes": size}).encode())

    has_ended = folder.state()["state"] in job_dir.TERMINAL
    slots: dict[str, list[int]] | None = {} if has_ended else None
    before = cancelled_at(folder)
    event = uploads.upload_outputs(
        folder, plan, wanted, lambda: cancelled_at(folder) != before, slots, report
    )
    if has_ended:
        uploads.note_whole(folder, event)
        uploads.note_kept(job, wanted, event)
    return _answer(event)


_COMMANDS: dict[str, Callable[..., int]] = {
    "cancel": _cancel,
    "debug": _debug,
    "end-upload": _end_upload,
    "environment": _environment,
    "environments": _environments,
    "files": _list_files,
    "follow": _follow,
    "left": _left,
    "list": _list,
    "metrics": _metrics,
    "mpi": _mpi,
    "relay": _relay,
    "release": _release,
    "remove-environments": _remove_environments,
    "remove-staged-data": _remove_staged_data,
    "ring": _ring,
    "sample-gpus": _sample_gpus,
    "samples": _samples,
    "send": _send_files,
    "serve-metrics": _serve_metrics,
    "show": _show,
    "slots": _slots,
    "stage": _stage,
    "staged-data": _staged_data,
    "submit": _submit,
    "sweep": _sweep,
    "tag": _tag,
    "upload": _upload,
    "upload-job": _upload_job,
    "wait": _wait,
    "watch-samples": _watch_samples,
}
