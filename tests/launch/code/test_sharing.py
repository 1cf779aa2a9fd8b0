"""A push copies on nodes only what changed; no job changes a pushed file of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.code.push import push
from launch.code.snapshot import Snapshot, plan_snapshot
from launch.remote.node.prepare import Unfit
from launch.remote.node.snapshot_check import check
from launch.remote.store.store import KEEP, Store
from tests.launch.cluster import Cluster, as_a_job, contents


def push_again(cluster: Cluster, tree: Path) -> tuple[Snapshot, Snapshot]:
    """The code on all nodes before and after a file was added to it."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    (tree / "more.py").write_text("pass\n")
    second = plan_snapshot(tree)
    push(second, cluster.head, cluster.nodes, ssh=cluster.ssh)
    return first, second


def test_snapshots_share_what_did_not_change(cluster: Cluster, tree: Path) -> None:
    first, second = push_again(cluster, tree)
    for node in cluster.nodes:
        for name in ("train.py", "run.sh", "a folder/größe\nzwei"):
            assert (node.snapshot(first.id) / name).samefile(node.snapshot(second.id) / name)
        assert contents(node.snapshot(second.id)) == contents(tree)


def test_a_job_cannot_write_to_pushed_files(cluster: Cluster, tree: Path) -> None:
    first, second = push_again(cluster, tree)
    for line in ("echo spoilt >> train.py", "echo spoilt > run.sh", ": > empty"):
        assert as_a_job(cluster.nodes[2], first.id, line) != 0
    assert as_a_job(cluster.nodes[2], first.id, "rm train.py && echo mine > train.py") == 0
    assert contents(cluster.nodes[2].snapshot(second.id)) == contents(tree)


def check_not_shared(cluster: Cluster, tree: Path, spoil: str) -> None:
    """What a job on every node changed by ``spoil`` is right in the next snapshot."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert as_a_job(node, first.id, spoil) == 0
    _, second = push_again(cluster, tree)
    for node in cluster.nodes:
        assert contents(node.snapshot(second.id)) == contents(tree)


def test_what_a_job_changed_all_the_same_is_not_shared(cluster: Cluster, tree: Path) -> None:
    spoil = "chmod u+w train.py && echo \"print('jello')\" > train.py && chmod u-w train.py"
    check_not_shared(cluster, tree, spoil)


def test_what_looks_unchanged_is_read_before_it_is_shared(cluster: Cluster, tree: Path) -> None:
    spoil = "touch -r train.py t && chmod u+w train.py && echo \"print('jello')\" > train.py"
    check_not_shared(cluster, tree, f"{spoil} && chmod u-w train.py && touch -r t train.py && rm t")


def test_a_link_or_a_pipe_in_a_files_place_is_not_shared(cluster: Cluster, tree: Path) -> None:
    check_not_shared(cluster, tree, "mv train.py moved && ln -s moved train.py && rm run.sh && mkfifo run.sh")


def test_verification_finds_what_was_added(cluster: Cluster, tree: Path) -> None:
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert as_a_job(node, first.id, "touch sitecustomize.py 'a folder/x'") == 0
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh, verify=True)
    for node in cluster.nodes:
        assert contents(node.snapshot(first.id)) == contents(tree)


def test_a_snapshot_that_a_job_found_changed_is_made_again(cluster: Cluster, tree: Path) -> None:
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in (cluster.nodes[0], cluster.nodes[3]):
        assert as_a_job(node, first.id, "chmod u+w train.py && echo no > train.py") == 0
        with pytest.raises(Unfit):
            check(str(node.snapshot(first.id)), lambda _: None)
    Store(str(cluster.nodes[0].home / ".ranklift")).doubt([first.id])
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert contents(node.snapshot(first.id)) == contents(tree)


def test_files_that_a_job_made_writable_are_read_and_copied(cluster: Cluster, tree: Path) -> None:
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert as_a_job(node, first.id, "chmod -R u+w .") == 0
    (tree / "more.py").write_text("pass\n")
    second = plan_snapshot(tree)
    report = push(second, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert report.bytes_sent < 100
    for node in cluster.nodes:
        files = [node.snapshot(one.id) / "train.py" for one in (first, second)]
        assert not files[0].samefile(files[1])
        assert contents(node.snapshot(second.id)) == contents(tree)


def test_a_snapshot_that_goes_takes_its_records_and_nothing_of_others(cluster: Cluster, tree: Path) -> None:
    snapshots = []
    for number in range(KEEP + 2):
        (tree / "train.py").write_text(f"print({number})\n")
        snapshots.append(plan_snapshot(tree))
        push(snapshots[-1], cluster.head, cluster.nodes[:1], ssh=cluster.ssh)
    node = cluster.nodes[0]
    assert list(node.snapshot("").glob(f"{snapshots[0].id}*")) == []
    assert contents(node.snapshot(snapshots[-1].id)) == contents(tree)
