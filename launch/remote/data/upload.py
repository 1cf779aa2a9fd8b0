"""The command ``upload JOB`` on a node: send its files of a job to Blob storage, whole and verified.

The request on stdin is one line of JSON, an :class:`UploadRequest`. The node answers with lines of JSON: its
``files`` first. A second line on stdin says which of them another node has, too, and which are then stored
beside that one's, under the node's name; then it sends them. The end of stdin ends the command.

A file is sent in blocks, each with its MD5, and becomes a blob once all are there. A block's name is its
content's: what an interrupted upload has left is not sent again, nor a file whose blob has its content.
Headers, limits and error codes: learn.microsoft.com/rest/api/storageservices (Put Blob, Put Block, Put Block
List, Get Block List, List Blobs).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, NamedTuple, TypedDict
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from launch.remote.agent.identity_token import identity_token
from launch.remote.base import job_dir
from launch.remote.base.files import write_all
from launch.remote.base.records import UploadRecord
from launch.remote.data import faults
from launch.remote.data.blob import Blobs
from launch.remote.data.faults import FetchError
from launch.remote.data.requests import BODY_BYTES, Web

__all__ = ["UploadRequest", "blob_name", "local_files", "serve"]

TREES = ("logs", "outputs")
"""Folders of a job that are uploaded as a whole."""
_BLOCK = 8 << 20
_MOST_BLOCKS = 50_000
_AT_ONCE = 8
_TRIES = 8
_LONGEST_PAUSE_S = 30.0
_BEAT_S = 1.0
_OK, _CREATED, _NOT_FOUND = 200, 201, 404
_CHANGED = "was changed while it was uploaded"


class UploadRequest(TypedDict):
    """Request of ``upload``."""

    node: str
    uploads: list[UploadRecord]


class _Local(NamedTuple):
    upload: int
    """Index of its upload."""
    path: str
    """Below the upload's folder; empty where the upload is a file."""
    place: str
    """On this node."""


def serve(job: str, stdin: BinaryIO) -> int:
    """Answer one request; return the exit status of the process."""
    request: UploadRequest = json.loads(stdin.readline())
    try:
        found, skipped = local_files(job_dir.Folder(job).path, request["uploads"])
    except OSError as error:
        _send({"t": "failed", "reason": f"{error.strerror}: {error.filename}"})
        return 0
    _send({"t": "files", "files": [[one.upload, one.path] for one in found]})
    line = stdin.readline()
    if not line:
        return 1
    renamed = {(upload, path) for upload, path in json.loads(line)}
    threading.Thread(target=_end_with, args=(stdin.fileno(),), daemon=True).start()
    sending = _Sending(request, renamed)
    reporting = threading.Event()
    beats = threading.Thread(target=sending.report, args=(reporting,), daemon=True)
    beats.start()
    errors = [*skipped, *sending.send(found)]
    reporting.set()
    beats.join()
    _send({"t": "uploaded", "errors": errors, **sending.counts()})
    return 0


def _end_with(stdin: int) -> None:
    # Not by the buffered reader: its lock would be held when the process ends.
    while os.read(stdin, 1):
        pass
    os._exit(1)


def _send(answer: Mapping[str, object]) -> None:
    write_all(1, json.dumps(answer).encode() + b"\n")


def local_files(folder: str, uploads: list[UploadRecord]) -> tuple[list[_Local], list[str]]:
    """Return a node's files of each upload, and why others are not among them.

    An output with a place of its own is not part of the whole.
    """
    own = {one["name"] for one in uploads if one["name"]}
    found: list[_Local] = []
    skipped: list[str] = []
    for index, upload in enumerate(uploads):
        unread: list[OSError] = []
        if upload["name"]:
            tops = {"": os.path.join(folder, "outputs", upload["name"])}
        else:
            tops = {tree: os.path.join(folder, tree) for tree in TREES}
        for prefix, top in tops.items():
            for place in _walk(top, unread):
                path = os.path.join(prefix, os.path.relpath(place, top)) if place != top else prefix
                parts = path.split("/")
                if not upload["name"] and parts[0] == "outputs" and own & set(parts[1:2]):
                    continue
                problem = _problem(place, path)
                if problem:
                    skipped.append(f"{path or upload['name']}: {problem}")
                else:
                    found.append(_Local(index, path, place))
        for one in unread:
            if one.errno != errno.ENOENT:  # a job that runs removes its old checkpoints
                skipped.append(f"{os.path.relpath(one.filename, folder)}: {one.strerror}")
    return found, skipped


def _walk(top: str, unread: list[OSError]) -> Iterator[str]:
    """Yield what is not a folder at or below ``top``; add to ``unread`` what cannot be listed."""
    if os.path.lexists(top) and not (os.path.isdir(top) and not os.path.islink(top)):
        yield top
        return
    for folder, folders, files in os.walk(top, onerror=unread.append):
        for name in sorted(files):
            yield os.path.join(folder, name)
        for name in sorted(folders):
            if os.path.islink(os.path.join(folder, name)):
                yield os.path.join(folder, name)
        folders.sort()


def _problem(place: str, path: str) -> str:
    try:
        mode = os.lstat(place).st_mode
    except OSError as error:
        return error.strerror or str(error)
    if stat.S_ISLNK(mode):
        return "is a link, which storage does not have"
    if not stat.S_ISREG(mode):
        return "is a socket, a pipe or a device"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8, which storage does not take"
    return ""


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

    def __init__(self, request: UploadRequest, renamed: set[tuple[int, str]]) -> None:
        self._node, self._renamed = request["node"], renamed
        web = Web()
        self._targets = [_Target(one["url"], web) for one in request["uploads"]]
        self._lock = threading.Lock()
        self._files = self._kept = self._bytes = 0
        self._blocks = ThreadPoolExecutor(_AT_ONCE)
        self._room = threading.Semaphore(2 * _AT_ONCE)

    def send(self, found: list[_Local]) -> list[str]:
        """Send all files; return why some are not in storage."""
        errors: list[str] = []
        used = sorted({one.upload for one in found})
        try:
            for index in used:
                self._targets[index].look()
        except FetchError as error:
            return [error.reason]
        with ThreadPoolExecutor(_AT_ONCE) as pool, self._blocks:
            for problem in pool.map(self._try, found):
                if problem and problem not in errors:
                    errors.append(problem)
        return errors

    def counts(self) -> dict[str, int]:
        """Return how many files were sent and kept, and the bytes sent."""
        return {"files": self._files, "kept": self._kept, "bytes": self._bytes}

    def report(self, ended: threading.Event) -> None:
        """Send the counts once a second until the end."""
        while not ended.wait(_BEAT_S):
            _send({"t": "progress", **self.counts()})

    def _try(self, file: _Local) -> str:
        target = self._targets[file.upload]
        node = self._node if (file.upload, file.path) in self._renamed else ""
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
        root = f"https://{address.netloc}/{container}"
        self._blobs = Blobs(
            {"name": "", "kind": "folder", "service": "blob", "url": root, "auth": "identity"},
            "",
            web,
            identity_token,
        )

    def look(self) -> None:
        """Read what is there. Raise :class:`FetchError`."""
        marker = ""
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
            marker = page.findtext("NextMarker") or ""
            if not marker:
                return

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

        Try again, later each time, while storage is busy. Raise :class:`FetchError`.
        """
        given = {"Content-Length": str(len(body)), **(headers or {})} if method == "PUT" else {}
        for number in range(_TRIES):
            try:
                answer = self._blobs.request(method, name, query, given, body)
                if answer.status in (_OK, _CREATED):
                    return answer.read(BODY_BYTES)
                if is_optional and answer.status == _NOT_FOUND:
                    answer.read(BODY_BYTES)
                    return b""
                raise self._blobs.refusal(name, answer)
            except (OSError, http.client.HTTPException) as error:
                last = FetchError(faults.BROKEN, f"{name}: the answer breaks off: {error}")
            except FetchError as error:
                if error.fault == faults.REFUSED:
                    raise
                last = error
            if number + 1 < _TRIES:
                time.sleep(max(last.wait, min(2.0**number, _LONGEST_PAUSE_S)))
        raise last


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
