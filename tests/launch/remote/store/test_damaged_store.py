"""What a job can leave in a node's store: no push waits for it, reads it whole or ends by it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.remote.base.files import hold
from launch.remote.node.prepare import Unfit
from launch.remote.node.snapshot_check import Pushed
from launch.remote.store.assemble import Builder
from launch.remote.store.locks import locks_of, try_lock
from launch.remote.store.manifest import Manifest
from launch.remote.store.store import ENVIRONMENTS, SNAPSHOTS, Store
from tests.launch.sealed import manifest_of, seal

pytestmark = pytest.mark.timeout(30)

LARGE = 2 << 40
FOREIGN = "a" * 16
CONTENTS = (b"print('hello')\n", b"import helper\n")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "ranklift"))


@pytest.fixture
def pushed(store: Store) -> Path:
    """A whole snapshot of the store, of one file."""
    code = Path(store.folder) / "code"
    code.mkdir()
    (code / "helper.py").write_text("print('hello')\n")
    (code / "helper.py").chmod(0o444)
    return seal(code)


def manifest(pushed: Path) -> Manifest:
    return Manifest(Path(f"{pushed}.manifest").read_bytes())


@pytest.fixture
def wanted(tmp_path: Path) -> Manifest:
    """Another version of the code, with the same helper and another script."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "helper.py").write_bytes(CONTENTS[0])
    (code / "train.py").write_bytes(CONTENTS[1])
    return Manifest(manifest_of(code))


def missing(store: Store, wanted: Manifest) -> list[int]:
    """What a push of this version has to send to the node."""
    builder = Builder(store, wanted, check=True, verify=False)
    try:
        lacking = builder.start()
    finally:
        builder.abort()
    assert lacking == store.lacking(wanted)
    return lacking


def make(store: Store, wanted: Manifest) -> None:
    builder = Builder(store, wanted, check=True, verify=False)
    try:
        lacking = builder.start()
        builder.expect(lacking)
        for number in lacking:
            builder.feed(CONTENTS[number])
        builder.finish()
    finally:
        builder.abort()


def test_a_push_takes_what_is_whole_from_the_store(store: Store, pushed: Path, wanted: Manifest) -> None:
    assert store.intact(manifest(pushed))
    assert missing(store, wanted) == [1]


@pytest.mark.parametrize("mode", [0o444, 0o644])
def test_a_file_that_was_made_large_and_sparse_is_sent_again(
    store: Store, pushed: Path, wanted: Manifest, mode: int
) -> None:
    os.truncate(pushed / "helper.py", LARGE)
    (pushed / "helper.py").chmod(mode)
    assert not store.intact(manifest(pushed))
    assert missing(store, wanted) == [0, 1]
    with pytest.raises(ValueError, match=r"a job changed the head's copy of helper.py"):
        list(store.contents(manifest(pushed), [0]))


def bytes_of(text: bytes) -> Callable[[Path, Manifest], None]:
    def write(path: Path, _: Manifest) -> None:
        path.write_bytes(text)

    return write


def a_pipe(path: Path, _: Manifest) -> None:
    os.mkfifo(path)


def an_endless_device(path: Path, _: Manifest) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path, _: Manifest) -> None:
    path.mkdir()


def a_large_sparse_file(path: Path, _: Manifest) -> None:
    path.touch()
    os.truncate(path, LARGE)


def a_path_outside(path: Path, wanted: Manifest) -> None:
    path.write_text(json.dumps([["f", "../../secret", wanted.blobs[1][0], wanted.blobs[1][1], 0]]))


def a_path_that_no_file_has(path: Path, wanted: Manifest) -> None:
    path.write_text(json.dumps([["f", "a\0b", wanted.blobs[1][0], wanted.blobs[1][1], 0]]))


def no_rights(path: Path, _: Manifest) -> None:
    path.touch(0)


MANIFESTS = pytest.mark.parametrize(
    "write",
    [
        pytest.param(bytes_of(b"[[]]"), id="an empty entry"),
        pytest.param(bytes_of(b"[1]"), id="a number for an entry"),
        pytest.param(bytes_of(b"5"), id="a number"),
        pytest.param(bytes_of(b'{"a": 1}'), id="a mapping"),
        pytest.param(bytes_of(b'[["f"]]'), id="a short entry"),
        pytest.param(bytes_of(b'[["f", 1, [], "x", 0]]'), id="an entry of other types"),
        pytest.param(bytes_of(b'[["f", "x", "' + b"0" * 64 + b'", -1, 0]]'), id="a negative size"),
        pytest.param(bytes_of(b'[["x", "y", "z"]]'), id="an unknown kind"),
        pytest.param(bytes_of(b'[["f", "tra'), id="torn"),
        pytest.param(bytes_of(b""), id="empty"),
        pytest.param(bytes_of(b"\xff\xfe\x00"), id="no text"),
        pytest.param(bytes_of(b"[" * 200_000), id="nested deeply"),
        a_pipe,
        an_endless_device,
        a_folder,
        a_large_sparse_file,
        a_path_outside,
        a_path_that_no_file_has,
        no_rights,
    ],
)


@MANIFESTS
@pytest.mark.parametrize("kind", [SNAPSHOTS, ENVIRONMENTS])
def test_what_is_no_manifest_does_not_count(
    tmp_path: Path, wanted: Manifest, write: Callable[[Path, Manifest], None], kind: str
) -> None:
    store = Store(str(tmp_path / "ranklift"), kind)
    Path(store.path(FOREIGN)).mkdir()
    write(Path(store.path(FOREIGN) + ".manifest"), wanted)
    assert missing(store, wanted) == [0, 1]
    assert store.manifest(FOREIGN) is None
    assert store.superfluous(wanted.id) == []


@MANIFESTS
def test_a_push_replaces_what_is_no_manifest(
    store: Store, wanted: Manifest, write: Callable[[Path, Manifest], None]
) -> None:
    Path(store.path(wanted.id)).mkdir()
    write(Path(store.path(wanted.id) + ".manifest"), wanted)
    assert not store.holds(wanted)
    assert store.confirmed(wanted.id, "") == []
    make(store, wanted)
    assert store.intact(wanted)
    assert store.manifest(wanted.id) is not None


@pytest.mark.parametrize("spoil", [a_pipe, an_endless_device, bytes_of(b"")], ids=["pipe", "device", "file"])
def test_a_push_replaces_what_is_in_the_place_of_its_folder(
    store: Store, wanted: Manifest, spoil: Callable[[Path, Manifest], None]
) -> None:
    spoil(Path(store.path(wanted.id)), wanted)
    make(store, wanted)
    assert store.intact(wanted)


def test_a_manifest_that_its_name_does_not_identify_does_not_count(
    store: Store, pushed: Path, wanted: Manifest
) -> None:
    pushed.rename(store.path(FOREIGN))
    Path(f"{pushed}.manifest").rename(store.path(FOREIGN) + ".manifest")
    assert store.manifest(FOREIGN) is None
    assert missing(store, wanted) == [0, 1]


@MANIFESTS
def test_a_node_names_what_is_no_manifest(
    pushed: Path, wanted: Manifest, write: Callable[[Path, Manifest], None]
) -> None:
    path = Path(f"{pushed}.manifest")
    path.unlink()
    write(path, wanted)
    with pytest.raises(Unfit, match=r"^a job changed the manifest of the pushed"):
        Pushed(str(pushed))


@pytest.mark.parametrize("write", [a_pipe, an_endless_device])
def test_what_is_no_file_keeps_nothing(
    store: Store, write: Callable[[Path, Manifest], None], wanted: Manifest
) -> None:
    Path(store.path(FOREIGN)).mkdir()
    write(Path(store.path(FOREIGN) + ".manifest"), wanted)
    with pytest.raises(FileNotFoundError, match=FOREIGN):
        hold(store.path(FOREIGN))


@pytest.mark.parametrize("write", [a_pipe, an_endless_device, bytes_of(b"[" * 200_000), bytes_of(b"5")])
def test_what_is_no_list_of_nodes_confirms_none(
    store: Store, wanted: Manifest, write: Callable[[Path, Manifest], None]
) -> None:
    write(Path(store.path(FOREIGN) + ".nodes"), wanted)
    assert store.confirmed(FOREIGN, "code") == []
    store.confirm(FOREIGN, "code", ["node000001"])
    assert store.confirmed(FOREIGN, "code") == ["node000001"]


def test_a_folder_in_the_place_of_a_lock_holds_up_nothing(store: Store) -> None:
    for name in (".lock", f".lock-{FOREIGN}"):
        (Path(store.folder) / name).mkdir()
    store.confirm(FOREIGN, "code", ["node000001"])
    assert store.confirmed(FOREIGN, "code") == ["node000001"]
    with try_lock(store, FOREIGN) as is_held:
        assert is_held
    assert locks_of(store) == [FOREIGN]


def test_pipes_in_the_place_of_locks_and_notes_hold_up_no_push(store: Store) -> None:
    for name in (".lock", f"{FOREIGN}.of-node000000"):
        os.mkfifo(Path(store.folder) / name)
    store.owe(FOREIGN, "node000000")
    store.confirm(FOREIGN, "code", ["node000001"])
    assert store.confirmed(FOREIGN, "code") == ["node000001"]
