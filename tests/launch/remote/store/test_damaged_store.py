"""What a job can leave in a node's store: no push waits for it, reads it whole or ends by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.remote.store.assemble import Builder
from launch.remote.store.store import Manifest, Store
from tests.launch.sealed import manifest_of, seal

pytestmark = pytest.mark.timeout(30)

LARGE = 2 << 40


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
    (code / "helper.py").write_text("print('hello')\n")
    (code / "train.py").write_text("import helper\n")
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
