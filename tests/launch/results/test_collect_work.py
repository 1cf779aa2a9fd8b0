"""What a job left in its working folders: named by every collect, and copied by one that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.client.left_files import LeftFiles
from launch.results.collect import Others, collect
from launch.results.download import CollectReport
from tests.launch.collected import HEAD, JOB, NAMES, SECOND, THIRD, Cluster, noise


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path).make()
    for number, name in enumerate((HEAD, SECOND)):
        made.write(name, "work/checkpoints/last.ckpt", noise(3000, number))
        made.write(name, "work/log.txt", b"log")
    return made


def with_work(cluster: Cluster, match: str = "") -> CollectReport:
    return collect(JOB, cluster.head, cluster.into, remote="hash", work=match)


def in_work(cluster: Cluster) -> dict[str, bytes]:
    top = cluster.folder / "work"
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def there(*names: str) -> dict[str, bytes]:
    texts = {"checkpoints/last.ckpt": noise, "log.txt": lambda *_: b"log"}
    return {
        f"{node}/{name}": texts[name](3000, number)
        for number, node in enumerate((HEAD, SECOND))
        for name in names
    }


@pytest.mark.parametrize("way", ["through the head", "directly"])
def test_a_collect_names_what_it_does_not_copy(cluster: Cluster, way: str) -> None:
    if way == "directly":
        for name in NAMES[1:]:
            cluster.unreachable_from_the_head(name)
    report = cluster.collect(others=way == "directly")
    assert report.is_complete
    largest = (("checkpoints/last.ckpt", 3000), ("log.txt", 3))
    assert report.left == LeftFiles(4, 6006, largest, (HEAD, SECOND))
    assert not (cluster.folder / "work").exists()


def test_it_is_copied_where_that_is_asked_for_and_once(cluster: Cluster) -> None:
    report = with_work(cluster)
    assert (report.is_complete, report.left) == (True, None)
    assert in_work(cluster) == there("checkpoints/last.ckpt", "log.txt")
    cluster.verified()
    assert sum(files.written for files in with_work(cluster).files.values()) == 0


def test_it_is_copied_from_the_nodes_themselves_too(cluster: Cluster) -> None:
    for name in NAMES[1:]:
        cluster.unreachable_from_the_head(name)
    others = Others(NAMES, cluster.visit, cluster.said.append)
    assert collect(JOB, cluster.head, cluster.into, remote="hash", work="", others=others).is_complete
    assert in_work(cluster) == there("checkpoints/last.ckpt", "log.txt")


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("checkpoints", ["checkpoints/last.ckpt"]),
        ("check*/", ["checkpoints/last.ckpt"]),
        ("*.ckpt", ["checkpoints/last.ckpt"]),
        ("log.txt", ["log.txt"]),
        ("*", ["checkpoints/last.ckpt", "log.txt"]),
    ],
)
def test_a_pattern_chooses_files_and_folders(cluster: Cluster, match: str, names: list[str]) -> None:
    report = with_work(cluster, match)
    assert in_work(cluster) == there(*names)
    assert [files.matched for files in report.files.values()] == [len(names), len(names), 0]
    assert (cluster.folder / "outputs" / THIRD / "model.bin").exists()


def test_a_pattern_that_fits_nothing_is_known_to(cluster: Cluster) -> None:
    assert [files.matched for files in with_work(cluster, "*.pth").files.values()] == [0, 0, 0]
    assert in_work(cluster) == {}


def test_links_out_of_it_are_named(cluster: Cluster) -> None:
    cluster.at(SECOND, "work/checkpoints/newest").symlink_to("last.ckpt")
    cluster.at(SECOND, "work/scratch").symlink_to("/mnt/scratch")
    report = with_work(cluster)
    assert report.files[SECOND].skipped == {
        "work/scratch": "is a link that leads out of the job's folder, to /mnt/scratch"
    }
    assert (cluster.folder / "work" / SECOND / "checkpoints/newest").read_bytes() == noise(3000, 1)


def test_what_was_put_aside_keeps_its_name(cluster: Cluster) -> None:
    cluster.write(SECOND, "work.0f3a9c1e/by-the-setup-line", b"made")
    with_work(cluster)
    assert (cluster.folder / "work.0f3a9c1e" / SECOND / "by-the-setup-line").read_bytes() == b"made"
