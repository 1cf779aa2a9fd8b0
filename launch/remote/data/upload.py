"""The command ``upload JOB`` on a node: send its files of a job to Blob storage, whole and verified.

The request on stdin is one line of JSON, an :class:`UploadRequest`. The node answers with lines of JSON: its
``files``, some in each, then ``listed``. A second line on stdin says which of them another node has, too, and
which are then stored beside that one's, under the node's name; then it sends them. The end of stdin ends the
command. Meanwhile it holds slots of the node, so that no command takes the node for idle.

A file is sent in blocks, each with its MD5, and becomes a blob once all are there. A block's name is its
content's: what an interrupted upload has left is not sent again, nor a file whose blob has its content. At
the end storage is asked once more for length and MD5 of what was sent: it checks a block's MD5, not a file's.
Headers, limits and error codes: learn.microsoft.com/rest/api/storageservices (Put Blob, Put Block, Put Block
List, Get Block List, List Blobs).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import http.client
import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, TypedDict
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from launch.remote.agent.identity_token import identity_token
from launch.remote.base import job_dir
from launch.remote.base.files import write_all
from launch.remote.base.records import UploadRecord
from launch.remote.data import faults
from launch.remote.data.blob import CONTRIBUTOR, Blobs, next_marker
from launch.remote.data.faults import FetchError
from launch.remote.data.output_files import OutputFile, local_files
from launch.remote.data.requests import BODY_BYTES, Web
from launch.remote.node.slots import hold_some

__all__ = ["UploadRequest", "blob_name", "serve"]

_BLOCK = 8 << 20
_MOST_BLOCKS = 50_000
_AT_ONCE = 8
_TRIES = 8
_LONGEST_PAUSE_S = 30.0
_BEAT_S = 1.0
_LISTED_AT_ONCE = 1000
_MOST_ERRORS = 20
"""Problems of a node that are named: the job's records keep them."""
_OK, _CREATED, _NOT_FOUND = 200, 201, 404
_CHANGED = "was changed while it was uploaded"


class UploadRequest(TypedDict):
    """Request of ``upload``."""

    node: str
    uploads: list[UploadRecord]
    slots: list[int]
    """Those that the node holds meanwhile, as soon as they are free, in this order."""
    need: int
    """How many of them; 0 while the job's runner holds them."""


def serve(job: str, stdin: BinaryIO) -> int:
    """Answer one request; return the exit status of the process."""
    request: UploadRequest = json.loads(stdin.readline())
    sending = _Sending(job, request)
    ended = threading.Event()
    beats = threading.Thread(target=sending.report, args=(ended,), daemon=True)
    beats.start()
    folder = job_dir.Folder(job).path
    if request["need"] and not os.path.isdir(folder):  # the job has ended, and ran here
        why = "is not there: the node was made new since the job, or somebody removed it"
        _send({"t": "failed", "reason": f"{job_dir.ROOT}/{job} {why}"})
        return 0
    try:
        found, skipped = local_files(folder, request["uploads"])
    except OSError as error:
        _send({"t": "failed", "reason": f"{error.strerror}: {error.filename}"})
        return 0
    for start in range(0, len(found), _LISTED_AT_ONCE):
        some = found[start : start + _LISTED_AT_ONCE]
        _send({"t": "files", "files": [[one.upload, one.path] for one in some]})
    _send({"t": "listed"})
    line = stdin.readline()
    if not line:
        return 1
    renamed = {(upload, path) for upload, path in json.loads(line)}
    threading.Thread(target=_end_with, args=(stdin.fileno(),), daemon=True).start()
    errors = [*skipped, *sending.send(found, renamed)]
    ended.set()
    beats.join()
    if len(errors) > _MOST_ERRORS:
        errors[_MOST_ERRORS:] = [f"and {len(errors) - _MOST_ERRORS} more"]
    _send({"t": "uploaded", "errors": errors, **sending.counts()})
    return 0


def _end_with(stdin: int) -> None:
    # Not by the buffered reader: its lock would be held when the process ends.
    while os.read(stdin, 1):
        pass
    os._exit(1)


_stdout = threading.Lock()


def _send(answer: Mapping[str, object]) -> None:
    with _stdout:
        write_all(1, json.dumps(answer).encode() + b"\n")


def blob_name(folder: str, path: str, node: str) -> str:
    """Return the name of a blob for a file; with a ``node``, of that node's copy beside another's.

    >>> blob_name("runs/1", "model/a.bin", ""), blob_name("runs/1", "a.bin", "node000001")
    ('runs/1/model/a.bin', 'runs/1/node000001/a.bin')
    >>> blob_name("runs/model.pt", "", "node000001")
    'runs/model.pt.node000001'
    """
    if not path:
        return f"{folder}.{node}" if node else folder
    return "/".join(part for part in (folder, node, path) if part)


class _Sending:
    """Sends files, several at a time."""

    def __init__(self, job: str, request: UploadRequest) -> None:
        self._job, self._request = job, request
        self._renamed: set[tuple[int, str]] = set()
        self._held: list[int] = []
        web = Web()
        self._targets = [_Target(one["url"], web) for one in request["uploads"]]
        self._lock = threading.Lock()
        self._files = self._kept = self._bytes = 0
        self._blocks = ThreadPoolExecutor(_AT_ONCE)
        self._room = threading.Semaphore(2 * _AT_ONCE)

    def send(self, found: list[OutputFile], renamed: set[tuple[int, str]]) -> list[str]:
        """Send all files, the ``renamed`` under the node's name; return why some are not in storage."""
        self._renamed = renamed
        errors: list[str] = []
        targets: dict[int, _Target] = {}
        for index in sorted({one.upload for one in found}):
            try:
                self._targets[index].look()
                targets[index] = self._targets[index]
            except FetchError as error:
                errors.append(error.reason)
        with ThreadPoolExecutor(_AT_ONCE) as pool, self._blocks:
            errors += filter(None, pool.map(self._try, [one for one in found if one.upload in targets]))
        for target in targets.values():
            try:
                errors += target.verify()
            except FetchError as error:
                errors.append(error.reason)
        return list(dict.fromkeys(errors))

    def counts(self) -> dict[str, int]:
        """Return how many files were sent and kept, and the bytes sent."""
        return {"files": self._files, "kept": self._kept, "bytes": self._bytes}

    def report(self, ended: threading.Event) -> None:
        """Send the counts once a second until the end, and hold the node's slots."""
        while True:
            left = self._request["need"] - len(self._held)
            with contextlib.suppress(OSError):  # on a full disk, the upload is what helps
                self._held += hold_some(self._request["slots"], left, self._job)
            if ended.wait(_BEAT_S):
                return
            _send({"t": "progress", **self.counts()})

    def _try(self, file: OutputFile) -> str:
        target = self._targets[file.upload]
        node = self._request["node"] if (file.upload, file.path) in self._renamed else ""
        name = blob_name(target.folder, file.path, node)
        try:
            handle = os.open(file.place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, "rb", buffering=0) as stream:
                is_new = self._send_file(stream, target, name)
        except FetchError as error:
            return error.reason
        except FileNotFoundError:
            return ""  # a job that runs removes its old checkpoints
        except OSError as error:
            return f"{file.path or name}: {error.strerror or error}"
        with self._lock:
            self._files += is_new
            self._kept += not is_new
        return ""

    def _send_file(self, stream: BinaryIO, target: _Target, name: str) -> bool:
        """Send one file, unless its blob has its content; return whether it was sent.

        Raise OSError before there is a blob, where the file was changed meanwhile.
        """
        known, before = target.known.get(name), os.fstat(stream.fileno())
        size = before.st_size
        if size <= _BLOCK:
            data = _read(stream, size)
            _check_unchanged(stream, before)
            digest = _md5(data)
            if known == (size, digest):
                return False
            target.ask("PUT", name, "", {"x-ms-blob-type": "BlockBlob", "Content-MD5": digest}, data)
            target.sent[name] = (size, digest)
            self._count(len(data))
            return True
        if known is not None and known[0] == size and known[1] == _md5_of(stream):
            return False
        stream.seek(0)
        held = target.uncommitted(name)
        whole, names, sent = hashlib.md5(), [], []  # noqa: S324  (what Azure compares)
        step = max(_BLOCK, -(-size // _MOST_BLOCKS))
        for number in range(-(-size // step)):
            data = _read(stream, min(step, size - number * step))
            whole.update(data)
            digest = _md5(data)
            block = base64.b64encode(f"{number:06d}{digest}".encode()).decode()
            names.append(block)
            if block not in held:
                self._room.acquire()
                sent.append(self._blocks.submit(self._send_block, target, name, block, digest, data))
        _results(sent)
        _check_unchanged(stream, before)
        blocks = "".join(f"<Latest>{block}</Latest>" for block in names)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()
        digest = base64.b64encode(whole.digest()).decode()
        target.ask("PUT", name, "comp=blocklist", {"x-ms-blob-content-md5": digest}, body)
        target.sent[name] = (size, digest)
        return True

    def _send_block(self, target: _Target, name: str, block: str, digest: str, data: bytes) -> None:
        try:
            query = f"comp=block&blockid={quote(block, safe='')}"
            target.ask("PUT", name, query, {"Content-MD5": digest}, data)
            self._count(len(data))
        finally:
            self._room.release()

    def _count(self, size: int) -> None:
        with self._lock:
            self._bytes += size


class _Target:
    """A folder in storage, or one blob, and what is there."""

    def __init__(self, url: str, web: Web) -> None:
        address = urlsplit(url)
        container, _, path = address.path.lstrip("/").partition("/")
        self.folder = unquote(path).rstrip("/")
        self.known: dict[str, tuple[int, str]] = {}
        """By blob, its length and MD5."""
        self.sent: dict[str, tuple[int, str]] = {}
        """The same of what this upload has sent."""
        self._away = ""
        """Why nothing more is sent: storage stayed busy or silent, and each file would wait as long again."""
        self._url = root = f"https://{address.netloc}/{container}"
        self._blobs = Blobs(
            {"name": "", "kind": "folder", "service": "blob", "url": root, "auth": "identity"},
            "",
            web,
            identity_token,
        )

    def look(self) -> None:
        """Read what is there. Raise :class:`FetchError`."""
        self.known, marker = {}, ""
        markers: set[str] = set()
        while True:
            query = f"restype=container&comp=list&prefix={quote(self.folder, safe='')}"
            if marker:
                query += f"&marker={quote(marker, safe='')}"
            page = ElementTree.fromstring(self.ask("GET", "", query))  # noqa: S314  (the storage's own)
            for blob in page.iter("Blob"):
                name = blob.find("Name")
                text = "" if name is None else name.text or ""
                if name is not None and name.get("Encoded") == "true":
                    text = unquote(text)
                length, digest = (blob.findtext(f"Properties/{key}") or "" for key in _KEYS)
                self.known[text] = (int(length or 0), digest)
            marker = next_marker(page, markers, self._url)
            if not marker:
                return

    def verify(self) -> list[str]:
        """Return what storage does not have as it was sent. Raise :class:`FetchError`."""
        if not self.sent:
            return []
        self.look()
        why = "storage has other content, or nothing, where this was sent: send it again"
        return [f"{name}: {why}" for name, expected in self.sent.items() if self.known.get(name) != expected]

    def uncommitted(self, name: str) -> set[str]:
        """Return the names of a blob's blocks that an interrupted upload has left."""
        data = self.ask("GET", name, "comp=blocklist&blocklisttype=uncommitted", is_optional=True)
        page = ElementTree.fromstring(data) if data else None  # noqa: S314
        return set() if page is None else {one.text or "" for one in page.iter("Name")}

    def ask(
        self,
        method: str,
        name: str,
        query: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        is_optional: bool = False,
    ) -> bytes:
        """Return the body of storage's answer, empty for what ``is_optional`` and not there.

        Try again, later each time, while storage is busy, but not once it stayed so. Raise
        :class:`FetchError`.
        """
        given = {"Content-Length": str(len(body)), **(headers or {})} if method == "PUT" else {}
        for number in range(_TRIES):
            if self._away:
                raise FetchError(faults.BUSY, self._away)
            try:
                answer = self._blobs.request(method, name, query, given, body)
                if answer.status in (_OK, _CREATED):
                    return answer.read(BODY_BYTES)
                if is_optional and answer.status == _NOT_FOUND:
                    answer.read(BODY_BYTES)
                    return b""
                raise self._blobs.refusal(name, answer, CONTRIBUTOR)
            except (OSError, http.client.HTTPException) as error:
                last = FetchError(faults.BROKEN, f"{name}: the answer breaks off: {error}")
            except FetchError as error:
                if error.fault == faults.REFUSED:
                    raise
                last = error
            if number + 1 < _TRIES:
                time.sleep(max(last.wait, min(2.0**number, _LONGEST_PAUSE_S)))
        self._away = self._away or last.reason
        raise FetchError(last.fault, self._away)


_KEYS = ("Content-Length", "Content-MD5")


def _read(stream: BinaryIO, size: int) -> bytes:
    """Return the next ``size`` bytes. Raise OSError where the file has become shorter."""
    data = bytearray()
    while len(data) < size:
        piece = stream.read(size - len(data))
        if not piece:
            raise OSError(errno.EAGAIN, _CHANGED)
        data += piece
    return bytes(data)


def _check_unchanged(stream: BinaryIO, before: os.stat_result) -> None:
    after = os.fstat(stream.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise OSError(errno.EAGAIN, _CHANGED)


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()  # noqa: S324


def _md5_of(stream: BinaryIO) -> str:
    whole = hashlib.md5()  # noqa: S324
    while data := stream.read(_BLOCK):
        whole.update(data)
    return base64.b64encode(whole.digest()).decode()


def _results(sent: list[Future[None]]) -> None:
    """Return when all is sent. Raise the first error."""
    for one in sent:
        one.result()
