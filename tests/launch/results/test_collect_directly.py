"""Collects without the job's head, and from nodes that talk nonsense."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launch.errors import GiveUpError
from launch.host import Completed
from launch.results.collect import Others, collect
from tests.launch.collected import HEAD, JOB, NAMES, SECOND, THIRD, Cluster, noise, of
from tests.launch.remote.sample_records import sample_plan

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path).make()


class TestWithoutTheHead:
    def test_every_other_node_is_asked_and_that_is_said(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.write(SECOND, "logs/rank-1.log", b"rank 1\nmore\n")
        cluster.head.gone = True
        report = cluster.collect(others=True)
        assert list(report.errors) == [HEAD]
        assert report.files[SECOND].continued == 1
        assert cluster.said == [
            "the job's head does not answer (node000000: no answer within 15 s): querying "
            "node[000001-000002] directly"
        ]
        assert report.without_head == "node000000: no answer within 15 s"

    def test_also_by_someone_who_never_saw_the_job(self, cluster: Cluster) -> None:
        cluster.head.gone = True
        report = cluster.collect(others=True)
        assert cluster.files() == cluster.expected(SECOND, THIRD)
        assert list(report.results) == [HEAD, SECOND, THIRD]
        assert cluster.hosts[SECOND].asked == ["version", f"files {JOB}", f"send {JOB}"]
        cluster.verified()
        cluster.head.gone = False
        assert cluster.collect(others=True).is_complete
        assert cluster.files() == cluster.expected(*NAMES)

    def test_a_node_that_has_nothing_of_the_job_is_not_counted(self, cluster: Cluster) -> None:
        cluster.head.gone = True
        cluster.at(THIRD, "").rename(cluster.nodes / "elsewhere")
        assert list(cluster.collect(others=True).results) == [HEAD, SECOND]

    def test_one_that_does_not_answer_either_is_named(self, cluster: Cluster) -> None:
        cluster.head.gone = cluster.hosts[THIRD].gone = True
        report = cluster.collect(others=True)
        assert list(report.errors) == [HEAD, THIRD]
        assert cluster.files() == cluster.expected(SECOND)

    def test_one_that_is_not_in_the_stack_any_more_is_named(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.head.gone = True
        others = Others([HEAD, SECOND], cluster.visit, cluster.said.append)
        report = collect(JOB, cluster.head, cluster.into, remote="hash", others=others)
        assert {name: str(error) for name, error in report.errors.items()} == {
            HEAD: "node000000: no answer within 15 s",
            THIRD: "node000002: was removed from the stack, with its files of the job",
        }

    def test_nor_are_the_heads_words_about_such_a_node_repeated(self, cluster: Cluster) -> None:
        cluster.unreachable_from_the_head(THIRD)
        others = Others([HEAD, SECOND], cluster.visit, cluster.said.append)
        report = collect(JOB, cluster.head, cluster.into, remote="hash", others=others)
        assert {name: str(error) for name, error in report.errors.items()} == {
            THIRD: "node000002: was removed from the stack, with its files of the job; "
            "`fab logs` has what its ranks printed, as far as the head kept it",
        }
        assert cluster.said == []

    def test_a_head_that_dies_in_the_middle(self, cluster: Cluster) -> None:
        cluster.write(SECOND, "outputs/big", noise(8_000_000))
        cluster.head.breaks_after = 3_000_000
        report = cluster.collect(others=True)
        assert list(report.errors) == [HEAD]
        assert report.files[SECOND].bytes < 8_100_000  # what had come counted
        assert {**cluster.files(), **cluster.expected(SECOND, THIRD)} == cluster.files()
        assert report.files[SECOND].written == 4

    def test_a_head_without_a_record_of_the_job_serves_its_own_files(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.at(HEAD, "job.json").write_text("{")
        cluster.write(HEAD, "outputs/new", b"1")
        report = cluster.collect(others=True)
        assert report.errors == {}
        assert (cluster.folder / "outputs" / HEAD / "new").read_bytes() == b"1"

    def test_a_node_that_only_the_head_does_not_reach(self, cluster: Cluster) -> None:
        cluster.unreachable_from_the_head(SECOND)
        report = cluster.collect(others=True)
        assert report.is_complete
        assert cluster.files() == cluster.expected(*NAMES)
        assert cluster.said == [
            "the head node000000 cannot send all files of node000001: querying directly",
        ]
        assert (cluster.hosts[SECOND].asked, cluster.hosts[THIRD].asked) == (
            ["version", f"files {JOB}", f"send {JOB}"],
            [],
        )

    def test_a_node_that_never_had_code_had_no_part_in_the_job(self, cluster: Cluster) -> None:
        cluster.head.gone = True
        shutil.rmtree(cluster.nodes / THIRD / ".ranklift")
        report = cluster.collect(others=True)
        assert list(report.results) == [HEAD, SECOND]

    def test_a_node_of_the_job_that_was_made_anew_is_named(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.head.gone = True
        shutil.rmtree(cluster.nodes / THIRD / ".ranklift")
        report = cluster.collect(others=True)
        assert str(report.errors[THIRD]) == "node000002 has no node code of the project"

    def test_nobody_knows_where_the_head_is(self, cluster: Cluster) -> None:
        report = collect(
            JOB,
            None,
            cluster.into,
            remote=None,
            others=Others(NAMES, cluster.visit, cluster.said.append),
        )
        assert report.is_complete
        assert cluster.files() == cluster.expected(*NAMES)


class TestWhatMakesNoSense:
    def answering(self, cluster: Cluster, sent: bytes) -> None:
        def stream(argv: Sequence[str], take: Callable[[bytes], object], **more: object) -> Completed:
            take(sent)
            return Completed(0, b"", b"")

        cluster.hosts[SECOND].stream = stream  # type: ignore[assignment]
        cluster.unreachable_from_the_head(SECOND)

    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"Welcome to this node!\n",
            b"e\0\0\0\1{",
            b"l\0\0\0\4true" + b"d\0\0\0\1x",
            b"l\0\0\0\4trues\0\0\0\2{}",
            b'e\0\0\0\x0c[["f", "x"]]',
            b'e\0\0\0\x11[["d","\\ud800x"]]',
        ],
    )
    def test_a_node_that_talks_nonsense_is_that_nodes_failure(self, cluster: Cluster, sent: bytes) -> None:
        self.answering(cluster, sent)
        report = cluster.collect(others=True)
        assert list(report.errors) == [SECOND]
        assert isinstance(report.errors[SECOND], GiveUpError)
        assert cluster.files() == cluster.expected(HEAD, THIRD)

    def test_a_node_that_tries_to_leave_the_folder_is_refused(self, cluster: Cluster) -> None:
        paths = ["outputs/../../../../x", "/etc/x", "state.json"]
        listing = json.dumps([["f", path, 1, -1] for path in paths]).encode()
        self.answering(cluster, b"e" + len(listing).to_bytes(4, "big") + listing + b"l\0\0\0\4true")
        report = cluster.collect(others=True)
        assert list(of(report, SECOND).left_out) == paths
        assert cluster.files() == cluster.expected(HEAD, THIRD)

    @pytest.mark.parametrize(
        "entry",
        [
            ["l", "outputs/x", "a\0b"],
            ["l", "outputs/x", ""],
            ["f", "outputs/" + "a/" * 1200 + "x", 3, 5],
            ["f", "outputs/" + "x" * 5000, 3, 5],
            ["f", "outputs/x", -(10**15), 5],
        ],
        ids=lambda entry: ascii(entry)[:40],
    )
    def test_an_entry_that_no_file_can_have_is_left_out_and_the_rest_comes(
        self, cluster: Cluster, entry: list[object]
    ) -> None:
        listing = json.dumps([entry, ["d", "outputs/good"]]).encode()
        self.answering(cluster, b"e" + len(listing).to_bytes(4, "big") + listing + b"l\0\0\0\4true")
        report = cluster.collect(others=True)
        assert [*of(report, SECOND).left_out.values()] == [
            "its path, target or size is none that a file can have here"
        ]
        assert (cluster.folder / f"outputs/{SECOND}/good").is_dir()
        assert cluster.files() == cluster.expected(HEAD, THIRD)

    def test_a_head_that_names_impossible_nodes(self, cluster: Cluster) -> None:
        plan = sample_plan(JOB, nodes=[{"name": "../x"}])
        cluster.write(HEAD, "job.json", json.dumps(plan).encode())
        with pytest.raises(GiveUpError, match="not a node's name"):
            cluster.collect()
