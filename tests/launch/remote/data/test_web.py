"""A web server's file that does not come as it is stored."""

from __future__ import annotations

import pytest

from tests.launch.remote.data.staging_cluster import Make
from tests.launch.remote.data.storage_server import Fault, Storage


@pytest.fixture(autouse=True)
def _compressing(storage: Storage) -> None:
    """The server says of each file that it is compressed for the way."""
    storage.fault = lambda *_: Fault(200, headers=(("Content-Encoding", "gzip"), ("ETag", '"1"')))


def test_a_file_that_the_server_compresses_is_refused(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/table.csv", "file", "web"))
    assert answer["t"] == "failed"
    assert "/table.csv: the server sends it compressed (gzip) only: download it and use `fab" in str(answer)


def test_a_file_that_is_compressed_itself_comes_as_it_is(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    (data,) = nodes.stage(nodes.source("files/table.csv.gz", "file", "web"))["data"]
    assert data["path"].endswith("/table.csv.gz")


def _says(size: str) -> Fault:
    return Fault(206, headers=(("Content-Range", f"bytes 0-0/{size}"), ("ETag", '"1"')))


@pytest.mark.parametrize("size", [10**15, 2**63 - 1])
def test_a_size_that_no_disk_has_is_refused_by_the_nodes(storage: Storage, cluster: Make, size: int) -> None:
    storage.fault = lambda *_: _says(str(size))
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/table.csv", "file", "web"))
    assert "its disk has no room for " in (answer["nodes"]["node000000"] or "")


@pytest.mark.parametrize("size", [str(2**63), "9" * 5000, "-1", "1e9", "0x10", "\N{SUPERSCRIPT TWO}"])
def test_a_size_that_is_none_is_named_with_the_address(storage: Storage, cluster: Make, size: str) -> None:
    storage.fault = lambda *_: _says(size)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/table.csv", "file", "web"))
    assert answer["t"] == "failed"
    assert "/files/table.csv: " in answer["reason"]
    assert "bytes" in answer["reason"]
    assert len(answer["reason"]) < 300
