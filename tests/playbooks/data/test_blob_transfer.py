"""Uploads and downloads: whole or not there, gone on with, nothing sent twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.storage.blob import BlobClient, ContainerClient

from launch.data.data_spec import BlobAddress
from launch.data.local_files import Digests, list_files
from launch.data.transfer import BLOCK, StoredBlob, block_id, destinations, names_below, refuse_nesting
from launch.errors import GiveUpError, InputError
from playbooks.data import blob_transfer
from playbooks.data.blob_transfer import Moved, delete_blobs, get_blobs, list_blobs, put_files

ADDRESS = BlobAddress("https://acme.blob.core.windows.net", "data", "my set/ä")


def put(container: ContainerClient, root: Path, digests: Path, address: BlobAddress = ADDRESS) -> Moved:
    stored = {one.name: one for one in list_blobs(container, address)}
    files = names_below(address, list_files(root))
    return put_files(container, address, files, stored, Digests(digests), lambda *_: None)


def get(container: ContainerClient, target: Path, digests: Path, *, overwrite: bool = False) -> Moved:
    wanted = destinations(ADDRESS, list_blobs(container, ADDRESS), target)
    return get_blobs(container, ADDRESS, wanted, Digests(digests), lambda *_: None, overwrite=overwrite)


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    (root / "a b").mkdir(parents=True)
    (root / "a b" / "naïve #1?.txt").write_bytes(b"one")
    (root / "empty").write_bytes(b"")
    (root / "big").write_bytes(os.urandom(2 * BLOCK + 5))
    return root


def test_a_folder_comes_back_as_it_went(container: ContainerClient, folder: Path, tmp_path: Path) -> None:
    sent = put(container, folder, tmp_path / "md5")
    assert (sent.files, sent.moved_files, sent.moved_bytes) == (3, 3, 2 * BLOCK + 8)
    assert [one.name for one in list_blobs(container, ADDRESS)] == [
        *("my set/ä/a b/naïve #1?.txt", "my set/ä/big", "my set/ä/empty")
    ]
    fetched = get(container, tmp_path / "back", tmp_path / "md5")
    assert fetched.moved_files == 3
    assert content(tmp_path / "back") == content(folder)


def test_what_marks_a_folder_is_not_data(container: ContainerClient, folder: Path, tmp_path: Path) -> None:
    put(container, folder, tmp_path / "md5")
    for name in ("my set", "my set/ä", "my set/ä/a b"):
        container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})
    assert len(list_blobs(container, ADDRESS)) == 3
    get(container, tmp_path / "back", tmp_path / "md5")
    assert content(tmp_path / "back") == content(folder)


def test_what_is_there_is_not_moved_again(container: ContainerClient, folder: Path, tmp_path: Path) -> None:
    put(container, folder, tmp_path / "md5")
    (folder / "empty").write_bytes(b"not any more")
    again = put(container, folder, tmp_path / "md5")
    assert (again.moved_files, again.moved_bytes) == (1, 12)
    get(container, tmp_path / "back", tmp_path / "md5")
    assert get(container, tmp_path / "back", tmp_path / "md5").moved_files == 0


def test_a_file_of_the_same_length_with_other_content_is_sent(
    container: ContainerClient, folder: Path, tmp_path: Path
) -> None:
    put(container, folder, tmp_path / "md5")
    (folder / "a b" / "naïve #1?.txt").write_bytes(b"two")
    assert put(container, folder, tmp_path / "md5").moved_files == 1
    assert container.download_blob("my set/ä/a b/naïve #1?.txt").readall() == b"two"


def test_an_upload_that_was_cut_off_goes_on_where_it_stopped(
    container: ContainerClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BlobClient.stage_block
    staged: list[str] = []

    def once(self: BlobClient, name: str, *rest: Any, **options: Any) -> Any:
        if staged:
            raise ConnectionResetError("cut off")
        staged.append(name)
        return real(self, name, *rest, **options)

    monkeypatch.setattr(blob_transfer, "WORKERS", 1)
    monkeypatch.setattr(BlobClient, "stage_block", once)
    with pytest.raises(GiveUpError, match="cut off"):
        put(container, folder, tmp_path / "md5")
    assert "my set/ä/big" not in [one.name for one in list_blobs(container, ADDRESS)]
    monkeypatch.setattr(BlobClient, "stage_block", real)
    done = put(container, folder, tmp_path / "md5")
    assert done.moved_bytes <= BLOCK + 8, "the first block was there"
    assert container.download_blob("my set/ä/big").readall() == (folder / "big").read_bytes()


def test_blocks_of_another_content_are_not_taken(
    container: ContainerClient, folder: Path, tmp_path: Path
) -> None:
    client = container.get_blob_client("my set/ä/big")
    wrong = os.urandom(BLOCK)
    client.stage_block(block_id(0, hashlib.md5(wrong, usedforsecurity=False).hexdigest()), wrong)
    put(container, folder, tmp_path / "md5")
    assert client.download_blob().readall() == (folder / "big").read_bytes()
    assert client.get_blob_properties().content_settings.content_md5


def test_a_download_that_was_cut_off_goes_on_where_it_stopped(
    container: ContainerClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(container, folder, tmp_path / "md5")
    real = BlobClient.download_blob
    asked = []

    def once(self: BlobClient, *words: Any, **options: Any) -> Any:
        if words[0]:
            raise ConnectionResetError("cut off")
        return real(self, *words, **options)

    monkeypatch.setattr(BlobClient, "download_blob", once)
    with pytest.raises(GiveUpError, match="cut off"):
        get(container, tmp_path / "back", tmp_path / "md5")
    assert not (tmp_path / "back" / "big").exists()

    def noted(self: BlobClient, *words: Any, **options: Any) -> Any:
        asked.append(words[0])
        return real(self, *words, **options)

    monkeypatch.setattr(BlobClient, "download_blob", noted)
    get(container, tmp_path / "back", tmp_path / "md5")
    assert 0 not in asked or asked.count(0) == 1, "only the small file begins anew"
    assert content(tmp_path / "back") == content(folder)


def test_a_blob_that_changes_while_it_is_fetched_is_refused(
    container: ContainerClient, folder: Path, tmp_path: Path
) -> None:
    put(container, folder, tmp_path / "md5")
    wanted = destinations(ADDRESS, list_blobs(container, ADDRESS), tmp_path / "back")
    container.upload_blob("my set/ä/big", b"other", overwrite=True)
    with pytest.raises(GiveUpError, match="my set/ä/big: changed while it was downloaded"):
        get_blobs(container, ADDRESS, wanted, Digests(tmp_path / "md5"), lambda *_: None, overwrite=False)
    assert not (tmp_path / "back" / "big").exists()


def test_a_blob_that_arrives_damaged_is_refused(
    container: ContainerClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(container, folder, tmp_path / "md5")
    wanted = {
        path: StoredBlob(one.name, one.size, b"\0" * 16, one.etag, one.modified)
        for path, one in destinations(ADDRESS, list_blobs(container, ADDRESS), tmp_path / "back").items()
    }
    with pytest.raises(GiveUpError, match="arrived with another MD5"):
        get_blobs(container, ADDRESS, wanted, Digests(tmp_path / "md5"), lambda *_: None, overwrite=False)
    assert content(tmp_path / "back") == {}


@pytest.mark.parametrize("sent", [0, 4, BLOCK + 1])
def test_a_piece_of_another_length_than_it_was_asked_for_is_refused(
    container: ContainerClient, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    put(container, folder, tmp_path / "md5")
    wanted = {
        path: StoredBlob(one.name, one.size, None, one.etag, one.modified)
        for path, one in destinations(ADDRESS, list_blobs(container, ADDRESS), tmp_path / "back").items()
        if path.name == "big"
    }
    answer = SimpleNamespace(readall=lambda: bytes(sent))
    monkeypatch.setattr(BlobClient, "download_blob", lambda *_, **__: answer)
    with pytest.raises(GiveUpError, match=f"big: storage sent {sent} bytes, not {BLOCK} as asked"):
        get_blobs(container, ADDRESS, wanted, Digests(tmp_path / "md5"), lambda *_: None, overwrite=False)
    assert not (tmp_path / "back" / "big").exists()


def test_files_with_other_content_are_kept_unless_told_otherwise(
    container: ContainerClient, folder: Path, tmp_path: Path
) -> None:
    put(container, folder, tmp_path / "md5")
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "empty").write_text("mine")
    with pytest.raises(InputError, match="is there with other content"):
        get(container, tmp_path / "back", tmp_path / "md5")
    assert content(tmp_path / "back") == {"empty": b"mine"}
    get(container, tmp_path / "back", tmp_path / "md5", overwrite=True)
    assert content(tmp_path / "back") == content(folder)


def test_a_file_that_changes_while_it_is_sent_makes_no_blob(
    container: ContainerClient, folder: Path, tmp_path: Path
) -> None:
    files = names_below(ADDRESS, list_files(folder))
    (folder / "big").write_bytes(os.urandom(2 * BLOCK + 5))
    with pytest.raises(GiveUpError, match="big: changed while it was uploaded"):
        put_files(container, ADDRESS, files, {}, Digests(tmp_path / "md5"), lambda *_: None)
    assert "my set/ä/big" not in [one.name for one in list_blobs(container, ADDRESS)]


def test_two_thousand_small_files_go_and_are_recognised(container: ContainerClient, tmp_path: Path) -> None:
    root = tmp_path / "many"
    for n in range(100):
        (root / f"{n:02d}").mkdir(parents=True)
        for k in range(20):
            (root / f"{n:02d}" / str(k)).write_bytes(b"%d-%d" % (n, k))
    assert put(container, root, tmp_path / "md5").moved_files == 2000
    assert put(container, root, tmp_path / "md5").moved_files == 0


def test_a_single_file_is_a_blob_of_its_own(container: ContainerClient, tmp_path: Path) -> None:
    container.upload_blob("my set/ä", b"one")
    container.upload_blob("my set/ähnlich", b"another")
    assert [one.name for one in list_blobs(container, ADDRESS)] == ["my set/ä"]
    get(container, tmp_path / "back", tmp_path / "md5")
    assert content(tmp_path / "back") == {"ä": b"one"}


@pytest.mark.parametrize(
    ("new", "stored", "words"),
    [
        (["set"], ["set/a", "set/b"], "path = 'set': is a folder in storage; give a path in it"),
        (["set/a/b", "set/c"], ["set/a"], "path = 'set/a': is a file in storage; give another path"),
        (["set/a"], ["set/a/b/c"], "path = 'set/a': is a folder in storage"),
    ],
)
def test_what_would_be_a_file_and_a_folder_is_refused(new: list[str], stored: list[str], words: str) -> None:
    with pytest.raises(InputError) as error:
        refuse_nesting(new, stored)
    assert words in str(error.value)


def test_names_that_only_begin_alike_are_not_refused() -> None:
    refuse_nesting(["set", "b/c"], ["set", "set2/a", "b/d"])


def test_deleted_is_what_is_below_the_address_alone(container: ContainerClient) -> None:
    for name in ("my set/ä/x", "my set/ä/y/z", "my set/äx"):
        container.upload_blob(name, b"1")
    delete_blobs(container, ADDRESS, list_blobs(container, ADDRESS))
    assert [one.name for one in container.list_blobs()] == ["my set/äx"]


def test_a_container_that_is_not_there_is_named(container: ContainerClient, blob_service: Any) -> None:
    with pytest.raises(InputError, match=r"has no container data; see `fab data.ls`"):
        list_blobs(blob_service.get_container_client("nowhere"), ADDRESS)
