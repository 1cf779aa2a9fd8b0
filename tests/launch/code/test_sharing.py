"""A push copies on nodes only what changed; no job changes a pushed file of another one."""

from __future__ import annotations

from pathlib import Path

from launch.code.push import push
from launch.code.snapshot import Snapshot, plan_snapshot
from launch.remote.store.store import KEEP
from tests.launch.cluster import Cluster, as_a_job, contents


def push_again(cluster: Cluster, tree: Path, *, verify: bool = False) -> tuple[Snapshot, Snapshot]:
    """The code on all nodes before and after a file was added to it."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    (tree / "more.py").write_text("pass\n")
    second = plan_snapshot(tree)
    push(second, cluster.head, cluster.nodes, ssh=cluster.ssh, verify=verify)
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


def check_not_shared(cluster: Cluster, tree: Path, spoil: str, *, verify: bool = False) -> None:
    """What a job on every node changed by ``spoil`` is right in the next snapshot."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert as_a_job(node, first.id, spoil) == 0
    _, second = push_again(cluster, tree, verify=verify)
    for node in cluster.nodes:
        assert contents(node.snapshot(second.id)) == contents(tree)


def test_what_a_job_changed_all_the_same_is_not_shared(cluster: Cluster, tree: Path) -> None:
    spoil = "chmod u+w train.py && echo \"print('jello')\" > train.py && chmod u-w train.py"
    check_not_shared(cluster, tree, spoil)


def test_unchanged_files_are_not_read_again_on_nodes(cluster: Cluster, tree: Path) -> None:
    """Nobody can read them: whoever tried would report the files as missing."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert as_a_job(node, first.id, "chmod 0 'a folder'/*") == 0
    (tree / "more.py").write_text("pass\n")
    report = push(plan_snapshot(tree), cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert report.bytes_sent < 100


def test_verification_reads_what_seems_unchanged(cluster: Cluster, tree: Path) -> None:
    spoil = "touch -r train.py t && chmod u+w train.py && echo \"print('jello')\" > train.py"
    check_not_shared(cluster, tree, f"{spoil} && chmod u-w train.py && touch -r t train.py", verify=True)


def test_snapshots_of_an_earlier_version_are_read_and_copied(cluster: Cluster, tree: Path) -> None:
    """Their files can be written to, and nothing is recorded of them."""
    first = plan_snapshot(tree)
    push(first, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        node.snapshot(f"{first.id}.stamps").unlink()
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
