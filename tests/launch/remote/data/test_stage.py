"""Data on their way from storage to the nodes of a job: processes on loopback, and storage that counts."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.launch.remote.data.staging_cluster import (
    Make,
    MiB,
    all_hold,
    fill,
    processes_of,
    until_bytes,
)
from tests.launch.remote.data.storage_server import Storage
from tests.launch.standin import until


@pytest.mark.parametrize("count", [1, 4])
def test_each_byte_leaves_storage_once(storage: Storage, cluster: Make, count: int) -> None:
    fill(storage)
    nodes = cluster(count)
    answer = nodes.stage(nodes.source("data/set"))
    all_hold(nodes, storage, answer)
    assert storage.sent == storage.total() == answer["from_storage"]
    (data,) = answer["data"]
    assert data["path"] == f"~/.ranklift/data/{data['id']}"
    assert (data["bytes"], data["files"]) == (8 * MiB, 8)


def test_a_second_staging_moves_nothing(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    first = nodes.stage(nodes.source("data/set"))
    sent = storage.sent
    again = nodes.stage(nodes.source("data/set"))
    assert again["data"] == first["data"]
    assert (storage.sent, again["from_storage"]) == (sent, 0)
    assert not any((nodes.folder / "asked").glob("*"))


def test_a_node_that_joins_takes_from_its_peers(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    nodes.stage(nodes.source("data/set"), nodes=[0, 1])
    sent = storage.sent
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent == sent


def test_one_file_is_staged_under_its_name(storage: Storage, cluster: Make) -> None:
    storage.put("data/models/mein modell.bin", b"weights")
    nodes = cluster(2)
    answer = nodes.stage(nodes.source("data/models/mein%20modell.bin", "file"))
    (data,) = answer["data"]
    assert data["path"] == f"~/.ranklift/data/{data['id']}/mein modell.bin"
    assert data["etag"] == storage.etags["data/models/mein modell.bin"]
    assert (nodes.data(1, data["id"]) / "mein modell.bin").read_bytes() == b"weights"


def test_several_sources_are_staged_together(storage: Storage, cluster: Make) -> None:
    fill(storage)
    storage.put("data/one.txt", b"1")
    nodes = cluster(2)
    answer = nodes.stage(
        nodes.source("data/set", name="images"),
        nodes.source("data/one.txt", "file", name="list"),
        nodes.source("data/set", name="again"),
    )
    images, single, again = answer["data"]
    assert (images["id"], images["name"], again["name"]) == (again["id"], "images", "again")
    assert (nodes.data(1, single["id"]) / "one.txt").read_bytes() == b"1"
    assert storage.sent == storage.total()


def test_names_with_blanks_and_other_letters_and_empty_files(storage: Storage, cluster: Make) -> None:
    for name in ("ä ö/ü #?%25.txt", "leer", "tief/er/Datei mit & < \" '.bin", "日本語.txt", "tab\there"):
        storage.put(f"data/set/{name}", b"" if name == "leer" else name.encode())
    nodes = cluster(2)
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))


def test_ten_thousand_small_files_in_pages(storage: Storage, cluster: Make) -> None:
    for number in range(10_000):
        storage.put(f"data/set/{number // 100}/{number}.txt", str(number).encode())
    nodes = cluster(2)
    started = time.monotonic()
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert time.monotonic() - started < 60
    assert max(storage.gets.values()) == 1


def test_an_empty_folder_that_a_tool_has_marked(storage: Storage, cluster: Make) -> None:
    storage.put("data/set/", b"")
    nodes = cluster(2)
    answer = nodes.stage(nodes.source("data/set"))
    assert answer["t"] == "staged", answer
    assert list(nodes.data(1, answer["data"][0]["id"]).iterdir()) == []


def test_a_sas_is_used_and_shown_nowhere(storage: Storage, cluster: Make) -> None:
    fill(storage)
    secret = "sv=2021&sig=VERYSECRET%3D"
    storage.rate = 8 * MiB
    nodes = cluster(2)
    staging = nodes.start(nodes.source("data/set", auth="sas"), sas={"data": secret})
    until_bytes(storage, MiB)
    words = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"VERYSECRET" in line for line in words)
    storage.rate = None
    all_hold(nodes, storage, staging.end())
    assert all(query.endswith(secret) for query in storage.queries)
    assert b"VERYSECRET" not in b"".join(
        path.read_bytes() for path in nodes.folder.rglob("*") if path.is_file()
    )
    assert "VERYSECRET" not in str(staging.answers)


def test_two_stagings_of_the_same_data_share_one(storage: Storage, cluster: Make) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(3)
    first = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 4 * MiB)
    second = nodes.start(nodes.source("data/set"))
    elsewhere = nodes.start(nodes.source("data/set"), nodes=[2, 1])
    for staging in (first, second):
        all_hold(nodes, storage, staging.end())
    assert elsewhere.end()["t"] == "staged"
    assert storage.sent == storage.total()
    assert any("waiting for another launch" in answer.get("text", "") for answer in second.answers)


def test_progress_has_the_bytes_of_each_node(storage: Storage, cluster: Make) -> None:
    fill(storage, 40)
    storage.rate = 16 * MiB
    nodes = cluster(2)
    staging = nodes.start(nodes.source("data/set"))
    staging.end()
    shown = [answer for answer in staging.answers if answer["t"] == "progress"]
    assert len(shown) >= 2
    assert shown[-1]["total"] == 80 * MiB
    assert set(shown[-1]["held"]) == {"node000000", "node000001"}
    assert shown[0]["bytes"] < shown[-1]["bytes"]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("tags", [True, False])
def test_a_file_of_any_web_server(storage: Storage, cluster: Make, ranges: bool, tags: bool) -> None:
    storage.put("files/big.bin", os.urandom(5 * MiB))
    storage.ranges, storage.tags = ranges, tags
    nodes = cluster(3)
    answer = nodes.stage(nodes.source("files/big.bin", "file", "web"))
    assert answer["t"] == "staged", answer
    assert set(answer["nodes"].values()) == {None}
    for node in range(3):
        found = nodes.data(node, answer["data"][0]["id"]) / "big.bin"
        assert found.read_bytes() == storage.blobs["files/big.bin"]
    # A server without ranges begins to send the file when it is asked how long it is.
    assert storage.sent <= 5 * MiB * (2 if not ranges else 1) + 1


@pytest.mark.parametrize("first", [True, False])
def test_a_web_server_that_has_ranges_at_times(storage: Storage, cluster: Make, first: bool) -> None:
    storage.put("files/big.bin", os.urandom(5 * MiB))
    nodes = cluster(2)
    storage.ranges = first
    nodes.stage(nodes.source("files/big.bin", "file", "web"), nodes=[0])
    storage.ranges = not first
    answer = nodes.stage(nodes.source("files/big.bin", "file", "web"))
    assert (answer["t"], answer["nodes"]) == ("staged", {"node000000": None, "node000001": None})
    found = nodes.data(1, answer["data"][0]["id"]) / "big.bin"
    assert found.read_bytes() == storage.blobs["files/big.bin"]


def test_a_web_file_that_its_query_names_is_another_one(storage: Storage, cluster: Make) -> None:
    storage.put("files/get", b"one")
    nodes = cluster(1)
    asked = [nodes.source("files/get", "file", "web", name=name) for name in ("a", "b")]
    a, b = nodes.stage(*asked, sas={"a": "id=1", "b": "id=2"})["data"]
    assert a["id"] != b["id"]
    assert nodes.stage(asked[0], sas={"a": "id=1"})["from_storage"] == 0


def test_a_web_file_without_a_tag_is_never_taken_for_the_one_that_is_there(
    storage: Storage, cluster: Make
) -> None:
    storage.tags = False
    nodes = cluster(1)
    for content in (b"old", b"new"):
        storage.put("files/a", content)
        staged = nodes.stage(nodes.source("files/a", "file", "web"))["data"][0]
        assert nodes.data(0, f"{staged['id']}/a").read_bytes() == content


def test_nothing_is_left_running(storage: Storage, cluster: Make) -> None:
    fill(storage, 2)
    nodes = cluster(2)
    nodes.stage(nodes.source("data/set"))
    until(lambda: not any(processes_of(nodes, node) for node in range(2)))


def test_whole_data_are_read_only(storage: Storage, cluster: Make) -> None:
    fill(storage, 2)
    storage.put("data/set/deep/er.bin", b"deep")
    nodes = cluster(2)
    folder = nodes.data(1, nodes.stage(nodes.source("data/set"))["data"][0]["id"])
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o444}
    assert {path.stat().st_mode & 0o777 for path in (folder, folder / "deep")} == {0o555}


def test_a_node_that_holds_data_is_waited_for_before_storage_is_asked(
    storage: Storage, cluster: Make
) -> None:
    fill(storage)
    nodes = cluster(2)
    (data,) = nodes.stage(nodes.source("data/set"))["data"]
    nodes.data(0, f"{data['id']}.manifest").unlink()  # the head's disk was emptied
    nodes.data(0, data["id"]).chmod(0o755)
    shutil.rmtree(nodes.data(0, data["id"]))
    ssh = nodes.folder / "bin/ssh"
    ssh.rename(ssh.with_name("at-once"))
    ssh.write_text(f'#!/bin/sh\nsleep 1\nexec {ssh.with_name("at-once")} "$@"\n')
    ssh.chmod(0o755)
    again = nodes.stage(nodes.source("data/set"))
    all_hold(nodes, storage, again)
    assert (again["from_storage"], storage.sent) == (0, storage.total())
