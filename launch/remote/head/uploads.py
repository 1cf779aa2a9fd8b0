"""The upload of a job's outputs to storage from all its nodes at once, and the record of it.

Every node sends its own files (:mod:`launch.remote.data.upload`). The head gives each path to the first node
that has it; another node's file of that path is stored under the node's name. A path stays its node's: a lost
node's last checkpoint must not be replaced by another node's file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Callable  # noqa: UP035  (nodes may run Python 3.8)

from launch.remote.base import job_dir, timing
from launch.remote.base.files import keep_name, replace_file
from launch.remote.base.records import Plan, UploadEvent, UploadRecord
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.log.writer import last_lines

__all__ = ["PeriodicUpload", "arrival", "no_upload", "note_kept", "note_whole", "upload_outputs"]

_COLLECTED = "~/.ranklift/collected"
"""Folder of :data:`playbooks.nodes.busy.COLLECTED`: what is in storage as a whole is as good as collected."""
_ANSWER = b'{"t": '
"""Beginning of an answer's line; a node's shell may print others before."""
_OWNERS = "uploaded.json"
"""File of the job's folder with the node that has each path: number of the upload, path, name."""
_CHUNK = 1 << 16
_POLL_S = 0.2

Report = Callable[[int, int], object]
"""Takes the numbers of files and bytes that were sent so far."""


def upload_outputs(
    folder: job_dir.Folder,
    plan: Plan,
    uploads: list[UploadRecord],
    is_cancelled: Callable[[], bool],
    slots: Mapping[str, list[int]] | None,
    report: Report = lambda _files, _bytes: None,
) -> UploadEvent:
    """Upload a job's outputs; record and return the event. A node that cannot send keeps no other from it.

    Meanwhile each node holds its ``slots``, any one where it has none there, so that no command and no job
    with another head takes it for idle; None: the job's runners hold them.
    """
    started = time.monotonic()
    _raise_file_limit()
    nodes = [_Node(plan, index, uploads, slots) for index in range(len(plan["nodes"]))]
    with selectors.DefaultSelector() as selector:
        for node in nodes:
            selector.register(node.stdout, selectors.EVENT_READ, node)
        is_named = False
        try:
            while any(node.is_open for node in nodes):
                for key, _ in selector.select(_POLL_S):
                    if not key.data.read():
                        selector.unregister(key.fd)
                for node in nodes:
                    if node.is_open and node.is_silent():
                        selector.unregister(node.stdout)
                        node.end(f"sent nothing for {timing.COLLECT_SILENT_S:g} s")
                    elif node.is_open and is_cancelled():
                        selector.unregister(node.stdout)
                        node.end("the upload was cancelled")
                if not is_named and all(node.is_listed or not node.is_open for node in nodes):
                    is_named = True
                    _name_files(folder, nodes)
                report(
                    sum(node.counts["files"] for node in nodes), sum(node.counts["bytes"] for node in nodes)
                )
        finally:
            for node in nodes:
                node.end("the upload was cut off")
    event: UploadEvent = {
        "event": "upload",
        "urls": {one["name"]: one["url"] for one in uploads},
        "files": sum(node.counts["files"] for node in nodes),
        "kept": sum(node.counts["kept"] for node in nodes),
        "bytes": sum(node.counts["bytes"] for node in nodes),
        "seconds": time.monotonic() - started,
        "errors": {node.name: node.errors for node in nodes if node.errors},
    }
    return _recorded(folder, event)


def _raise_file_limit() -> None:
    """Let this process open as many pipes as the machine allows: the usual 1024 are those of 330 nodes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class PeriodicUpload:
    """Uploads of a job's outputs while it runs, every ``upload_every_s`` of its plan; none without that.

    Each is a process of its own, as ``fab upload`` starts it: its pipes, three a node, would leave the
    supervisor too few file descriptors, and ranks would inherit a higher limit.
    """

    def __init__(self, folder: job_dir.Folder, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        if self._plan.get("uploads") and self._plan.get("upload_every_s"):
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End an upload under way, which the one at the job's end goes on with."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._plan["upload_every_s"]):
            try:
                problem = self._upload()
            except OSError as error:
                problem = str(error)
            if problem:
                no_upload(self._folder, self._plan, self._plan["uploads"], problem)

    def _upload(self) -> str:
        """Return why an upload was not, or "" where it has recorded its event, or the job has ended."""
        command = f"upload-job {self._plan['id']}"
        process = start_on_node(self._plan, 0, command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not self._ended.is_set():
            try:
                _, errors = process.communicate(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            if not process.returncode:
                return ""
            return (last_lines(errors, 1) or [f"its process ended with exit status {process.returncode}"])[0]
        process.kill()  # the nodes' part of it ends with their pipes
        process.communicate()
        return ""


def no_upload(folder: job_dir.Folder, plan: Plan, uploads: list[UploadRecord], reason: str) -> UploadEvent:
    """Record and return the event of an upload that the head could not begin."""
    event: UploadEvent = {
        "event": "upload",
        "files": 0,
        "kept": 0,
        "bytes": 0,
        "seconds": 0.0,
        "urls": {one["name"]: one["url"] for one in uploads},
        "errors": {plan["nodes"][0]["name"]: [reason]},
    }
    return _recorded(folder, event)


def _recorded(folder: job_dir.Folder, event: UploadEvent) -> UploadEvent:
    folder.event("upload", **{name: value for name, value in event.items() if name != "event"})
    return event


def arrival(job: str, event: UploadEvent) -> str:
    """Return where a job's outputs are, or why not all of them are there, for its state."""
    for node, problems in event["errors"].items():
        return job_dir.not_uploaded(job, f"{node}: {problems[0]}")
    return f"outputs in {', '.join(event['urls'].values())}"


def note_whole(folder: job_dir.Folder, event: UploadEvent) -> None:
    """Record that an ended job's outputs are in storage after all: if it lacked nothing else, it SUCCEEDED.

    The record keeps its time: what was collected since the job's end still counts as collected.
    """
    state = folder.state()
    before, was_missing, _ = state["reason"].partition(job_dir.not_uploaded(folder.job, ""))
    if event["errors"] or not was_missing:
        return
    if state["state"] == "INCOMPLETE":
        state = {**state, "state": "SUCCEEDED", "exit_status": 0}
    state = {**state, "reason": before + arrival(folder.job, event)}
    path = folder.file("state.json")
    ended = os.stat(path).st_mtime_ns
    replace_file(path, json.dumps(state).encode())
    os.utime(path, ns=(ended, ended))
    keep_name(path)
    folder.event("state", state=state["state"], reason=state["reason"])


def note_kept(job: str, uploads: list[UploadRecord], event: UploadEvent) -> None:
    """Note that nothing of a job is lost with its nodes, where all of it is in storage."""
    if event["errors"] or not any(not one["name"] for one in uploads):
        return
    note = os.path.join(os.path.expanduser(_COLLECTED), job)
    os.makedirs(os.path.dirname(note), exist_ok=True)
    with open(note, "wb"):
        pass
    # It has to be newer than the job's end, which a file system's clock may give the same time.
    after = os.stat(job_dir.Folder(job).file("state.json")).st_mtime_ns + 1
    os.utime(note, ns=(after, after))


def _name_files(folder: job_dir.Folder, nodes: list[_Node]) -> None:
    """Send every node which of its paths another node has, or had when it was uploaded before."""
    record = folder.file(_OWNERS)
    names = {node.name for node in nodes}
    owners = {key: name for key, name in _read_owners(record).items() if name in names}
    for node in nodes:
        if node.is_open:
            node.name_files(
                sorted(key for key in node.files if owners.setdefault(key, node.name) != node.name)
            )
    listed = [[upload, path, name] for (upload, path), name in owners.items()]
    with contextlib.suppress(OSError):  # on a full disk the first node that answers has a path
        replace_file(record, json.dumps(listed).encode())


def _read_owners(record: str) -> dict[tuple[int, str], str]:
    try:
        with open(record, encoding="ascii") as stream:
            return {(upload, path): name for upload, path, name in json.load(stream)}
    except FileNotFoundError:
        return {}


class _Node:
    """The upload of one node."""

    def __init__(
        self, plan: Plan, index: int, uploads: list[UploadRecord], slots: Mapping[str, list[int]] | None
    ) -> None:
        node = plan["nodes"][index]
        self.name = node["name"]
        self.files: list[tuple[int, str]] = []
        self.is_listed = False
        """Whether ``files`` are all that the node has."""
        self.errors: list[str] = []
        self.counts = {"files": 0, "kept": 0, "bytes": 0}
        self._is_whole = False
        self._buffer = b""
        self._heard = time.monotonic()
        pipe = subprocess.PIPE
        self._process = start_on_node(plan, index, f"upload {plan['id']}", stdin=pipe, stderr=pipe)
        assert self._process.stdout is not None  # noqa: S101  a pipe by construction
        self.stdout = self._process.stdout.fileno()
        self.is_open = True
        given = None if slots is None else slots.get(self.name)
        # Any one: the queue gives the lowest slots first, so the highest is missed least.
        wanted = [] if slots is None else given or list(range(node["slots"]))[::-1]
        need = 0 if slots is None else len(given or [0])
        self._write({"node": self.name, "uploads": uploads, "slots": wanted, "need": need})

    def read(self) -> bool:
        """Read what the node has sent; return False at its end."""
        data = os.read(self.stdout, _CHUNK)
        self._heard = time.monotonic()
        if not data:
            self.end("")
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if line.startswith(_ANSWER):
                self._on_answer(json.loads(line))
        return True

    def is_silent(self) -> bool:
        """Return whether the node sent nothing for too long."""
        return time.monotonic() - self._heard > timing.COLLECT_SILENT_S

    def name_files(self, renamed: list[tuple[int, str]]) -> None:
        """Let the node begin to send, these files under its own name."""
        self._write(renamed)

    def end(self, reason: str) -> None:
        """End the node's upload, if it has not ended; ``reason`` is why it is not whole."""
        if not self.is_open:
            return
        self.is_open = False
        if reason:
            self._process.kill()
        _, errors = self._process.communicate()
        if not self._is_whole:
            lines = last_lines(errors, 1)
            self.errors.append(reason or (lines[0] if lines else "its upload broke off"))

    def _on_answer(self, answer: dict[str, object]) -> None:
        if answer["t"] == "files":
            found = answer["files"]
            assert isinstance(found, list)  # noqa: S101
            self.files += [(upload, path) for upload, path in found]
            return
        if answer["t"] == "listed":
            self.is_listed = True
            return
        if answer["t"] == "failed":
            self.errors.append(str(answer["reason"]))
            self._is_whole = True
            return
        self.counts = {name: int(str(answer[name])) for name in self.counts}
        if answer["t"] == "uploaded":
            self._is_whole = True
            errors = answer["errors"]
            assert isinstance(errors, list)  # noqa: S101
            self.errors += [str(error) for error in errors]

    def _write(self, value: object) -> None:
        assert self._process.stdin is not None  # noqa: S101  a pipe by construction
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # its end has the reason
