"""Lists of blobs that no storage should send."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from launch.remote.data import blob, faults
from launch.remote.data.blob import Blobs
from launch.remote.data.faults import FetchError
from launch.remote.data.requests import Web
from launch.remote.data.stage_request import StageSource

SOURCE: StageSource = {
    "name": "data",
    "kind": "folder",
    "service": "blob",
    "url": "https://account.blob.core.windows.net/c/train",
    "auth": "none",
}


def _page(size: str, marker: str = "", names: int = 1) -> str:
    blobs = "".join(
        f"<Blob><Name>train/{number}</Name><Properties><Etag>1</Etag>"
        f"<Content-Length>{size}</Content-Length></Properties></Blob>"
        for number in range(names)
    )
    return f"<E><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></E>"


def _listed(monkeypatch: pytest.MonkeyPatch, text: str) -> Blobs:
    """The blobs of a storage that answers each question with the same page."""
    monkeypatch.setattr(Blobs, "_page", lambda *_: ElementTree.fromstring(text))
    return Blobs(SOURCE, "", Web())


@pytest.mark.parametrize("size", ["-1", "1e3", str(2**63), "9" * 5000, "x"])
def test_a_size_that_is_none_is_named_with_the_blob(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    with pytest.raises(FetchError, match=r"^0: ") as refused:
        _listed(monkeypatch, _page(size)).files()
    assert refused.value.fault == faults.REFUSED


def test_a_list_that_does_not_advance_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchError, match="goes on where it went on before"):
        _listed(monkeypatch, _page("1", marker="again")).files()


def test_more_files_than_the_head_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "_MOST_FILES", 100)
    with pytest.raises(ValueError, match=r"/c/train: more than 100 files: pack them"):
        _listed(monkeypatch, _page("1", names=101)).files()
