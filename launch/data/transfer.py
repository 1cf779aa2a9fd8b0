"""What of a folder has to move between this machine and storage, decided before anything moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from launch.data.data_spec import BlobAddress
from launch.data.local_files import LocalFile
from launch.errors import InputError
from launch.numbers import counted
from launch.received_names import CannotKeep, ReceivedNames, check_way

__all__ = [
    "Block",
    "Listed",
    "StoredBlob",
    "block_id",
    "blocks_of",
    "by_folder",
    "destinations",
    "is_same",
    "names_below",
    "refuse_nesting",
]

BLOCK = 8 << 20
"""Bytes of a block, of which a blob has 50,000 at most; larger files get larger ones."""
_MOST_BLOCKS = 50_000
_LONGEST = 1024
_NAMED = 10
"""Blobs that an error names."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob as storage lists it."""

    name: str
    """In its container."""
    size: int
    md5: bytes | None
    etag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file that is uploaded in several."""

    index: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of ``fab data.ls``: a blob, or all that is in a folder."""

    name: str
    """With a slash at its end for a folder."""
    files: int
    bytes: int
    modified: datetime


def blocks_of(size: int, block: int = BLOCK) -> list[Block]:
    """Return the blocks of a file of ``size`` bytes.

    >>> [(one.offset, one.size) for one in blocks_of(20, block=8)]
    [(0, 8), (8, 8), (16, 4)]
    """
    step = max(block, -(-size // _MOST_BLOCKS))
    return [
        Block(index, offset, min(step, size - offset)) for index, offset in enumerate(range(0, size, step))
    ]


def block_id(index: int, md5: str) -> str:
    """Return a block's name, by which a later upload knows its content; all have one length.

    >>> block_id(3, "0cc175b9c0f1b6a831c399e269772661")
    '00003-0cc175b9c0f1b6a831c399e269772661'
    """
    return f"{index:05d}-{md5}"


def names_below(address: BlobAddress, files: Sequence[LocalFile]) -> dict[str, LocalFile]:
    """Return the files by the names of their blobs.

    Raise :class:`~launch.errors.InputError` for a name that blobs cannot have: "Naming and referencing
    containers, blobs, and metadata" allows 1,024 characters, and no part with a dot or slash at its end.
    """
    found = {}
    for file in files:
        name = "/".join(filter(None, (address.path, file.name)))
        if len(name) > _LONGEST:
            raise InputError(
                "data",
                str(file.path),
                f"would be a blob with a name of over {_LONGEST} characters",
                "give a shorter path",
            )
        if any(part.endswith(".") for part in name.split("/")) or "\\" in name:
            problem = "has a backslash, or a dot at a name's end, which storage does not keep"
            raise InputError("data", str(file.path), problem, "rename it")
        found[name] = file
    return found


def refuse_nesting(names: Iterable[str], stored: Iterable[str]) -> None:
    """Raise :class:`~launch.errors.InputError` where a blob's name would be a folder's as well: storage takes
    both, and no node can hold them."""
    new, old = set(names), set(stored)
    for files, others, is_now in ((new, old, "a folder"), (old, new, "a file")):
        folders = {other[:at] for other in others for at, sign in enumerate(other) if sign == "/"}
        if both := sorted(files & folders):
            remedy = "give a path in it, or another one" if is_now == "a folder" else "give another path"
            raise InputError(
                "path", both[0], f"is {is_now} in storage", f"{remedy}; `fab data.rm` removes it"
            )


def destinations(address: BlobAddress, blobs: Iterable[StoredBlob], target: Path) -> dict[Path, StoredBlob]:
    """Return where each blob below ``address`` goes in the folder ``target``; a single blob by its own name.

    Raise :class:`~launch.errors.InputError` for a name that would leave the folder, that git or Ranklift
    obeys, or that leads through a link, and for a blob whose name is a folder's as well.
    """
    found: dict[Path, StoredBlob] = {}
    names: list[str] = []
    for blob in blobs:
        below = blob.name.removeprefix(address.path).lstrip("/") or PurePosixPath(blob.name).name
        parts = below.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in below:
            remedy = "rename the blob, or get its folder's other files one by one"
            raise InputError("blob", blob.name, "has a name that no file can have", remedy)
        found[target.joinpath(*parts)] = blob
        names.append(below)
    folders = {folder for path in found for folder in path.parents}
    for path in sorted(folders & found.keys()):
        remedy = "rename one of the two"
        raise InputError("blob", found[path].name, "is a blob and a folder of blobs", remedy)
    _refuse_obeyed(target, names, [blob.name for blob in found.values()])
    return found


def _refuse_obeyed(target: Path, names: Sequence[str], blobs: Sequence[str]) -> None:
    problems = ReceivedNames().problems([(target, name) for name in names])
    if refused := [(blob, problem) for blob, problem in zip(blobs, problems, strict=True) if problem]:
        (first, problem), others = refused[0], [blob for blob, _ in refused[1:_NAMED]]
        more = f", as would {counted(len(refused) - 1, 'other')}: {', '.join(others)}" if others else ""
        remedy = "get its folder's other files one by one, or rename the blob"
        raise InputError("blob", first, f"{problem}{more}", remedy)
    for blob, name in zip(blobs, names, strict=True):
        try:
            check_way(target, PurePosixPath(name))
        except CannotKeep as error:
            raise InputError(
                "blob", blob, f"has no place in {target}: {error}", "give another target"
            ) from None


def by_folder(address: BlobAddress, blobs: Iterable[StoredBlob]) -> list[Listed]:
    """Return what lies directly in a folder: blobs, and folders with all that is below them."""
    rows: dict[str, list[StoredBlob]] = {}
    for blob in blobs:
        below = blob.name.removeprefix(address.path).lstrip("/") if blob.name != address.path else blob.name
        first, slash, _ = below.partition("/")
        rows.setdefault(first + slash if blob.name != address.path else below, []).append(blob)
    return [
        Listed(name, len(there), sum(one.size for one in there), max(one.modified for one in there))
        for name, there in sorted(rows.items())
    ]


def is_same(file: LocalFile, md5: bytes, stored: Mapping[str, StoredBlob], name: str) -> bool:
    """Return whether storage has the file's content under that name."""
    blob = stored.get(name)
    return blob is not None and blob.size == file.size and blob.md5 == md5
