"""Answers to a collect that would cost the operator's machine more than it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launch.errors import GiveUpError, InputError
from launch.remote.base import frames, job_dir
from launch.remote.collect import relay, send
from launch.report.collected import collected_facts
from launch.results import collect as collecting
from launch.results import download, folder
from launch.results.collect import collect
from launch.results.download import NodeFetch, Progress
from launch.results.folder import Results
from tests.launch.collected import HEAD, JOB, SECOND, Cluster
from tests.launch.remote.sample_records import sample_plan
from tests.launch.results.test_collect import from_a_node

TOO_LARGE = (64 << 20) + 1
NO_DISK_HAS = 2**62


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    made = Results(tmp_path, "t-1")
    yield made
    made.close(complete=True)


def listed(fetch: NodeFetch, *entries: Sequence[object]) -> None:
    fetch.take(frames.frame(send.ENTRIES, json.dumps(entries).encode()))


def asked(fetch: NodeFetch, *, is_head: bool = False) -> list[str]:
    """The paths that are requested once the list is whole."""
    fetch.take(frames.frame(send.LISTED, b"true"))
    return [json.loads(line)[0] for line in fetch.requests(is_head=is_head).splitlines()]


def sparse(path: Path, size: int = TOO_LARGE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


class TestTheListOfNodes:
    def run(self, cluster: Cluster, *lists: list[str]) -> None:
        def stream(_argv: object, take: object, **_more: object) -> object:
            for names in lists:
                take(frames.frame(relay.NODES, json.dumps(names).encode()))  # type: ignore[operator]
            raise AssertionError("nothing refused the list")

        cluster.head.stream = stream  # type: ignore[assignment]
        cluster.collect()

    @pytest.mark.parametrize(
        "lists",
        [
            [[f"node{number:06}" for number in range(200_000)]],
            [[f"node{number:06}" for number in range(1001)]],
            [["n" * 200] * 10_000],
            [[HEAD, SECOND, HEAD]],
            [[HEAD, SECOND], [SECOND, HEAD]],
        ],
        ids=["many", "one too many", "long", "twice", "another"],
    )
    def test_that_no_job_can_have_is_refused(self, tmp_path: Path, lists: list[list[str]]) -> None:
        with pytest.raises(GiveUpError, match=r"^node000000: its answer is malformed \(.*list of nodes"):
            self.run(Cluster(tmp_path).make(), *lists)


class TestLists:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(download, "_ENTRIES", 10)
        monkeypatch.setattr(download, "_LISTING", 10_000)

    def test_have_an_end_in_entries_over_all_nodes(self, results: Results) -> None:
        progress = Progress(lambda _: None)
        first, second, third = (NodeFetch(f"n{number}", results, progress, {}) for number in range(3))
        listed(first, *[["d", f"logs/{number}"] for number in range(6)])
        with pytest.raises(frames.ProtocolError, match="more than 10 files and folders"):
            listed(second, *[["d", f"logs/{number}"] for number in range(6)])
        listed(third, ["d", "logs/x"])  # what was refused takes no room
        first.again()  # nor does what another connection lists anew
        listed(first, *[["d", f"logs/{number}"] for number in range(9)])

    @pytest.mark.parametrize("kind", ["e", "w"])
    def test_have_an_end_in_bytes_over_all_nodes(self, results: Results, kind: str) -> None:
        progress = Progress(lambda _: None)
        long = "logs/" + "x" * 3000
        left = {"files": 1, "bytes": 1, "largest": [[long, 1]], "whole": True}
        payload = json.dumps([["d", long]] if kind == "e" else left).encode()
        with pytest.raises(frames.ProtocolError, match="MiB of names: pack small files into archives"):
            for number in range(4):
                NodeFetch(f"n{number}", results, progress, {}).take(frames.frame(kind.encode(), payload))

    def test_make_no_more_folders_than_are_set(
        self, results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(folder, "_MOST_FOLDERS", 20)
        fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
        listed(fetch, ["d", "logs" + "/a" * 9], ["d", "logs" + "/b" * 50])
        asked(fetch)
        assert len([path for path in (results.folder / "logs").rglob("*") if path.is_dir()]) < 20
        assert list(fetch.result().left_out) == ["logs" + "/b" * 50]


class TestFilesThatTheDiskDoesNotTake:
    def test_are_left_out_by_name_and_the_rest_is_requested(self, results: Results) -> None:
        fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
        listed(fetch, ["f", "logs/huge", NO_DISK_HAS, 1], ["f", "logs/small", 3, 1])
        assert asked(fetch) == ["logs/small"]
        problem = fetch.result().left_out["logs/huge"]
        assert re.fullmatch(rf"has {NO_DISK_HAS} bytes, and {results.folder} has room for [0-9]+", problem)

    def test_are_so_also_where_only_the_files_of_all_nodes_together_are_too_large(
        self, results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Results, "free", lambda _: 100)
        progress = Progress(lambda _: None)
        first, second = (NodeFetch(f"n{number}", results, progress, {}) for number in range(2))
        listed(first, ["f", "outputs/a", 40, 1], ["f", "outputs/b", 70, 1], ["f", "outputs/c", 40, 1])
        assert asked(first) == ["outputs/a", "outputs/c"]
        listed(second, ["f", "outputs/a", 40, 1])
        assert asked(second) == []
        first.again()  # requests that are void take no room
        assert progress.due == 0

    def test_count_without_what_is_here_already(
        self, results: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Results, "free", lambda _: 10)
        (results.folder / "logs").mkdir()
        (results.folder / "logs/a").write_bytes(b"x" * 50)
        fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
        listed(fetch, ["f", "logs/a", 60, 1])
        assert asked(fetch) == ["logs/a"]

    def test_are_refused_too_where_they_have_become_so_large_since(self, tmp_path: Path) -> None:
        with pytest.raises(GiveUpError, match=rf"logs/a has {NO_DISK_HAS} bytes now, more than the disk"):
            from_a_node(tmp_path, "logs/a", b"x", announced=NO_DISK_HAS)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    def test_leave_nothing_due_once_all_has_come(self, results: Results) -> None:
        progress = Progress(lambda _: None)
        fetch = NodeFetch(HEAD, results, progress, {})
        listed(fetch, ["f", "logs/a", 3, 1], ["f", "logs/b", 3, 1], ["f", "logs/c", 9, 1])
        asked(fetch)
        assert progress.due == 15
        for frame in (
            *((send.START, {"matched": [], "size": 5, "mtime_ns": 1}), (send.DATA, b"12345")),
            *((send.END, {"sha256": ""}), (send.END, {"gone": True})),
            *((send.START, {"matched": [], "size": 9, "mtime_ns": 1}), (send.END, {"error": "unreadable"})),
        ):
            kind, answer = frame
            fetch.take(
                frames.frame(kind, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
            )
        assert progress.due == 0


class TestPlansThatNoJobHas:
    PLAN = "has 67108865 bytes, and a plan has at most 64 MiB"

    def test_are_not_requested(self, results: Results) -> None:
        fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
        listed(fetch, ["f", "job.json", TOO_LARGE, 1])
        assert asked(fetch, is_head=True) == []
        assert fetch.result().left_out == {"job.json": self.PLAN}

    def test_are_not_read_where_they_came_larger_than_they_were_listed(self, tmp_path: Path) -> None:
        found = from_a_node(tmp_path, "job.json", b" " * TOO_LARGE, listed=10)
        assert found.left_out == {"job.json": self.PLAN}
        assert not (tmp_path / "t-1" / "job.json").exists()

    def test_are_not_read_from_an_earlier_collect(self, tmp_path: Path) -> None:
        cluster = Cluster(tmp_path).make()
        sparse(cluster.folder / "job.json")
        cluster.head.gone = True
        others = collecting.Others([HEAD, SECOND], cluster.visit, cluster.said.append)
        report = collect(JOB, cluster.head, cluster.into, remote="hash", others=others)
        assert list(report.files) == [SECOND]

    @pytest.mark.parametrize("name", ["job.json", "state.json"])
    def test_are_not_read_for_a_report(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "job.json").write_text(json.dumps(sample_plan()))
        sparse(tmp_path / name)
        with pytest.raises(InputError, match=rf"is not a record's file.*{name}"):
            collected_facts(tmp_path)

    def test_hold_no_more_values_than_are_read_of_a_node(self) -> None:
        with pytest.raises(job_dir.Torn, match="is damaged"):
            job_dir.parse_plan(b'{"nodes": [' + b"[]," * (4 << 20) + b'0], "version": 1}')
