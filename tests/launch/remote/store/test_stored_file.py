"""A new snapshot shares an unchanged file: as a clone, or as a link to what nobody may write to."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.remote.base.files import FICLONE
from launch.remote.store.stored_file import CHUNK, Sharing, StoredFile, contents_of, digest_of

SIZE = len(b"content")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file as a push leaves it."""
    path = tmp_path / "old" / "file"
    path.parent.mkdir()
    path.write_bytes(b"content")
    path.chmod(0o444)
    return path


@pytest.fixture
def new(tmp_path: Path) -> Iterator[int]:
    """The folder of a new snapshot, ``new``."""
    (tmp_path / "new").mkdir()
    descriptor = os.open(tmp_path / "new", os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def stored(path: Path) -> StoredFile:
    return StoredFile(os.fsencode(path), executable=False)


def no_clones(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """ext4, as most nodes have; what was asked of it."""
    requests: list[int] = []

    def ioctl(_: object, request: int, __: object) -> None:
        requests.append(request)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return requests


def write_is_refused(monkeypatch: pytest.MonkeyPatch, *, refused: bool) -> None:
    """Nobody may write to a read-only file, but root may."""
    monkeypatch.setattr(os, "access", lambda *_: not refused)


def test_a_clone_is_a_read_only_file_of_its_own(
    source: Path, new: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clone(target: object, request: int, old: int) -> None:
        assert request == FICLONE
        target.write(os.pread(old, 100, 0))  # type: ignore[attr-defined]

    monkeypatch.setattr(fcntl, "ioctl", clone)
    assert Sharing(new).share(stored(source), b"file", executable=True)
    made = (tmp_path / "new" / "file").stat()
    assert (made.st_nlink, made.st_mode & 0o777) == (1, 0o555)
    assert (tmp_path / "new" / "file").read_bytes() == b"content"


def test_without_clones_it_is_a_link(
    source: Path, new: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = no_clones(monkeypatch)
    write_is_refused(monkeypatch, refused=True)
    sharing = Sharing(new)
    assert sharing.share(stored(source), b"one", executable=False)
    assert sharing.share(stored(source), b"two", executable=False)
    assert (tmp_path / "new" / "two").samefile(source)
    assert requests == [FICLONE], "a file system that refused is not asked again"


def test_a_user_who_may_write_to_read_only_files_gets_no_link(
    source: Path, new: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_clones(monkeypatch)
    write_is_refused(monkeypatch, refused=False)
    assert not Sharing(new).share(stored(source), b"file", executable=False)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_is_to_be_executable_is_not_linked_to_one_that_is_not(
    source: Path, new: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_clones(monkeypatch)
    write_is_refused(monkeypatch, refused=True)
    assert not Sharing(new).share(stored(source), b"file", executable=True)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_is_gone_is_not_shared(source: Path, new: int, tmp_path: Path) -> None:
    file = stored(source)
    source.unlink()
    assert digest_of(file.path, SIZE) is None
    assert not Sharing(new).share(file, b"file", executable=False)
    assert list((tmp_path / "new").iterdir()) == []


def a_link(path: Path) -> None:
    path.with_name("target").write_bytes(b"content")
    path.unlink()
    path.symlink_to("target")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o444)


@pytest.mark.parametrize(
    "change", [a_link, a_pipe, lambda path: path.chmod(0o644)], ids=["a link", "a pipe", "writable"]
)
@pytest.mark.timeout(30)
def test_only_a_regular_file_that_nobody_may_write_to_is_shared(
    source: Path, new: int, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    assert stored(source).is_sealed()
    change(source)
    assert not stored(source).is_sealed()
    assert not Sharing(new).share(stored(source), b"file", executable=False)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("change", [a_link, a_pipe], ids=["a link", "a pipe"])
@pytest.mark.timeout(30)
def test_a_link_or_a_pipe_has_another_digest(source: Path, change: Callable[[Path], None]) -> None:
    digest = digest_of(os.fsencode(source), SIZE)
    assert digest is not None
    change(source)
    assert digest_of(os.fsencode(source), SIZE) != digest


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1, 2 << 40])
@pytest.mark.timeout(30)
def test_a_file_of_another_size_is_not_read(source: Path, size: int) -> None:
    source.chmod(0o644)
    os.truncate(source, size)
    assert digest_of(os.fsencode(source), SIZE) is None


@pytest.mark.timeout(30)
def test_a_file_that_becomes_large_while_it_is_read_is_read_to_its_pushed_size(source: Path) -> None:
    source.chmod(0o644)
    source.write_bytes(bytes(2 * CHUNK))
    pieces = contents_of(os.fsencode(source), 2 * CHUNK, hashlib.sha256())
    read = len(next(pieces))
    os.truncate(source, 2 << 40)
    assert read + sum(map(len, pieces)) == 2 * CHUNK + 1
