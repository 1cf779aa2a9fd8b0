"""``fab data.get``: what a container's writer named comes to no place that the user did not name."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.storage.blob import ContainerClient
from invoke.context import Context

from launch.data.data_spec import BlobAddress
from launch.errors import InputError
from playbooks.data import put
from playbooks.data.blob_transfer import list_blobs

ADDRESS = BlobAddress("https://acme.blob.core.windows.net", "results", "train/model")
Get = Callable[..., None]


@pytest.fixture
def get(container: ContainerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Get:
    """The task in a repository, where the container has a file of a job."""
    container.upload_blob("train/model/a/weights", b"x")
    stack = SimpleNamespace(hashes_of=lambda _: tmp_path / "hashes.json")
    monkeypatch.setattr(put, "open_from", lambda *_: stack)
    monkeypatch.setattr(put, "container_of", lambda *_: container)
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")

    def run(path: str, *target: str) -> None:
        address = BlobAddress(ADDRESS.account_url, ADDRESS.container, path)
        monkeypatch.setattr(put, "data_address", lambda *_: address)
        inspect.unwrap(put.get.body)(Context(), path, list(target))

    return run


def test_the_default_target_is_no_link(get: Get, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    Path("model").symlink_to(tmp_path / "home")
    with pytest.raises(InputError, match="target = 'model': is a link; give a folder as the target"):
        get("train/model")
    assert not list((tmp_path / "home").iterdir())
    get("train/model", "model")
    assert (tmp_path / "home" / "a" / "weights").read_bytes() == b"x"


@pytest.mark.parametrize("name", [".git", ".GIT", ".ranklift"])
def test_the_default_target_is_no_folder_of_settings(get: Get, container: ContainerClient, name: str) -> None:
    container.upload_blob(f"train/{name}/config", b"x")
    with pytest.raises(InputError, match="is a folder of settings; give a folder as the target"):
        get(f"train/{name}")
    assert not Path(name).exists()


def test_nothing_is_written_where_one_name_is_obeyed(get: Get, container: ContainerClient) -> None:
    container.upload_blob("train/model/.git/commondir", b"../evil")
    with pytest.raises(
        InputError, match=r"blob = 'train/model/.git/commondir': would be in a folder of settings"
    ):
        get("train/model", ".")
    assert not list(Path().iterdir())


def test_a_part_is_written_through_no_link(get: Get, container: ContainerClient, tmp_path: Path) -> None:
    (one,) = list_blobs(container, ADDRESS)
    mark = hashlib.sha256(f"weights\n{one.etag}".encode()).hexdigest()[:16]
    part = Path(f"a/.{mark}.ranklift-part")
    part.parent.mkdir()
    part.symlink_to(tmp_path / "elsewhere")
    get("train/model", ".")
    assert Path("a/weights").read_bytes() == b"x"
    assert not (tmp_path / "elsewhere").exists()
