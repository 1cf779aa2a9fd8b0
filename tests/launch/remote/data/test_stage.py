"""Data on their way from storage to the nodes of a job: processes on loopback, and storage that counts."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.remote.data.stage_request import StageAnswer
from tests.launch.remote.data.staging_cluster import Cluster
from tests.launch.remote.data.storage_server import Fault, Storage
from tests.launch.standin import until

MiB = 1 << 20
Make = Callable[[int], Cluster]


def contents(folder: Path) -> dict[str, str]:
    """The digests of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def stored(storage: Storage, prefix: str) -> dict[str, str]:
    return {
        name[len(prefix) :]: hashlib.sha256(content).hexdigest()
        for name, content in storage.blobs.items()
        if name.startswith(prefix) and isinstance(content, bytes)
    }


def fill(storage: Storage, count: int = 8, size: int = MiB) -> None:
    for number in range(count):
        storage.put(f"data/set/{number:03}.bin", os.urandom(size))


def all_hold(cluster: Cluster, storage: Storage, answer: StageAnswer, prefix: str = "data/set/") -> None:
    """Every node holds every byte, and reports no error."""
    assert answer["t"] == "staged", answer
    assert set(answer["nodes"].values()) == {None}, answer["nodes"]
    for node in range(len(answer["nodes"])):
        assert contents(cluster.data(node, answer["data"][0]["id"])) == stored(storage, prefix)


def processes_of(cluster: Cluster, node: int) -> list[int]:
    """The staging's processes on a node: those with its home folder that can receive data."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"HOME={cluster.home(node)}".encode() in variables and b"stage_node" in words:
            found.append(int(process.name))
    return found


def until_bytes(storage: Storage, size: int) -> None:
    until(lambda: storage.sent >= size, 30)


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


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("data/nothing", "no blob is below nothing/: a single file is a uri_file"),
        ("nowhere/set", "404 ContainerNotFound: there is no such container"),
    ],
)
def test_a_folder_that_is_not_there_is_refused(storage: Storage, cluster: Make, path: str, why: str) -> None:
    fill(storage, 1)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source(path))
    assert answer["t"] == "failed"
    assert why in answer["reason"]


def test_a_file_that_is_not_there_is_refused(storage: Storage, cluster: Make) -> None:
    fill(storage, 1)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/other.bin", "file"))
    assert "other.bin: Azure answers 404 BlobNotFound: there is no such blob" in answer["reason"]


def test_a_name_that_leads_out_of_the_folder_is_refused(storage: Storage, cluster: Make) -> None:
    storage.put("data/set/a/../../../../evil", b"evil")
    nodes = cluster(2)
    answer = nodes.stage(nodes.source("data/set"))
    assert answer["t"] == "failed"
    assert "'a/../../../../evil' is not a name that a file can have" in answer["reason"]
    assert not list(nodes.folder.rglob("evil"))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AuthorizationPermissionMismatch", "give the nodes' identity the role Storage Blob Data Reader"),
        ("AuthorizationFailure", "the account's firewall refuses the nodes"),
    ],
)
def test_a_refusal_has_azures_code_and_the_remedy(
    storage: Storage, cluster: Make, code: str, remedy: str
) -> None:
    fill(storage)
    storage.fault = lambda *_: Fault(403, code)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/set"))
    assert answer["t"] == "failed"
    assert f"403 {code}: {remedy}" in answer["reason"]


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


def test_errors_do_not_show_a_sas(storage: Storage, cluster: Make) -> None:
    fill(storage)
    storage.fault = lambda *_: Fault(403, "AuthenticationFailed")
    nodes = cluster(1)
    staging = nodes.start(nodes.source("data/set", auth="sas"), sas={"data": "sig=VERYSECRET"})
    assert "the SAS has expired" in staging.end()["reason"]
    assert "VERYSECRET" not in str(staging.answers)


def test_a_blob_that_changes_meanwhile_ends_the_staging(storage: Storage, cluster: Make) -> None:
    fill(storage, 48)
    storage.rate = 8 * MiB
    nodes = cluster(2)
    staging = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 4 * MiB)
    for name in list(storage.blobs):
        storage.put(name, os.urandom(MiB))
    storage.rate = None
    answer = staging.end()
    assert answer["t"] == "failed"
    assert "was changed while it was staged" in answer["reason"]
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))


def test_storage_that_is_busy_for_a_while_is_waited_for(storage: Storage, cluster: Make) -> None:
    fill(storage)
    ends = time.monotonic() + 3
    busy = Fault(503, "ServerBusy", (("Retry-After", "1"),))
    storage.fault = lambda *_: busy if time.monotonic() < ends else None
    nodes = cluster(2)
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))


@pytest.mark.parametrize("fault", [Fault(cut=1000), Fault(lie=17), Fault(lie=-17)], ids=str)
def test_answers_that_are_not_whole_are_asked_for_again(
    storage: Storage, cluster: Make, fault: Fault
) -> None:
    fill(storage)
    bad: set[str] = set()

    def sometimes(method: str, path: str, asked: str) -> Fault | None:
        if method == "GET" and asked and path not in bad:
            bad.add(path)
            return fault
        return None

    storage.fault = sometimes
    nodes = cluster(2)
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert len(bad) == 8


def test_answers_that_are_never_whole_end_the_staging(storage: Storage, cluster: Make) -> None:
    fill(storage, 1)
    storage.fault = lambda method, path, asked: Fault(cut=10) if asked else None
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/set"))
    assert answer["t"] == "failed"
    assert "breaks off" in answer["reason"]
    assert "(6 times)" in answer["reason"]


def test_a_certificate_that_is_not_trusted_is_refused(
    storage: Storage, cluster: Make, tmp_path: Path
) -> None:
    fill(storage, 1)
    storage.certificate = tmp_path / "nothing.pem"
    storage.certificate.touch()
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/set"))
    assert "its certificate is not trusted" in answer["reason"]


@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_process_of_a_node_goes_on_with_what_it_has(
    storage: Storage, cluster: Make, victim: int
) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(3)
    staging = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 6 * MiB)
    for process in processes_of(nodes, victim):
        os.kill(process, signal.SIGKILL)
    storage.rate = None
    all_hold(nodes, storage, staging.end())
    assert storage.sent <= storage.total() + 10 * MiB  # what was on its way


def test_a_killed_head_leaves_parts_that_are_used(storage: Storage, cluster: Make) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(3)
    staging = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 12 * MiB)
    staging.kill()
    until(lambda: not any(processes_of(nodes, node) for node in range(3)))
    storage.rate = None
    before = storage.sent
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent - before < 16 * MiB


def test_a_lost_node_is_named_and_the_others_have_all(storage: Storage, cluster: Make) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(3)
    staging = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 6 * MiB)
    (nodes.folder / "down" / nodes.nodes[2][1]).touch()
    for process in processes_of(nodes, 2):
        os.kill(process, signal.SIGKILL)
    storage.rate = None
    answer = staging.end()
    assert answer["nodes"] == {
        "node000000": None,
        "node000001": None,
        "node000002": "ssh: connect to host 127.0.1.3 port 22: No route to host",
    }
    assert contents(nodes.data(1, answer["data"][0]["id"])) == stored(storage, "data/set/")


def test_a_silent_node_is_given_up(storage: Storage, cluster: Make) -> None:
    fill(storage, 16)
    storage.rate = 8 * MiB
    nodes = cluster(3)
    staging = nodes.start(nodes.source("data/set"), silence=3.0)
    until_bytes(storage, 6 * MiB)
    stopped = processes_of(nodes, 2)
    (nodes.folder / "down" / nodes.nodes[2][1]).touch()
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    storage.rate = None
    answer = staging.end()
    assert answer["nodes"]["node000002"] is not None
    assert (answer["nodes"]["node000000"], answer["nodes"]["node000001"]) == (None, None)


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


def test_a_nodes_changed_copy_does_not_spread(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    answer = nodes.stage(nodes.source("data/set"), nodes=[0, 1])
    for node in (0, 1):
        (nodes.data(node, answer["data"][0]["id"]) / "003.bin").write_bytes(os.urandom(MiB))
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent == storage.total() + MiB


def test_a_removed_file_is_brought_back(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(2)
    answer = nodes.stage(nodes.source("data/set"), nodes=[0])
    (nodes.data(0, answer["data"][0]["id"]) / "003.bin").unlink()
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent == storage.total() + MiB


def test_a_node_without_room_is_named_and_the_others_have_all(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(2)
    (nodes.home(1) / ".ranklift/data/0123456789abcdef").mkdir(parents=True)
    (nodes.home(1) / ".ranklift/data/0123456789abcdef/file").write_bytes(bytes(4 * MiB))
    (nodes.home(1) / ".ranklift/data/0123456789abcdef.of-node000009").touch()
    answer = nodes.stage(nodes.source("data/set"), bound=9 * MiB)
    assert answer["nodes"]["node000000"] is None
    error = answer["nodes"]["node000001"] or ""
    assert "its disk has no room for 8.4 MB more" in error
    assert "0123456789abcdef (4.2 MB)" in error
    assert "`fab data.prune`" in error


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


def test_a_web_file_that_is_not_there_is_refused(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/none", "file", "web"))
    assert "the server answers HTTP 404" in answer["reason"]


def test_a_web_folder_is_refused(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    assert "is one file" in nodes.stage(nodes.source("files", "folder", "web"))["reason"]


def test_nothing_is_left_running(storage: Storage, cluster: Make) -> None:
    fill(storage, 2)
    nodes = cluster(2)
    nodes.stage(nodes.source("data/set"))
    until(lambda: not any(processes_of(nodes, node) for node in range(2)))
