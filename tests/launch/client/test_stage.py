"""The call that has nodes fetch data: what the head gets, and what its answers become."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import IO, Any

import pytest

from infra.inventory import Node
from launch.client.stage import Progress, stage_data
from launch.data.data_spec import BlobAddress, DataSource
from launch.data.data_stores import Storage, stage_request
from launch.errors import GiveUpError, ManyNodesError, NotPushed
from launch.host import Completed
from launch.remote.store.tree_node import MARK

SOURCE = DataSource(
    "iris", "folder", BlobAddress("https://acme.blob.core.windows.net", "data", "iris", "sig=SECRET")
)
REQUEST = stage_request([SOURCE], Storage(None))
NODES = [Node(f"node{n:06}", n, f"10.0.0.{n}", "127.0.0.1", 1, 1, "running") for n in range(2)]
HELD = {"name": "iris", "id": "5", "path": "~/.ranklift/data/5", "bytes": 3, "files": 2, "etag": ""}
STAGED = {
    **{"t": "staged", "data": [HELD], "seconds": 1.5, "from_storage": 3},
    "nodes": {"node000000": None, "node000001": None},
}


class Head:
    """A head that answers with these lines, and keeps what it was sent."""

    name = "node000000"

    def __init__(self, *answers: dict[str, Any], status: int = 0, stderr: bytes = b"") -> None:
        self._answers, self._status, self._stderr = answers, status, stderr
        self.argv: Sequence[str] = ()
        self.sent = b""

    def run(self, argv: Sequence[str], /, **_options: Any) -> Completed:
        raise AssertionError(argv)

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: IO[bytes],
        **_options: Any,
    ) -> Completed:
        self.argv, self.sent = argv, stdin.read()
        data = b"".join(MARK + json.dumps(one).encode() + b"\n" for one in self._answers)
        for at in range(0, len(data), 7):
            on_stdout(data[at : at + 7])
        return Completed(self._status, b"", self._stderr)


def stage(head: Head, shown: list[Progress] | None = None) -> Any:
    return stage_data(REQUEST, head, NODES, "abc", (shown if shown is not None else []).append)  # type: ignore[arg-type]


def test_the_secret_travels_on_stdin_alone() -> None:
    head = Head(STAGED)
    staged = stage(head)
    assert "SECRET" not in " ".join(head.argv)
    assert json.loads(head.sent[10:])["sas"] == {"iris": "sig=SECRET"}
    assert int(head.sent[:10]) == len(head.sent) - 10
    assert "SECRET" not in json.dumps(staged.data)


def test_what_is_staged_is_recorded_with_its_address_and_duration() -> None:
    (record,) = stage(Head(STAGED)).data
    assert record == {
        **{"name": "iris", "id": "5", "path": "~/.ranklift/data/5", "bytes": 3, "files": 2},
        "url": "https://acme.blob.core.windows.net/data/iris",
        "seconds": 1.5,
    }


def test_what_the_nodes_held_took_no_time() -> None:
    assert stage(Head({**STAGED, "from_storage": 0})).data[0]["seconds"] == 0


def test_progress_is_passed_on() -> None:
    shown: list[Progress] = []
    stage(
        Head(
            {"t": "progress", "text": "", "bytes": 1, "total": 6, "held": {"node000000": 1}},
            {"t": "beat"},
            STAGED,
        ),
        shown,
    )
    assert shown == [Progress("", 1, 6, {"node000000": 1})]


def test_a_refusal_of_storage_is_quoted() -> None:
    head = Head({"t": "failed", "reason": "data iris: AuthorizationFailure", "lines": ["the firewall"]})
    with pytest.raises(GiveUpError, match="node000000: data iris: AuthorizationFailure\n  the firewall"):
        stage(head)


def test_nodes_that_lack_data_are_named() -> None:
    with pytest.raises(ManyNodesError, match="node000001: No space left on device"):
        stage(Head({**STAGED, "nodes": {"node000000": None, "node000001": "No space left on device"}}))


def test_a_head_without_the_node_code_asks_for_a_push() -> None:
    with pytest.raises(NotPushed):
        stage(Head(status=2, stderr=b"No such file"))


def test_a_head_that_stops_is_named() -> None:
    with pytest.raises(GiveUpError, match="node000000: it stopped before the data was there"):
        stage(Head())
