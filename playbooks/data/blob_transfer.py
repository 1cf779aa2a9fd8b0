"""Files and blobs in parallel: uploads and downloads that go on where an earlier one was cut off."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.access import open_resolved
from launch.data.data_spec import BlobAddress
from launch.data.local_files import Digests, LocalFile, list_files
from launch.data.transfer import BLOCK, Block, StoredBlob, block_id, blocks_of, is_same
from launch.errors import GiveUpError, InputError
from playbooks.data.blob_errors import blob_errors, error_code

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, ContainerClient

__all__ = ["Moved", "delete_blobs", "get_blobs", "list_blobs", "put_files"]

WORKERS = 8
"""Requests at a time."""
_REPORT_S = 0.2
Update = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class Moved:
    """What a transfer did; files that were there already are not moved."""

    files: int = 0
    bytes: int = 0
    moved_files: int = 0
    moved_bytes: int = 0
    seconds: float = 0.0


def list_blobs(container: ContainerClient, address: BlobAddress) -> list[StoredBlob]:
    """Return the blob at the address and all below it, by name.

    Raise :class:`~launch.errors.InputError` for a container that is not there, and as
    :func:`~playbooks.data.blob_errors.blob_errors`.
    """
    from azure.core.exceptions import ResourceNotFoundError

    found = []
    with blob_errors(address):
        for one in container.list_blobs(f"{address.path}/" if address.path else None, include=["metadata"]):
            if not _is_folder(one):
                found.append(_stored(one))
        if address.path:
            try:
                one = container.get_blob_client(address.path).get_blob_properties()
                if not _is_folder(one):
                    found.insert(0, _stored(one))
            except ResourceNotFoundError as error:
                if error_code(error) == "ContainerNotFound":
                    raise
    return found


def _is_folder(one: Any) -> bool:
    """Return whether a blob is a folder of a hierarchical account, or Hadoop's mark of one."""
    return (one.metadata or {}).get("hdi_isfolder") == "true"


def _stored(one: Any) -> StoredBlob:
    md5 = one.content_settings.content_md5
    return StoredBlob(one.name, one.size, bytes(md5) if md5 else None, one.etag.strip('"'), one.last_modified)


def put_files(
    container: ContainerClient,
    address: BlobAddress,
    files: Mapping[str, LocalFile],
    stored: Mapping[str, StoredBlob],
    digests: Digests,
    update: Update,
) -> Moved:
    """Upload files by their blobs' names, unless ``stored`` has their content; each blob is whole or not
    there.

    Raise GiveUpError for a file that changes meanwhile, and as
    :func:`~playbooks.data.blob_errors.blob_errors`.
    """
    work = _Work(sum(file.size for file in files.values()), len(files), update)

    def put(name: str, file: LocalFile) -> None:
        md5 = digests.of(file)
        if is_same(file, md5, stored, name):
            work.skip(file.size)
            return
        client = container.get_blob_client(name)
        if file.size <= BLOCK:
            data = _read(file, Block(0, 0, file.size))
            _same(file)
            client.upload_blob(data, overwrite=True, validate_content=True, content_settings=_settings(md5))
            work.done(file.size)
            work.whole()
            return
        upload = _BigUpload(client, file, md5, work)
        for block in upload.missing():
            work.add(upload.put, block)

    try:
        with blob_errors(address), work:
            for name, file in files.items():
                work.add(put, name, file)
    finally:
        digests.save()
    return work.moved


def get_blobs(
    container: ContainerClient,
    address: BlobAddress,
    wanted: Mapping[Path, StoredBlob],
    digests: Digests,
    update: Update,
    *,
    overwrite: bool,
) -> Moved:
    """Download blobs to these paths, unless their content is there already; each file is whole or not there.

    Raise :class:`~launch.errors.InputError` for a file with other content without ``overwrite``, before
    anything is written, GiveUpError for a blob that changes meanwhile or arrives damaged, and as
    :func:`~playbooks.data.blob_errors.blob_errors`.
    """
    missing = {path: blob for path, blob in wanted.items() if not _is_there(path, blob, digests)}
    if not overwrite and (taken := [path for path in missing if os.path.lexists(path)]):
        more = f", as are {len(taken) - 1} others" if len(taken) > 1 else ""
        problem = f"is there with other content{more}"
        raise InputError("target", str(taken[0]), problem, "give another folder, or --overwrite")
    work = _Work(sum(blob.size for blob in wanted.values()), len(wanted), update)
    for path in wanted.keys() - missing.keys():
        work.skip(wanted[path].size)

    def get(path: Path, blob: StoredBlob) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        mark = hashlib.sha256(f"{path.name}\n{blob.etag}".encode()).hexdigest()[:16]
        part = path.parent / f".{mark}.ranklift-part"
        if part.is_symlink():  # a repository's own, which may lead anywhere
            part.unlink()
        _download(container.get_blob_client(blob.name), blob, part, work)
        os.utime(part, (blob.modified.timestamp(),) * 2)
        part.replace(path)
        work.whole()

    with blob_errors(address), work:
        for path, blob in missing.items():
            work.add(get, path, blob)
    return work.moved


def delete_blobs(container: ContainerClient, address: BlobAddress, blobs: Iterable[StoredBlob]) -> None:
    """Delete blobs. Raise as :func:`~playbooks.data.blob_errors.blob_errors`."""
    from azure.core.exceptions import ResourceNotFoundError

    work = _Work(0, 0, lambda *_: None)

    def delete(blob: StoredBlob) -> None:
        try:
            container.delete_blob(blob.name)
        except ResourceNotFoundError:
            return  # somebody else was faster

    with blob_errors(address), work:
        for blob in blobs:
            work.add(delete, blob)


class _Work:
    """Requests of several threads, their sum, and their first error, which ends the others."""

    def __init__(self, total: int, files: int, update: Update) -> None:
        self.moved = Moved(files=files, bytes=total)
        self._update = update
        self._done = 0
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="blobs")
        self._futures: list[Future[None]] = []
        self._begun = time.monotonic()

    def add(self, work: Callable[..., None], *arguments: Any) -> None:
        """Have ``work`` done by the next free thread."""

        def run() -> None:
            if not self._stop.is_set():
                work(*arguments)

        with self._guard:
            if not self._stop.is_set():
                self._futures.append(self._pool.submit(run))

    def skip(self, size: int) -> None:
        """Count bytes that were there already."""
        with self._guard:
            self._done += size

    def done(self, size: int) -> None:
        """Count bytes that were moved."""
        with self._guard:
            self._done += size
            self.moved.moved_bytes += size

    def whole(self) -> None:
        """Count a file that was moved."""
        with self._guard:
            self.moved.moved_files += 1

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, kind: object, *_details: object) -> None:
        """Wait until all is done, also what work adds; after Ctrl-C or an error, for what is under way."""
        try:
            waiting = [] if kind else self._futures
            while waiting:
                wait(waiting, _REPORT_S, FIRST_EXCEPTION)
                self._update("data", self._done, self.moved.bytes)
                failed = next((one for one in waiting if one.done() and one.exception()), None)
                if failed is not None:
                    self._end()
                    failed.result()
                with self._guard:
                    waiting = [one for one in self._futures if not one.done()]
        finally:
            self._end()
            self.moved.seconds = time.monotonic() - self._begun

    def _end(self) -> None:
        with self._guard:
            self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass(slots=True)
class _BigUpload:
    """A file in blocks; blocks that an earlier upload left are taken as they are."""

    client: BlobClient
    file: LocalFile
    md5: bytes
    work: _Work
    blocks: list[Block] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)
    left: set[str] = field(default_factory=set)

    def missing(self) -> list[Block]:
        """Return all blocks, and note the names of those that storage has."""
        from azure.core.exceptions import ResourceNotFoundError

        self.blocks = blocks_of(self.file.size)
        try:
            _, uncommitted = self.client.get_block_list("uncommitted")
        except ResourceNotFoundError:
            uncommitted = []
        self.left = {str(one.id) for one in uncommitted}
        return self.blocks

    def put(self, block: Block) -> None:
        """Upload a block, unless it is there; the last one makes the blob."""
        data = _read(self.file, block)
        name = block_id(block.index, hashlib.md5(data, usedforsecurity=False).hexdigest())
        if name in self.left:
            self.work.skip(block.size)
        else:
            self.client.stage_block(name, data, validate_content=True)
            self.work.done(block.size)
        with self.guard:
            self.names[block.index] = name
            if len(self.names) < len(self.blocks):
                return
        _same(self.file)
        from azure.storage.blob import BlobBlock

        listed = [BlobBlock(self.names[index]) for index in range(len(self.blocks))]
        self.client.commit_block_list(listed, content_settings=_settings(self.md5))
        self.work.whole()


def _download(client: BlobClient, blob: StoredBlob, part: Path, work: _Work) -> None:
    """Complete the file ``part``, and check it. Raise GiveUpError."""
    from azure.core import MatchConditions
    from azure.core.exceptions import HttpResponseError

    with part.open("ab") as stream:
        held = stream.tell()
        if held > blob.size:
            stream.truncate(0)
            held = 0
        work.skip(held)
        while held < blob.size:
            size = min(BLOCK, blob.size - held)
            try:
                data = client.download_blob(
                    held,
                    size,
                    etag=f'"{blob.etag}"',
                    match_condition=MatchConditions.IfNotModified,
                ).readall()
            except HttpResponseError as error:
                if error_code(error) == "ConditionNotMet":
                    raise GiveUpError(
                        f"{blob.name}: changed while it was downloaded; repeat the command"
                    ) from None
                raise
            if len(data) != size:
                raise GiveUpError(
                    f"{blob.name}: storage sent {len(data)} bytes, not {size} as asked; repeat the command"
                )
            stream.write(data)
            held += len(data)
            work.done(len(data))
    if blob.md5 is not None and _md5_of(part) != blob.md5:
        part.unlink()
        raise GiveUpError(f"{blob.name}: arrived with another MD5 than storage has; repeat the command")


def _is_there(path: Path, blob: StoredBlob, digests: Digests) -> bool:
    try:
        if not path.is_file() or path.stat().st_size != blob.size:
            return False
        if blob.md5 is None:
            return abs(path.stat().st_mtime - blob.modified.timestamp()) < 1
        return digests.of(list_files(path)[0]) == blob.md5
    except OSError:
        return False


def _md5_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).digest()


def _read(file: LocalFile, block: Block) -> bytes:
    with open(open_resolved(str(file.path)), "rb") as stream:  # noqa: PTH123  (a handle)
        stream.seek(block.offset)
        data = stream.read(block.size)
    if len(data) != block.size:
        raise GiveUpError(f"{file.path}: changed while it was uploaded; repeat the command")
    return data


def _same(file: LocalFile) -> None:
    """Raise GiveUpError if the file changed since it was listed: its blob would be of two versions."""
    if file.now().status != file.status:
        raise GiveUpError(f"{file.path}: changed while it was uploaded; repeat the command")


def _settings(md5: bytes) -> Any:
    from azure.storage.blob import ContentSettings

    return ContentSettings(content_md5=bytearray(md5))
