"""Archives are read as tarfile reads them, and hostile ones within bounds of time and memory."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.remote.environment.download.tar_entries import MalformedTar, TarEntries

MIB = 1 << 20
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=40)
PATHS = st.lists(NAMES, min_size=1, max_size=12).map("/".join).filter(lambda path: len(path.encode()) < 4000)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
)
MEMBERS = st.lists(st.tuples(PATHS, KINDS, st.binary(max_size=1500), PATHS), max_size=6)


def archive(members: list[tuple[str, bytes, bytes, str]], form: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8") as made:
        for name, kind, data, target in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            info.linkname = target if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


def entries(data: bytes, most: int = 1 << 40, count: int = 1 << 20) -> list[tuple[str, bytes, str, bytes]]:
    found = []
    read = TarEntries(io.BytesIO(data), most, count)
    for entry in read:
        content: list[bytes] = []
        if entry.isreg():
            read.copy(content.append)
        found.append((entry.name.rstrip("/"), entry.type, entry.linkname, b"".join(content)))
    return found


def by_tarfile(data: bytes) -> list[tuple[str, bytes, str, bytes]]:
    found = []
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as read:
        for entry in read:
            content = read.extractfile(entry) if entry.isreg() else None
            found.append(
                (entry.name.rstrip("/"), entry.type, entry.linkname, content.read() if content else b"")
            )
    return found


@settings(deadline=None)
@given(MEMBERS, st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_every_archive_is_read_as_tarfile_reads_it(
    members: list[tuple[str, bytes, bytes, str]], form: int
) -> None:
    data = archive(members, form)
    assert entries(data) == by_tarfile(data)


@settings(deadline=None)
@given(MEMBERS, st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=20), st.data())
def test_a_damaged_archive_is_read_or_refused(
    members: list[tuple[str, bytes, bytes, str]], damage: list[tuple[int, int]], data: st.DataObject
) -> None:
    damaged = bytearray(archive(members, tarfile.PAX_FORMAT))
    for at, value in damage:
        damaged[at % len(damaged)] = value
    cut = data.draw(st.integers(0, len(damaged)))
    try:
        entries(bytes(damaged[:cut]), most=10 * MIB)
    except MalformedTar as error:
        assert len(str(error)) < 300


@settings(deadline=None)
@given(st.binary(max_size=3000))
def test_an_extended_header_of_any_bytes_is_read_or_refused(content: bytes) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE):
        try:
            entries(header(kind, content) + archive([("a", tarfile.REGTYPE, b"1", "")], tarfile.PAX_FORMAT))
        except MalformedTar as error:
            assert len(str(error)) < 300


def header(kind: bytes, content: bytes, size: int = -1) -> bytes:
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, len(content) if size < 0 else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


FILE = archive([("a", tarfile.REGTYPE, b"1", "")], tarfile.USTAR_FORMAT)
HOSTILE: dict[str, Callable[[], bytes]] = {
    "a pax header of 1.6 GiB": lambda: header(tarfile.XHDTYPE, b"", 1600 * MIB) + bytes(20 * MIB),
    "a global pax header of 1.6 GiB": lambda: header(tarfile.XGLTYPE, b"", 1600 * MIB) + bytes(20 * MIB),
    "a long name of 1.6 GiB": lambda: header(tarfile.GNUTYPE_LONGNAME, b"", 1600 * MIB) + bytes(20 * MIB),
    "a long link of 1.6 GiB": lambda: header(tarfile.GNUTYPE_LONGLINK, b"", 1600 * MIB) + bytes(20 * MIB),
    "a pax header of overlapping records": lambda: header(tarfile.XHDTYPE, b"2 " * 250_000 + b"=") + FILE,
    "a pax record without an end": lambda: header(tarfile.XHDTYPE, b"1" * 1_000_000) + FILE,
    "a pax record of length 0": lambda: header(tarfile.XHDTYPE, b"0 a=b\n") + FILE,
    "a pax record longer than its header": lambda: header(tarfile.XHDTYPE, b"99 path=b\n") + FILE,
    "a pax size that is negative": lambda: header(tarfile.XHDTYPE, b"10 size=-1\n"[1:]) + FILE,
    "a pax size of 5000 digits": lambda: header(tarfile.XHDTYPE, b"5011 size=" + b"9" * 5000 + b"\n") + FILE,
    "ten thousand extended headers": lambda: header(tarfile.XHDTYPE, b"9 path=b\n") * 10_000 + FILE,
    "ten thousand long names": lambda: header(tarfile.GNUTYPE_LONGNAME, b"b\0") * 10_000 + FILE,
    "a sparse file": lambda: header(tarfile.GNUTYPE_SPARSE, b""),
    "a sparse file of pax": lambda: header(tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n") + FILE,
    "a negative size": lambda: _with_size(b"\xff" * 12),
    "a size of 2**80": lambda: _with_size(b"\x80" + b"\xff" * 11),
    "an empty file": lambda: b"",
    "half a header": lambda: FILE[:300],
    "a file that ends early": lambda: FILE[:512],
}


def _with_size(field: bytes) -> bytes:
    """A file whose size is written so, with the right sum."""
    block = bytearray(FILE[:512])
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(1024)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_within_a_second(name: str) -> None:
    data = HOSTILE[name]()
    begun = time.process_time()
    with pytest.raises(MalformedTar):
        entries(data)
    assert time.process_time() - begun < 1


def test_an_archive_that_is_larger_than_the_room_is_refused() -> None:
    large = archive([("a", tarfile.REGTYPE, bytes(100_000), "")], tarfile.PAX_FORMAT)
    assert entries(large, most=102_000)
    with pytest.raises(MalformedTar, match="larger than this node's disk has room for"):
        entries(large, most=100_000)
    device = header(tarfile.CONTTYPE, bytes(100_000))
    with pytest.raises(MalformedTar, match="larger than this node's disk has room for"):
        entries(device, most=50_000)


def test_an_archive_of_too_many_entries_is_refused() -> None:
    with pytest.raises(MalformedTar, match="too many entries"):
        entries(FILE[:1024] * 11, count=10)


def test_an_archive_without_its_last_blocks_is_read() -> None:
    assert entries(FILE[:1024]) == [("a", tarfile.REGTYPE, "", b"1")]


_UNPACK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (512 << 20,) * 2)
from launch.remote.environment.image_layers import Root
from launch.remote.environment.image_reference import ImageError
try:
    Root(sys.argv[1]).apply(sys.argv[2])
except ImageError as error:
    print(error)
"""


def test_a_layer_of_a_megabyte_does_not_take_a_gigabyte(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    with gzip.open(layer, "wb", compresslevel=1) as out:
        out.write(header(tarfile.XHDTYPE, b"", 1 << 30))
        for _ in range(1 << 8):
            out.write(bytes(4 * MIB))
    assert layer.stat().st_size < 5 * MIB
    argv = [sys.executable, "-c", _UNPACK, str(tmp_path / "root"), str(layer)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert "is not a layer of an image: an extended header of 1073741824 bytes" in done.stdout
