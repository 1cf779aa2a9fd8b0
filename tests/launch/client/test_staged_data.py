"""Staged data as the nodes report them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO

import pytest

from launch.client.staged_data import merge_listings, query_data, removable, remove_data_from
from launch.errors import GiveUpError
from launch.host import Completed
from launch.remote.cli import NO_COMMAND, REFUSED
from launch.remote.data.stage_request import DataListing, StoredData


def stored(
    name: str,
    *,
    jobs: tuple[str, ...] = (),
    is_whole: bool = True,
    used: float = 0.0,
    shared: bool = False,
) -> StoredData:
    return {
        "id": name,
        "url": f"https://acme/{name}" if is_whole else "",
        "bytes": 8 if is_whole else 3,
        "files": 2 if is_whole else 0,
        "used": used,
        "is_whole": is_whole,
        "jobs": list(jobs),
        "shared": shared,
    }


def listing(*data: StoredData) -> DataListing:
    return {"data": list(data)}


class OldNode:
    """A node whose code is from before there was a shared folder: arguments meant something else to it."""

    name = "node000000"
    commands = ("data", "remove-data")

    def run(
        self, argv: Sequence[str], /, *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        assert argv[4] not in self.commands
        return Completed(REFUSED, b"", f"{NO_COMMAND}: {argv[4]!r}\n".encode())

    def stream(
        self,
        _: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        raise AssertionError("nothing is streamed")


@pytest.mark.parametrize(
    "query",
    [
        lambda node: query_data(node, "abc"),
        lambda node: query_data(node, "abc", "/mnt/nfs"),
        # It would have taken the folder's name, empty for the node's own disk, for one of data's ids.
        lambda node: remove_data_from(node, "abc", ["0123456789abcdef"], ""),
    ],
)
def test_older_node_code_lists_and_removes_nothing(query: Callable[[OldNode], object]) -> None:
    with pytest.raises(GiveUpError, match="its node code is older than this command: `fab push` renews it"):
        query(OldNode())


def test_the_nodes_of_data_are_those_that_hold_all() -> None:
    (one,) = merge_listings({"n0": listing(stored("a")), "n1": listing(stored("a", is_whole=False))})
    assert (one.nodes, one.partial) == (("n0",), ("n1",))
    assert (one.url, one.bytes, one.files) == ("https://acme/a", 8, 2)


def test_the_copy_that_nodes_share_is_listed_beside_their_own() -> None:
    held = merge_listings(
        {"n0": listing(stored("a"), stored("a", shared=True)), "n1": listing(stored("a", shared=True))}
    )
    assert [(one.id, one.shared, one.nodes) for one in held] == [
        ("a", False, ("n0",)),
        ("a", True, ("n0", "n1")),
    ]


def test_the_last_used_comes_first() -> None:
    held = merge_listings({"n0": listing(stored("a", used=1.0)), "n1": listing(stored("b", used=2.0))})
    assert [one.id for one in held] == ["b", "a"]


def test_data_of_any_heads_jobs_are_not_removable() -> None:
    held = merge_listings(
        {"n0": listing(stored("a"), stored("b")), "n1": listing(stored("a", jobs=("j-1",)))}
    )
    assert [one.id for one in removable(held)] == ["b"]
