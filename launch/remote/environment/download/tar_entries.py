"""The entries of a tar archive that a stranger has made, read in one pass within bounds.

:mod:`tarfile` reads an entry's extended header into memory whatever its size, parses it in quadratic time,
and keeps every entry. So the headers are read here: ustar's by :class:`tarfile.TarInfo`, and those of pax and
GNU for what is used of them, a name, a link's target and a size. Sparse files are refused: layers should have
none, as the OCI image specification says.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import IO

__all__ = ["MalformedTar", "TarEntries"]

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_LARGEST_HEADER = 1 << 20
"""Bytes of an extended header, as much as Docker's reader takes (maxSpecialFileSize in Go's archive/tar)."""
_MOST_HEADERS = 8
"""Extended headers of one entry: pax and GNU tar write three at most."""
_SIZE_DIGITS, _LENGTH_DIGITS = 18, 7
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_NAMES = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_SPARSE = "GNU.sparse."


class MalformedTar(Exception):
    """What is not a tar archive, or beyond its bounds."""


class TarEntries:
    """The entries of an archive of at most ``most`` bytes and ``entries`` entries."""

    def __init__(self, stream: IO[bytes], most: int, entries: int) -> None:
        self._stream, self._most, self._entries = stream, most, entries
        self._left = 0
        """Bytes of the current entry's content, and of what follows it up to the next header."""
        self._padding = 0
        self._is_begun = False

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yield the entries with their names, targets and sizes. Raise :class:`MalformedTar`."""
        while True:
            entry = self._next()
            if entry is None:
                return
            self._entries -= 1
            if self._entries < 0:
                raise MalformedTar("it has too many entries")
            self._left = entry.size if entry.isreg() or entry.type not in tarfile.SUPPORTED_TYPES else 0
            self._padding = -self._left % _BLOCK
            yield entry
            self.copy(lambda _: None)
            self._read(self._padding)

    def copy(self, write: Callable[[bytes], object]) -> None:
        """Pass the current entry's content to ``write``, in pieces. Raise :class:`MalformedTar`."""
        while self._left:
            data = self._read(min(self._left, _CHUNK))
            self._left -= len(data)
            write(data)

    def _next(self) -> tarfile.TarInfo | None:
        fields: dict[str, str] = {}
        for number in range(_MOST_HEADERS + 1):
            block = self._read(_BLOCK, may_end=self._is_begun and not number)
            if not block.strip(b"\0"):
                return None
            self._is_begun = True
            try:
                entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.HeaderError, ValueError) as error:
                raise MalformedTar(str(error)) from None
            if entry.size < 0:
                raise MalformedTar(f"an entry of {entry.size} bytes")
            if entry.type in _PAX:
                fields.update(_pax_fields(self._header(entry)))
            elif entry.type in _NAMES:
                name = self._header(entry).partition(b"\0")[0]
                fields[_NAMES[entry.type]] = name.decode("utf-8", "surrogateescape")
            elif entry.type == tarfile.XGLTYPE:
                self._header(entry)  # no entry of a layer depends on it
            else:
                return _with_fields(entry, fields)
        raise MalformedTar(f"an entry with over {_MOST_HEADERS} extended headers")

    def _header(self, entry: tarfile.TarInfo) -> bytes:
        if entry.size > _LARGEST_HEADER:
            raise MalformedTar(f"an extended header of {entry.size} bytes")
        data = self._read(entry.size)
        self._read(-entry.size % _BLOCK)
        return data

    def _read(self, size: int, *, may_end: bool = False) -> bytes:
        """Return ``size`` bytes, or none at the stream's end where it ``may_end``."""
        self._most -= size
        if self._most < 0:
            raise MalformedTar("it is larger than this node's disk has room for")
        pieces: list[bytes] = []
        while size:
            data = self._stream.read(size)
            if not data and may_end and not pieces:
                return b""
            if not data:
                raise MalformedTar("it ends early")
            pieces.append(data)
            size -= len(data)
        return b"".join(pieces)


def _with_fields(entry: tarfile.TarInfo, fields: dict[str, str]) -> tarfile.TarInfo:
    if entry.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(_SPARSE) for key in fields):
        raise MalformedTar(f"{entry.name[:80]!r} is a sparse file, which a layer should not have")
    entry.name = fields.get("path", entry.name)
    entry.linkname = fields.get("linkpath", entry.linkname)
    if "size" in fields:
        text = fields["size"]
        if not (text.isascii() and text.isdecimal() and len(text) <= _SIZE_DIGITS):
            raise MalformedTar(f"an entry of {text[:20]!r} bytes")
        entry.size = int(text)
    return entry


def _pax_fields(data: bytes) -> dict[str, str]:
    """Return the used records of a pax header, each of which is ``LENGTH KEY=VALUE`` and a line's end.

    >>> _pax_fields(b"12 path=a/b\\n15 mtime=1.5e0\\n")
    {'path': 'a/b'}
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + _LENGTH_DIGITS + 1)
        digits = data[at:space] if space > 0 else b""
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[space + 1 : max(end - 1, 0)].partition(b"=")
        if not space < end <= len(data) or data[end - 1 : end] != b"\n" or not equals:
            raise MalformedTar("a pax header that is damaged")
        name = key.decode("utf-8", "replace")
        if name in ("path", "linkpath", "size") or name.startswith(_SPARSE):
            found[name] = value.decode("utf-8", "surrogateescape")
        at = end
    return found
