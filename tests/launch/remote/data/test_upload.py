"""A node's files on their way to storage: whole, verified, and not twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.data.output_files import local_files
from launch.remote.data.upload import blob_name
from launch.remote.node import copy_record, slots
from tests.launch.remote.data.storage_server import Fault, Storage

JOB = "train-1"
BIG = os.urandom(1 << 20) * 20
ROOT = Path(__file__).resolve().parents[4]
NODE = """
import sys, time
from launch.remote.data import upload
upload.identity_token = lambda _resource: ("a token", time.time() + 3600)
time.sleep = lambda _seconds: None
sys.exit(upload.serve(sys.argv[1], sys.stdin.buffer))
"""
"""The node's command, with another identity than the metadata service's and without pauses."""
SLOW = """
def walk(*args, **more):
    pause(2.5)
    yield from real(*args, **more)
os.walk = walk
"""
"""Makes the walk of a job's files slow."""
Node = Callable[..., dict[str, Any]]


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the job's outputs on this node."""
    monkeypatch.setenv("HOME", str(tmp_path))
    found = tmp_path / ".ranklift/jobs" / JOB / "outputs"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def node(outputs: Path, storage: Storage) -> Node:
    """Uploads as the node does; gives the last line of its answer."""
    storage.containers.add("results")

    def run(
        path: str = f"results/{JOB}", name: str = "", renamed: Any = (), more: Any = (), need: int = 0
    ) -> dict[str, Any]:
        places = [*more, {"name": name, "url": f"{storage.url}/{path}"}]
        request = {"node": "node000001", "uploads": places, "slots": [3, 2, 1, 0], "need": need}
        lines = [json.dumps(request), json.dumps(list(renamed)), ""]
        with subprocess.Popen(
            [sys.executable, "-c", NODE, JOB],
            cwd=ROOT,
            env={**os.environ, "SSL_CERT_FILE": str(storage.certificate)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n".join(lines).encode())
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.read().splitlines()[-1])
        assert process.returncode == 0
        return answer

    return run


def test_files_become_blobs_with_their_digests(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "a b").mkdir()
    (outputs / "a b/é.bin").write_bytes(b"small")
    (outputs / "empty").touch()
    (outputs / "model.bin").write_bytes(BIG)
    (outputs.parent / "logs").mkdir()
    (outputs.parent / "logs/rank-0.log").write_text("line\n")
    found = node()
    assert (found["t"], found["errors"], found["files"], found["kept"]) == ("uploaded", [], 4, 0)
    base = f"results/{JOB}"
    assert storage.blobs == {
        f"{base}/outputs/a b/é.bin": b"small",
        f"{base}/outputs/empty": b"",
        f"{base}/outputs/model.bin": BIG,
        f"{base}/logs/rank-0.log": b"line\n",
    }
    assert storage.authorizations <= {"Bearer a token"}


def test_a_node_that_has_lost_what_a_job_left_is_named(node: Node, outputs: Path) -> None:
    outputs.rmdir()
    outputs.parent.rmdir()
    assert node(need=0)["errors"] == []  # a job that begins has no folder yet
    found = node(need=1)
    assert (found["t"], found["reason"]) == (
        "failed",
        f"~/.ranklift/jobs/{JOB} is not there: the node was made new since the job, or somebody removed it",
    )


def test_what_storage_has_is_not_sent_again(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "small").write_bytes(b"small")
    (outputs / "model.bin").write_bytes(BIG)
    node()
    before = storage.received
    assert {key: node()[key] for key in ("files", "kept", "bytes")} == {"files": 0, "kept": 2, "bytes": 0}
    assert storage.received == before
    (outputs / "small").write_bytes(b"other")
    assert (node()["files"], storage.blobs[f"results/{JOB}/outputs/small"]) == (1, b"other")


def test_blocks_that_an_interrupted_upload_left_are_not_sent_again(
    node: Node, outputs: Path, storage: Storage
) -> None:
    (outputs / "model.bin").write_bytes(BIG)
    storage.fault = lambda method, _path, query: (
        Fault(403, "AuthorizationPermissionMismatch") if method == "PUT" and "blocklist" in query else None
    )
    refused = node()
    assert refused["files"] == 0
    assert "answers 403 AuthorizationPermissionMismatch: give the nodes' identity" in refused["errors"][0]
    storage.fault = lambda *_: None
    before = storage.received
    assert node()["files"] == 1
    assert storage.received - before < 1000
    assert storage.blobs[f"results/{JOB}/outputs/model.bin"] == BIG


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_upload_that_is_refused_wants_the_role_that_may_write(
    node: Node, outputs: Path, storage: Storage, method: str
) -> None:
    (outputs / "small").write_bytes(b"small")
    storage.fault = lambda asked, *_: (
        Fault(403, "AuthorizationPermissionMismatch") if asked == method else None
    )
    (reason,) = node()["errors"]
    assert "the role Storage Blob Data Contributor there; it counts after some minutes" in reason


def test_a_busy_storage_is_asked_again(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "small").write_bytes(b"small")
    asked: list[str] = []

    def busy(method: str, _path: str, _query: str) -> Fault | None:
        asked.append(method)
        return Fault(503, "ServerBusy") if len(asked) % 3 else None

    storage.fault = busy
    assert node()["errors"] == []
    assert storage.blobs[f"results/{JOB}/outputs/small"] == b"small"


def test_a_storage_that_stays_away_is_not_asked_for_every_file(
    node: Node, outputs: Path, storage: Storage
) -> None:
    for number in range(100):
        (outputs / str(number)).write_text(str(number))
    asked: list[str] = []

    def away(method: str, path: str, _query: str) -> Fault | None:
        asked.append(path)
        return Fault(503, "ServerBusy") if method == "PUT" else None

    storage.fault = away
    (why,) = node()["errors"]
    assert "the storage answers HTTP 503" in why
    assert len(asked) < 80


def test_a_refused_place_keeps_no_other_output_from_its_own(
    outputs: Path, node: Node, storage: Storage
) -> None:
    (outputs / "log").touch()
    (outputs / "model").write_bytes(b"weights")
    request = [{"name": "log", "url": f"{storage.url}/other/log"}]
    found = node("results/model", "model", more=request)
    assert (found["files"], len(found["errors"])) == (1, 1)
    assert "ContainerNotFound" in found["errors"][0]
    assert storage.blobs == {"results/model": b"weights"}


def test_an_output_goes_to_its_own_place_and_not_with_the_whole(outputs: Path) -> None:
    (outputs / "model").mkdir()
    (outputs / "model/a").touch()
    (outputs / "model.pt").touch()
    whole, model = {"name": "", "url": "https://h/results/x"}, {"name": "model", "url": "https://h/results/m"}
    found, skipped = local_files(str(outputs.parent), [whole, model])  # type: ignore[list-item]
    assert [(one.upload, one.path) for one in found] == [(0, "outputs/model.pt"), (1, "a")]
    assert skipped == []


def test_outputs_in_the_working_folder_are_found_without_what_was_pushed(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "outputs" / "model").mkdir(parents=True)
    (work / "outputs" / "model" / "pushed").touch()
    (work / "outputs" / "pushed").touch()
    copy_record.write(str(work), str(tmp_path / "copied"))
    (tmp_path / "outputs").symlink_to("work/outputs")
    (work / "outputs" / "model" / "mine").touch()
    (work / "outputs" / "mine").touch()
    whole, model = {"name": "", "url": "https://h/results/x"}, {"name": "model", "url": "https://h/results/m"}
    found, skipped = local_files(str(tmp_path), [whole, model])  # type: ignore[list-item]
    assert [(one.upload, one.path) for one in found] == [(0, "outputs/mine"), (1, "mine")]
    assert skipped == []


def test_outputs_that_are_a_link_are_named(outputs: Path) -> None:
    outputs.rmdir()
    outputs.symlink_to("/mnt/nfs")
    whole, model = {"name": "", "url": "https://h/results/x"}, {"name": "model", "url": "https://h/results/m"}
    found, skipped = local_files(str(outputs.parent), [whole, model])  # type: ignore[list-item]
    assert (found, skipped) == ([], ["outputs: is a link, which storage does not have"])


def test_a_folder_that_cannot_be_read_is_named(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outputs / "closed").mkdir()
    (outputs / "good").touch()
    real = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found, skipped = local_files(str(outputs.parent), [{"name": "", "url": "https://h/results/x"}])
    assert [one.path for one in found] == ["outputs/good"]
    assert skipped == ["outputs/closed: Permission denied"]


def test_an_output_that_is_a_file_is_one_blob(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "model").write_bytes(b"weights")
    assert node("results/models/best.pt", "model")["files"] == 1
    assert storage.blobs == {"results/models/best.pt": b"weights"}


def test_another_nodes_file_of_the_same_path_stays_beside_it(
    node: Node, outputs: Path, storage: Storage
) -> None:
    (outputs / "config.json").write_text("{}")
    node(renamed=[[0, "outputs/config.json"]])
    assert set(storage.blobs) == {f"results/{JOB}/node000001/outputs/config.json"}
    assert blob_name("models/m.pt", "", "node000001") == "models/m.pt.node000001"


def test_what_storage_cannot_hold_is_named(node: Node, outputs: Path) -> None:
    (outputs / "good").touch()
    (outputs / "latest").symlink_to("good")
    os.mkfifo(outputs / "pipe")
    (outputs / "folder").symlink_to(".")
    Path(os.fsdecode(os.fsencode(outputs) + b"/\xff")).touch()
    (outputs / "step 1.").mkdir()
    (outputs / "step 1./model").touch()
    (outputs / "a\\b").touch()
    found = node()
    assert found["files"] == 1
    assert sorted(one.partition(": ")[2].split(",")[0] for one in found["errors"]) == [
        "has a backslash",
        "has a backslash",
        "has a name that is not UTF-8",
        "is a link",
        "is a link",
        "is a socket",
    ]


def test_a_file_that_changes_while_it_is_sent_is_named(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "model.bin").write_bytes(BIG)

    def change(method: str, _path: str, _query: str) -> None:
        if method == "PUT":
            os.truncate(outputs / "model.bin", 9 << 20)

    storage.fault = change
    assert node()["errors"] == ["outputs/model.bin: was changed while it was uploaded"]
    assert storage.blobs == {}


def test_many_small_files_go_several_at_a_time(node: Node, outputs: Path, storage: Storage) -> None:
    for number in range(300):
        (outputs / f"{number:04}").write_text(str(number))
    storage.page = 100
    assert node()["files"] == 300
    assert node()["kept"] == 300
    assert len(storage.blobs) == 300


def test_a_container_that_is_not_there_is_named(node: Node, outputs: Path) -> None:
    (outputs / "small").touch()
    (why,) = node("other/x")["errors"]
    assert "ContainerNotFound" in why


def test_it_holds_slots_of_the_node_as_soon_as_they_are_free(
    node: Node, outputs: Path, storage: Storage
) -> None:
    (outputs / "a").touch()
    other = slots.take_slots({"job": "other", "slots": [0, 1, 3], "of": 4, "restarts": 0})
    seen: list[list[tuple[int, str]]] = []

    def look(method: str, _path: str, _query: str) -> None:
        if method == "PUT":
            seen.append(slots.taken_slots(4))
            os.close(other.pop())  # slot 3
            until = time.monotonic() + 20
            while slots.taken_slots(4)[-1] != (3, JOB):
                assert time.monotonic() < until
                time.sleep(0.05)

    storage.fault = look
    assert node(need=2)["errors"] == []
    assert seen[0] == [(0, "other"), (1, "other"), (2, JOB), (3, "other")]
    assert slots.taken_slots(4) == [(0, "other"), (1, "other")]
    for fd in other:
        os.close(fd)


def test_what_storage_made_of_it_is_compared(node: Node, outputs: Path, storage: Storage) -> None:
    (outputs / "small").write_bytes(b"small")
    (outputs / "model.bin").write_bytes(BIG)

    def change(method: str, path: str, _query: str) -> None:
        if method == "GET" and path == "results" and storage.blobs:
            storage.digests[f"results/{JOB}/outputs/model.bin"] = "another"

    storage.fault = change
    why = "storage has other content, or nothing, where this was sent: send it again"
    assert node()["errors"] == [f"{JOB}/outputs/model.bin: {why}"]
    storage.fault = lambda *_: None
    assert (node()["files"], node()["errors"]) == (1, [])


def test_many_problems_are_counted(node: Node, outputs: Path) -> None:
    for number in range(30):
        (outputs / f"{number:02}").symlink_to("x")
    found = node()["errors"]
    assert (len(found), found[-1]) == (21, "and 10 more")


def test_a_node_gives_signs_of_life_while_it_lists_its_files(outputs: Path, storage: Storage) -> None:
    (outputs / "a").touch()
    slow = f"import os, time\nreal, pause = os.walk, time.sleep\n{SLOW}{NODE}"
    request = {"node": "node000001", "uploads": [{"name": "", "url": f"{storage.url}/results/{JOB}"}]}
    done = subprocess.run(
        [sys.executable, "-c", slow, JOB],
        cwd=ROOT,
        env={**os.environ, "SSL_CERT_FILE": str(storage.certificate)},
        input=json.dumps({**request, "slots": [], "need": 0}).encode() + b"\n",
        stdout=subprocess.PIPE,
        check=False,
    )
    kinds = [json.loads(line)["t"] for line in done.stdout.splitlines()]
    assert kinds.index("progress") < kinds.index("files") < kinds.index("listed")
    assert done.returncode == 1  # nobody said which files another node has


def test_a_copy_that_is_younger_than_its_working_folder_is_no_output(tmp_path: Path) -> None:
    """A slow copy takes longer than a tick of the file system's clock."""
    work = tmp_path / "work"
    pushed = work / "outputs" / "pushed"
    pushed.parent.mkdir(parents=True)
    while not pushed.exists() or pushed.stat().st_ctime_ns <= work.stat().st_ctime_ns:
        pushed.touch()
    copy_record.write(str(work), str(tmp_path / "copied"))
    (tmp_path / "outputs").symlink_to("work/outputs")
    found, _ = local_files(str(tmp_path), [{"name": "", "url": "https://h/results/x"}])
    assert found == []
