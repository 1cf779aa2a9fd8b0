"""What goes wrong while data are staged: refusals, busy storage, killed processes, lost nodes, full disks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.launch.remote.data.staging_cluster import (
    Make,
    MiB,
    all_hold,
    contents,
    fill,
    processes_of,
    stored,
    until_bytes,
)
from tests.launch.remote.data.storage_server import Fault, Storage
from tests.launch.standin import until


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


def test_a_folder_that_is_named_as_a_file_is_refused(storage: Storage, cluster: Make) -> None:
    fill(storage, 1)
    marked = (("x-ms-meta-hdi_isfolder", "true"), ("ETag", '"0x1"'))
    storage.fault = lambda *_: Fault(200, "", marked)
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("data/set", "file"))
    assert answer["t"] == "failed"
    assert "data/set: is a folder: make it a uri_folder, or end its address with a slash" in answer["reason"]


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
        ("InvalidAuthenticationInfo", "the token of the nodes' identity is of another tenant"),
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
    fill(storage, 48)
    storage.rate = 16 * MiB
    nodes = cluster(3)
    staging = nodes.start(nodes.source("data/set"))
    until_bytes(storage, 32 * MiB)
    staging.kill()
    until(lambda: not any(processes_of(nodes, node) for node in range(3)))
    storage.rate = None
    before = storage.sent
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent - before < 40 * MiB


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


def test_a_nodes_changed_copy_does_not_spread(storage: Storage, cluster: Make) -> None:
    fill(storage)
    nodes = cluster(3)
    answer = nodes.stage(nodes.source("data/set"), nodes=[0, 1])
    for node in (0, 1):
        changed = nodes.data(node, answer["data"][0]["id"]) / "003.bin"
        changed.chmod(0o644)
        changed.write_bytes(os.urandom(MiB))
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


def test_the_bound_counts_what_a_node_holds_of_the_same_job(storage: Storage, cluster: Make) -> None:
    fill(storage)
    for number in range(8):
        storage.put(f"data/other/{number}", os.urandom(MiB))
    nodes = cluster(1)
    held = nodes.source("data/set", name="held")
    (data,) = nodes.stage(held)["data"]
    nodes.data(0, f"{data['id']}.nodes").unlink()  # so that the node is asked for both
    both = nodes.stage(held, nodes.source("data/other", name="other"), bound=12 * MiB)
    assert "no room for 8.4 MB more" in (both["nodes"]["node000000"] or "")
    assert "at most 12.6 MB may be staged" in (both["nodes"]["node000000"] or "")


def test_a_bound_below_what_is_staged_refuses_nothing_that_a_node_holds(
    storage: Storage, cluster: Make
) -> None:
    fill(storage)
    storage.put("data/other/file", os.urandom(MiB))
    nodes = cluster(1)
    nodes.stage(nodes.source("data/other"))
    (data,) = nodes.stage(nodes.source("data/set"))["data"]
    nodes.data(0, f"{data['id']}.nodes").unlink()  # so that the node is asked
    assert nodes.stage(nodes.source("data/set"), bound=MiB // 2)["nodes"] == {"node000000": None}


def test_a_web_file_that_is_not_there_is_refused(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/none", "file", "web"))
    assert "the server answers HTTP 404" in answer["reason"]


def test_a_redirection_that_ends_is_asked_for_again(storage: Storage, cluster: Make) -> None:
    storage.put("files/signed", os.urandom(8 * MiB))
    left = [0]

    def redirect(_method: str, path: str, _range: str) -> Fault | None:
        if path == "files/big.bin":
            left[0] = 3
            return Fault(302, "", (("Location", "/files/signed?sig=VERYSECRET"),))
        left[0] -= 1
        return Fault(403, "") if left[0] < 0 else None

    storage.fault = redirect
    nodes = cluster(1)
    answer = nodes.stage(nodes.source("files/big.bin", "file", "web"), downloaders=1)
    assert answer["t"] == "staged", answer
    found = nodes.data(0, answer["data"][0]["id"]) / "big.bin"
    assert found.read_bytes() == storage.blobs["files/signed"]


@pytest.mark.parametrize(
    "target", ["/b?sig=VERYSECRET x", "/b?sig=VERYSECRET\u00e4", "https://[b?sig=VERYSECRET"]
)
def test_a_redirection_to_no_address_is_refused_without_it(
    storage: Storage, cluster: Make, target: str
) -> None:
    storage.fault = lambda *_: Fault(302, "", (("Location", target),))
    nodes = cluster(1)
    staging = nodes.start(nodes.source("files/a", "file", "web"))
    assert staging.end()["reason"] == (
        f"{storage.url}/files/a: the server leads to what is not an https: address"
    )
    assert "VERYSECRET" not in str(staging.answers)


def test_a_web_folder_is_refused(storage: Storage, cluster: Make) -> None:
    nodes = cluster(1)
    assert "is one file" in nodes.stage(nodes.source("files", "folder", "web"))["reason"]


def test_what_a_node_had_to_remove_is_brought_again(storage: Storage, cluster: Make) -> None:
    fill(storage)
    storage.put("data/other/one.bin", os.urandom(4 * MiB))
    nodes = cluster(2)
    first = nodes.stage(nodes.source("data/set"))
    manifest = nodes.data(1, first["data"][0]["id"] + ".manifest")
    os.utime(manifest, (0, 0))  # on the head they were used just now, and stay
    other = nodes.stage(nodes.source("data/other"), bound=9 * MiB)
    assert other["nodes"]["node000001"] is None
    assert "no room" in (other["nodes"]["node000000"] or "")
    assert not manifest.exists()
    sent = storage.sent
    all_hold(nodes, storage, nodes.stage(nodes.source("data/set")))
    assert storage.sent == sent
