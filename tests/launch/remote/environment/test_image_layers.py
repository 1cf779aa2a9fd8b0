"""An image's layers become one folder, as the OCI image specification applies them, and never leave it."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from launch.remote.environment.image_layers import Root
from launch.remote.environment.image_reference import ImageError
from tests.launch.remote.environment.oci_registry import layer, member


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


@pytest.mark.parametrize("damaged", [b"not a tar archive" * 100, layer(member("a", bytes(99_999)))[:-40]])
def test_a_damaged_layer_is_refused(tmp_path: Path, damaged: bytes) -> None:
    with pytest.raises(ImageError, match="is not a layer of an image"):
        unpacked(tmp_path, damaged)
