"""A push makes every node hold the snapshot, moves only what is new, and survives nodes that do not."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from launch.code.node_code import remote_id
from launch.code.push import _Stream, push
from launch.code.snapshot import plan_snapshot
from launch.errors import InputError, ManyNodesError, RetryError
from launch.host import Completed
from launch.remote.store.store import KEEP
from tests.launch.cluster import Cluster, LocalHost, Node, as_a_job, contents


def debris(node: Node) -> list[str]:
    folder = node.home / ".ranklift" / "snapshots"
    return [path.name for path in folder.iterdir() if path.name.startswith(".new")] if folder.exists() else []


def test_every_node_gets_the_same_tree(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    report = push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert report.results == dict.fromkeys(node.name for node in cluster.nodes)
    for node in cluster.nodes:
        assert contents(node.snapshot(snapshot.id)) == contents(tree)
        assert debris(node) == []
        assert (node.home / ".ranklift" / "remote" / remote_id() / "store" / "spread.py").is_file()


def test_the_head_does_not_serve_everyone_itself(tmp_path: Path, tree: Path) -> None:
    cluster = Cluster(tmp_path / "wide", 12)
    push(plan_snapshot(tree), cluster.head, cluster.nodes, ssh=cluster.ssh)
    parents = [(node.home / "calls").read_text().split() for node in cluster.nodes[1:]]
    assert all(len(calls) == 1 for calls in parents)
    assert max(parents.count(calls) for calls in parents) == 4


def test_unchanged_code_costs_one_question(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    cluster.head.calls = 0
    report = push(plan_snapshot(tree), cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert (cluster.head.calls, report.bytes_sent) == (1, 0)
    assert len((cluster.nodes[3].home / "calls").read_text().split()) == 1


def test_newer_node_code_reaches_every_node_though_the_snapshot_is_unchanged(
    cluster: Cluster, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = plan_snapshot(tree)
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    monkeypatch.setattr("launch.code.push.remote_id", lambda: "0123456789ab")
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    for node in cluster.nodes:
        assert (node.home / ".ranklift" / "remote" / "0123456789ab" / "node" / "runner.py").is_file(), (
            node.name
        )


def test_only_what_changed_is_sent(cluster: Cluster, tree: Path) -> None:
    push(plan_snapshot(tree), cluster.head, cluster.nodes, ssh=cluster.ssh)
    (tree / "train.py").write_text("print('changed')\n")
    (tree / "a folder").rename(tree / "moved")
    snapshot = plan_snapshot(tree)
    report = push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert report.bytes_sent < 100
    for node in cluster.nodes:
        assert contents(node.snapshot(snapshot.id)) == contents(tree)


def test_progress_is_shown_up_to_the_bytes_that_the_head_lacked(cluster: Cluster, tree: Path) -> None:
    (tree / "big").write_bytes(os.urandom(3_000_000))
    shown: list[tuple[int, int]] = []

    def show(done: int, of: int) -> None:
        shown.append((done, of))

    snapshot = plan_snapshot(tree)
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh, show=show)
    total = sum(blob.size for blob in snapshot.blobs())
    assert {of for _, of in shown} == {total}
    assert [done for done, _ in shown] == sorted({done for done, _ in shown})
    assert shown[-1][0] == total
    assert len(shown) >= 3


def test_verification_mends_what_a_job_or_a_new_disk_undid(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert as_a_job(cluster.nodes[0], snapshot.id, "chmod u+w train.py && echo spoilt > train.py") == 0
    (cluster.nodes[2].snapshot(snapshot.id) / "run.sh").chmod(0o644)
    (cluster.nodes[4].home / ".ranklift").rename(cluster.nodes[4].home / "old disk")
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh, verify=True)
    for node in cluster.nodes:
        assert contents(node.snapshot(snapshot.id)) == contents(tree)
        assert debris(node) == []


def test_a_new_node_is_served_from_the_head(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    push(snapshot, cluster.head, cluster.nodes[:5], ssh=cluster.ssh)
    report = push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert report.bytes_sent == 0
    assert contents(cluster.nodes[6].snapshot(snapshot.id)) == contents(tree)


def test_a_dead_node_is_named_and_its_children_are_served(tmp_path: Path, tree: Path) -> None:
    cluster = Cluster(tmp_path / "wide", 14)
    dead = cluster.nodes[1]  # an inner node of the tree
    (dead.home / "dead").touch()
    snapshot = plan_snapshot(tree)
    with pytest.raises(ManyNodesError) as caught:
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert list(caught.value.errors) == [dead.name]
    assert "No route to host" in str(caught.value)
    for node in cluster.nodes:
        if node is not dead:
            assert contents(node.snapshot(snapshot.id)) == contents(tree)
    (dead.home / "dead").unlink()
    assert push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh).bytes_sent == 0
    assert contents(dead.snapshot(snapshot.id)) == contents(tree)


def test_nodes_below_a_connection_that_breaks_are_served_again(tmp_path: Path, tree: Path) -> None:
    cluster = Cluster(tmp_path / "wide", 14)
    broken = cluster.nodes[1]
    (broken.home / "cut").touch()
    (tree / "big").write_bytes(os.urandom(40_000_000))
    snapshot = plan_snapshot(tree)
    with pytest.raises(ManyNodesError) as caught:
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert list(caught.value.errors) == [broken.name]
    for node in cluster.nodes:
        if node is not broken:
            assert contents(node.snapshot(snapshot.id)) == contents(tree)
    assert "Connection closed" in str(caught.value)
    assert not broken.snapshot(snapshot.id).exists()


def test_a_full_disk_is_named_and_its_node_still_passes_everything_on(tmp_path: Path, tree: Path) -> None:
    cluster = Cluster(tmp_path / "wide", 14)
    full = cluster.nodes[1]
    (full.home / "full").touch()
    snapshot = plan_snapshot(tree)
    with pytest.raises(ManyNodesError, match=r"node000001: .*File too large"):
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert debris(full) == []
    assert contents(cluster.nodes[2].snapshot(snapshot.id)) == contents(tree)
    assert len((cluster.nodes[2].home / "calls").read_text().split()) == 1


def test_a_silent_node_is_given_up_in_time(cluster: Cluster, tree: Path) -> None:
    (cluster.nodes[1].home / "silent").touch()
    snapshot = plan_snapshot(tree)
    with pytest.raises(ManyNodesError, match="node000001: sent nothing for 1 s"):
        push(snapshot, cluster.head, cluster.nodes[:2], ssh=cluster.ssh, silence=1)
    assert contents(cluster.nodes[0].snapshot(snapshot.id)) == contents(tree)


def test_an_interrupted_push_is_repeated(cluster: Cluster, tree: Path) -> None:
    class Interrupted(LocalHost):
        def run(
            self, argv: Sequence[str], *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
        ) -> Completed:
            sent = stdin if stdin is None or isinstance(stdin, bytes) else stdin.read()[:-100_000]
            return super().run(argv, stdin=sent, timeout=timeout)

    snapshot = plan_snapshot(tree)
    with pytest.raises(RetryError, match="push again"):
        push(snapshot, Interrupted(cluster.nodes[0]), cluster.nodes, ssh=cluster.ssh)
    assert not cluster.nodes[0].snapshot(snapshot.id).exists()
    assert debris(cluster.nodes[0]) == []
    push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    assert contents(cluster.nodes[6].snapshot(snapshot.id)) == contents(tree)


def test_a_receiver_that_was_killed_is_named_with_the_likely_reason(cluster: Cluster, tree: Path) -> None:
    class Killed(LocalHost):
        def run(self, *_: object, **__: object) -> Completed:
            return Completed(137, b"", b"sh: line 1: 7 Killed python3\n")

    with pytest.raises(
        RetryError,
        match="node000000: push: its process was killed by signal 9; if the node ran out of memory",
    ):
        push(plan_snapshot(tree), Killed(cluster.nodes[0]), cluster.nodes, ssh=cluster.ssh)
    (cluster.nodes[1].home / "killed").touch()
    with pytest.raises(ManyNodesError, match="node000001: its process was killed by signal 9; if the node"):
        push(plan_snapshot(tree), cluster.head, cluster.nodes[:2], ssh=cluster.ssh)


def test_two_pushes_at_once_both_succeed(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    errors: list[BaseException] = []

    def one() -> None:
        try:
            push(snapshot, LocalHost(cluster.nodes[0]), cluster.nodes, ssh=cluster.ssh)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for node in cluster.nodes:
        assert contents(node.snapshot(snapshot.id)) == contents(tree)
        assert debris(node) == []


@pytest.mark.parametrize(("replaced", "target"), [("run.sh", "secret"), ("a folder", "")])
def test_a_link_that_took_a_files_place_since_the_plan_is_not_followed(
    cluster: Cluster, tree: Path, replaced: str, target: str
) -> None:
    (tree.parent / "secret").write_text("secret of the operator")
    (tree.parent / "größe\nzwei").write_bytes(os.urandom(300_000))
    snapshot = plan_snapshot(tree)
    (tree / replaced).rename(tree / "moved")
    (tree / replaced).symlink_to(tree.parent / target)
    with pytest.raises(RetryError, match="changed while it was being pushed; push again"):
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)


def test_a_file_that_changes_meanwhile_is_named(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    (tree / "run.sh").write_text("#!/bin/zz\n")
    with pytest.raises(RetryError, match=r"run\.sh changed while it was being pushed"):
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)
    (tree / "run.sh").write_text("")
    with pytest.raises(RetryError, match=r"run\.sh changed while it was being pushed"):
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)


def test_a_file_that_is_gone_meanwhile_is_named(cluster: Cluster, tree: Path) -> None:
    snapshot = plan_snapshot(tree)
    for blob in snapshot.blobs():
        (tree / blob.path).unlink()
    with pytest.raises(RetryError, match=r"No such file .*; push again"):
        push(snapshot, cluster.head, cluster.nodes, ssh=cluster.ssh)


def test_the_head_must_be_among_the_nodes(cluster: Cluster, tree: Path) -> None:
    with pytest.raises(InputError, match="node000000"):
        push(plan_snapshot(tree), cluster.head, cluster.nodes[1:], ssh=cluster.ssh)


def test_old_snapshots_go_unless_something_uses_them(cluster: Cluster, tree: Path) -> None:
    node = cluster.nodes[0]
    ids = []
    for number in range(9):
        (tree / "train.py").write_text(f"print({number})\n")
        snapshot = plan_snapshot(tree)
        ids.append(snapshot.id)
        push(snapshot, cluster.head, cluster.nodes[:2], ssh=cluster.ssh)
        if number == 1:
            job = node.home / ".ranklift" / "jobs" / "j1"
            job.mkdir(parents=True)
            (job / "job.json").write_text(f'{{"snapshot": "{snapshot.id}"}}')
            (job / "state.json").write_text('{"state": "QUEUED"}')
    kept = {name for name in ids if node.snapshot(name).is_dir()}
    assert kept == {ids[1], *ids[-5:]}
    assert {name for name in ids if cluster.nodes[1].snapshot(name).is_dir()} == kept


def test_what_one_head_needs_no_more_stays_where_another_has_spread_it(cluster: Cluster, tree: Path) -> None:
    # A job that waits is known to its own head alone, and its code has to be there when its turn comes.
    heads = [LocalHost(node) for node in cluster.nodes[:2]]
    code = plan_snapshot(tree)

    def spread(number: int, head: int, nodes: slice) -> None:
        (tree / "train.py").write_text(f"print({number})\n")
        push(plan_snapshot(tree), heads[head], cluster.nodes[nodes], ssh=cluster.ssh)

    def having_it() -> list[int]:
        return [n for n, node in enumerate(cluster.nodes) if node.snapshot(code.id).is_dir()]

    push(code, heads[0], cluster.nodes[:4], ssh=cluster.ssh)
    push(code, heads[1], cluster.nodes[:3], ssh=cluster.ssh)
    for number in range(KEEP):
        spread(number, 0, slice(4))
    assert having_it() == [0, 1, 2]
    (tree / "train.py").write_text("print('hello')\n")
    push(code, heads[0], cluster.nodes[:4], ssh=cluster.ssh)
    assert having_it() == [0, 1, 2, 3]
    for number in range(KEEP):
        spread(number, 0, slice(4))
    for number in range(KEEP):
        spread(number, 1, slice(3))
    assert having_it() == []


def test_what_a_head_spread_before_it_was_made_anew_goes_a_day_later(cluster: Cluster, tree: Path) -> None:
    before, now = plan_snapshot(tree), time.time()
    push(before, cluster.head, cluster.nodes, ssh=cluster.ssh)
    shutil.rmtree(cluster.nodes[0].home / ".ranklift")

    def push_other(text: str) -> None:
        (tree / "train.py").write_text(text)
        push(plan_snapshot(tree), cluster.head, cluster.nodes, ssh=cluster.ssh)

    push_other("print('another')\n")
    others = cluster.nodes[1:]
    assert all(node.snapshot(before.id).is_dir() for node in others)
    for node in others:
        os.utime(node.snapshot(f"{before.id}.of-node000000"), (now - 90_000, now - 90_000))
    push_other("print('a third')\n")
    assert not any(node.snapshot(before.id).exists() for node in others)
    assert [len(list(node.snapshot("").glob("*.of-*"))) for node in others] == [2] * len(others)


@pytest.mark.parametrize(("data", "packed"), [(b"import os\n" * 9999, True), (os.urandom(99_990), False)])
def test_compression_is_used_where_it_pays(data: bytes, packed: bool) -> None:
    stream = _Stream(iter([data]))
    stream.prepend(b"")
    assert stream.packed is packed
    assert (len(stream.read()) < len(data) / 5) is packed
