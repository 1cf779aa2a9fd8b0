"""Lists of blobs that no storage should send."""

from __future__ import annotations

import io
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from launch.remote.data import blob, faults
from launch.remote.data.blob import Blobs
from launch.remote.data.faults import FetchError
from launch.remote.data.requests import Web
from launch.remote.data.stage_request import StageSource
from launch.remote.data.upload import _Target

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


def _alternating(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Answer each question with an empty page and the next of ``count`` markers; return those questions."""
    asked: list[str] = []

    def page(_: Blobs, _method: str, _name: str, query: str = "", *_more: object) -> _Answer:
        asked.append(query)
        assert len(asked) < 1000, "the list never ends"
        return _Answer(_page("1", marker=f"m{len(asked) % count}", names=0))

    monkeypatch.setattr(Blobs, "request", page)
    return asked


class _Answer(io.BytesIO):
    status = 200

    def __init__(self, text: str) -> None:
        super().__init__(text.encode())


READERS = {
    "a folder's": lambda: Blobs(SOURCE, "", Web()).files(),
    "an upload's": lambda: _Target(SOURCE["url"], Web()).look(),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_markers_that_alternate_end_a_list(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]
) -> None:
    asked = _alternating(monkeypatch, 3)
    with pytest.raises(FetchError, match="/c: the list goes on where it went on before"):
        read()
    assert len(asked) == 4


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_empty_pages_without_end_are_refused(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[], object]
) -> None:
    monkeypatch.setattr(blob, "_MOST_PAGES", 50)
    asked = _alternating(monkeypatch, 1_000_000)
    with pytest.raises(FetchError, match="/c: the list has more than 50 pages"):
        read()
    assert len(asked) == 51


def test_a_marker_that_fits_no_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchError, match="at a marker of 9000 characters"):
        _listed(monkeypatch, _page("1", marker="m" * 9000)).files()


@pytest.mark.parametrize("etag", ["1&#13;&#10;X-Evil: 1", "1 2", "é", "x" * 5000])
def test_an_etag_that_no_header_can_have_is_named_with_the_blob(
    monkeypatch: pytest.MonkeyPatch, etag: str
) -> None:
    text = _page("1").replace("<Etag>1<", f"<Etag>{etag}<")
    with pytest.raises(FetchError, match=r"^0: .* is not an ETag") as refused:
        _listed(monkeypatch, text).files()
    assert refused.value.fault == faults.REFUSED


def test_more_files_than_the_head_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob, "_MOST_FILES", 100)
    with pytest.raises(ValueError, match=r"/c/train: more than 100 files: pack them"):
        _listed(monkeypatch, _page("1", names=101)).files()
