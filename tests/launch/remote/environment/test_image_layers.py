"""An image's layers become one folder, as the OCI image specification applies them, and never leave it."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.environment.image_layers import Root
from launch.remote.environment.image_reference import ImageError
from tests.launch.remote.environment.oci_registry import layer, member

UNPACK_S = 4.0
"""Processor time for some thousand small entries, which take a fraction of it."""


def unpacked(tmp_path: Path, *layers: bytes) -> Path:
    root = Root(str(tmp_path / "root"))
    for number, data in enumerate(layers):
        path = tmp_path / f"layer{number}"
        path.write_bytes(data)
        root.apply(str(path))
    return tmp_path / "root"


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Any:
    return member(name, b"", type=kind, linkname=target)


def tree(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


def test_files_folders_and_links_are_as_the_layers_have_them(tmp_path: Path) -> None:
    root = unpacked(
        tmp_path,
        layer(
            member("usr/bin/"),
            member("usr/bin/run", b"#!"),
            member("./etc/conf", b"1", mode=0o600),
            member("proc"),
        ),
        layer(
            link("bin", "usr/bin"),
            link("etc/other", "etc/conf", tarfile.LNKTYPE),
            link("etc/abs", "/etc/conf"),
        ),
    )
    assert tree(root) == {
        "bin": "-> usr/bin",
        "etc": "/",
        "etc/abs": "-> /etc/conf",
        "etc/conf": "1",
        "etc/other": "1",
        "proc": "/",
        "usr": "/",
        "usr/bin": "/",
        "usr/bin/run": "#!",
    }
    assert (root / "usr/bin/run").stat().st_mode & 0o777 == 0o755
    assert (root / "etc/conf").stat().st_mode & 0o777 == 0o644


def test_a_layer_removes_what_it_whites_out(tmp_path: Path) -> None:
    root = unpacked(
        tmp_path,
        layer(member("a/one", b"1"), member("a/two", b"2"), member("b/old", b"3"), member("b/sub/old", b"4")),
        layer(
            member("a/.wh.one", b""),
            member("b/sub/new", b"5"),
            member("b/.wh..wh..opq", b""),
            member("b/new", b"6"),
            member(".wh.absent", b""),
        ),
    )
    assert tree(root) == {"a": "/", "a/two": "2", "b": "/", "b/new": "6", "b/sub": "/", "b/sub/new": "5"}


DEEP = "/".join(["d"] * 250)


def _timed(tmp_path: Path, *entries: Any) -> tuple[Path, float]:
    """The layer unpacked, and the seconds of processor time that took."""
    data = layer(*entries)
    begun = time.process_time()
    return unpacked(tmp_path, layer(member("a/below", b"")), data), time.process_time() - begun


def test_an_opaque_whiteout_that_is_repeated_costs_nothing_more(tmp_path: Path) -> None:
    files = [member(f"a/{number}", b"") for number in range(2000)]
    whiteouts = [member("a/.wh..wh..opq", b"") for _ in range(2000)]
    root, seconds = _timed(tmp_path, *files, *whiteouts, member("a/last", b""), whiteouts[0])
    assert seconds < UNPACK_S
    assert len(list((root / "a").iterdir())) == 2001 and not (root / "a/below").exists()


def test_an_opaque_whiteout_of_the_folder_above_clears_what_the_one_below_left(tmp_path: Path) -> None:
    below = layer(member("a/b/old", b""), member("a/c/old", b""), member("a/old", b""))
    above = layer(
        member("a/b/new", b""),
        member("a/b/.wh..wh..opq", b""),
        member("a/c/new", b""),
        member("a/.wh..wh..opq", b""),
        member("a/.wh.b", b""),
        member("a/b/newer", b""),
        member("a/b/.wh..wh..opq", b""),
    )
    root = unpacked(tmp_path, below, above)
    assert tree(root) == {"a": "/", "a/b": "/", "a/b/newer": "", "a/c": "/", "a/c/new": ""}


def test_a_deep_file_that_is_written_again_and_again_costs_its_writing_alone(tmp_path: Path) -> None:
    root, seconds = _timed(tmp_path, *[member(f"{DEEP}/file", b"") for _ in range(2000)])
    assert seconds < UNPACK_S
    assert (root / DEEP / "file").is_file()


@pytest.mark.parametrize(
    "pair",
    [
        [link("link", "a"), member(f"{DEEP}/file", b"")],
        [member(f"{DEEP}/file", b""), member("d/d/.wh.d", b"")],
        [link("deep", "/" + "a/../" * 500), member("deep/file", b"")],
    ],
    ids=["a link that is replaced", "folders that are made anew", "a link with a long way"],
)
def test_a_layer_that_walks_deep_folders_again_and_again_is_refused(tmp_path: Path, pair: list[Any]) -> None:
    begun = time.process_time()
    with pytest.raises(ImageError, match="leads through too many folders for its entries, last at /d"):
        _timed(tmp_path, *pair * 1000)
    assert time.process_time() - begun < UNPACK_S


def test_a_later_layer_replaces_files_by_folders_and_folders_by_links(tmp_path: Path) -> None:
    root = unpacked(
        tmp_path,
        layer(member("a", b"file"), member("lib/x", b"old"), member("same", b"1"), member("kept/x", b"1")),
        layer(member("a/b", b"below"), link("lib", "usr/lib"), member("same", b"2"), member("kept/")),
        layer(member("lib/x", b"new")),
    )
    assert tree(root) == {
        "a": "/",
        "a/b": "below",
        "kept": "/",
        "kept/x": "1",
        "lib": "-> usr/lib",
        "same": "2",
        "usr": "/",
        "usr/lib": "/",
        "usr/lib/x": "new",
    }


def test_links_mean_the_images_own_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    root = unpacked(
        tmp_path,
        layer(link("up", "../../../.."), link("out", str(outside))),
        layer(member("up/one", b"1"), member("out/kept", b"2"), member("out/.wh.kept", b"")),
    )
    assert (outside / "kept").read_text() == "mine"
    assert list(outside.iterdir()) == [outside / "kept"]
    assert (root / "one").read_text() == "1"
    assert (root / str(outside).lstrip("/")).is_dir()


@pytest.mark.parametrize(
    ("entry", "at_fault"),
    [
        (member("../evil", b"1"), "'../evil', which leads out of it"),
        (member("a/../../evil", b"1"), "which leads out of it"),
        (member("a/.wh...", b""), "removes '..'"),
        (link("hard", "../evil", tarfile.LNKTYPE), "which leads out of it"),
        (link("hard", "absent", tarfile.LNKTYPE), "links to 'absent', which is not a file"),
        (link("hard", "folder", tarfile.LNKTYPE), "links to 'folder', which is not a file"),
    ],
)
def test_a_layer_that_leads_out_is_refused(tmp_path: Path, entry: Any, at_fault: str) -> None:
    with pytest.raises(ImageError, match=at_fault):
        unpacked(tmp_path, layer(member("folder"), entry))
    assert not (tmp_path / "evil").exists()


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="lead in a circle"):
        unpacked(tmp_path, layer(link("a", "b"), link("b", "a"), member("a/file", b"1")))


def test_devices_and_setuid_are_left_out(tmp_path: Path) -> None:
    root = unpacked(
        tmp_path,
        layer(
            member("dev/null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
            member("run/pipe", b"", type=tarfile.FIFOTYPE),
            member("bin/su", b"su", mode=0o4755),
        ),
    )
    assert tree(root) == {"bin": "/", "bin/su": "su", "dev": "/", "run": "/"}
    assert (root / "bin/su").stat().st_mode & 0o7777 == 0o755


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize("compress", [bytes, gzip.compress, _zstd])
def test_layers_may_be_plain_or_compressed(tmp_path: Path, compress: Any) -> None:
    assert tree(unpacked(tmp_path, layer(member("hello", b"1"), compress=compress))) == {"hello": "1"}


def test_a_node_without_zstd_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = layer(member("hello", b"1"), compress=_zstd)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="zstd, which this node lacks"):
        unpacked(tmp_path, data)


class Disk:
    """A disk of a thousand GB by what statvfs says, of which ``free`` bytes and ``files`` files are left."""

    f_frsize = 1
    f_blocks = 10**12

    def __init__(self, free: int, files: int = 1_000_000, all_files: int = 10_000_000) -> None:
        self.f_bavail, self.f_favail, self.f_files = free, files, all_files


def _zeros(data: bytes) -> bytes:
    """An archive whose one file is a thousand times as large as itself, compressed by gzip."""
    with tempfile.TemporaryFile() as out:
        with tarfile.open(fileobj=out, mode="w") as archive:
            info = tarfile.TarInfo("zeros")
            info.size = 200 << 20
            with Path("/dev/zero").open("rb") as zeros:
                archive.addfile(info, zeros)
        out.seek(0)
        return gzip.compress(out.read(), 1)


@pytest.mark.parametrize("compress", [_zeros, lambda data: _zstd(gzip.decompress(_zeros(data)))])
def test_a_layer_that_would_fill_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    data = compress(b"")
    assert len(data) < 2 << 20
    monkeypatch.setattr(os, "statvfs", lambda _: Disk((1 << 30) + (50 << 20)))
    with pytest.raises(ImageError, match="larger than this node's disk has room for"):
        unpacked(tmp_path, data)
    assert (tmp_path / "root" / "zeros").stat().st_size <= 52 << 20


def test_layers_that_together_would_fill_the_disk_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [10**12]
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(free[0]))
    root = Root(str(tmp_path / "root"))
    free[0] = 1 << 30  # what other processes have written meanwhile counts too
    (tmp_path / "layer").write_bytes(layer(member("a", bytes(100_000))))
    with pytest.raises(ImageError, match=r"the disk of .* is full, of which 1\.1 GB stays free"):
        root.apply(str(tmp_path / "layer"))


def test_a_layer_of_more_files_than_the_disk_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(10**12, files=10_000))
    with pytest.raises(ImageError, match="of which room for 10000 files stays free"):
        unpacked(tmp_path, layer(member("a", b"1")))
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(10**12, files=0, all_files=0))  # Btrfs counts none
    (tmp_path / "root").rmdir()
    assert tree(unpacked(tmp_path, layer(member("a", b"1")))) == {"a": "1"}


def _hops() -> list[Any]:
    """Links each of which leads through the next a thousand times: a path of 1000**39 names."""
    return [link(f"l{number}", f"l{number + 1}/" + "../d/" * 800 + "..") for number in range(38)]


@pytest.mark.parametrize(
    ("entry", "at_fault"),
    [
        ([member("a/" * 2000 + "b", b"1")], "is too deep"),
        ([link("a", "d/" * 2000), member("a/" + "e/" * 2000 + "b", b"1")], "is too deep"),
        ([member("d/x", b"1"), *_hops(), member("l0/b", b"1")], "is too deep|in a circle"),
        ([member("x" * 256, b"1")], "which no file can have"),
        ([member("x/" * 2500, b"1")], "which no file can have"),
        ([member("a", b"1", pax_headers={"path": "a\0b"})], "which no file can have"),
        ([link("a", "x" * 4096)], "has a link to"),
        ([member("a", b"", type=tarfile.SYMTYPE, pax_headers={"linkpath": "a\0b"})], "has a link to"),
        ([link("a", "")], "has a link to ''"),
        ([link("hard", "x" * 5000, tarfile.LNKTYPE)], "which no file can have"),
        ([link("hard", "", tarfile.LNKTYPE)], "is not a file"),
        ([link("hard", "/", tarfile.LNKTYPE)], "is not a file"),
    ],
)
def test_names_that_no_folder_can_have_are_refused(tmp_path: Path, entry: list[Any], at_fault: str) -> None:
    begun = time.process_time()
    with pytest.raises(ImageError, match=at_fault) as refused:
        unpacked(tmp_path, layer(*entry))
    assert len(str(refused.value)) < 400
    assert time.process_time() - begun < 2
    shutil.rmtree(tmp_path / "root")  # as the launch that failed does


@pytest.mark.parametrize("damaged", [b"not a tar archive" * 100, layer(member("a", bytes(99_999)))[:-40]])
def test_a_damaged_layer_is_refused(tmp_path: Path, damaged: bytes) -> None:
    with pytest.raises(ImageError, match="is not a layer of an image"):
        unpacked(tmp_path, damaged)
