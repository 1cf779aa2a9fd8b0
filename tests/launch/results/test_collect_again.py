"""Collects that were interrupted, in every way, and the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launch.errors import NodeUnreachable, RetryError
from launch.host import Completed
from launch.results.collect import collect
from launch.results.download import CollectReport
from launch.results.folder import SUMS, Results
from tests.launch.collected import JOB, NAMES, SECOND, Cluster, bytes_sent, noise, of
from tests.launch.standin import SSH, until

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[3]
COLLECT = (sys.executable, "-m", "tests.launch.collected")
FULL = 4 << 20
ON_A_FULL_DISK = """\
mount -t tmpfs -o size=4m tmpfs "$0"
"$@" "$0/.."
stat -c %s "$PART" 2>/dev/null || stat -c %s "$WHOLE"
mount -o remount,size=64m "$0"
"$@" "$0/.."
"""
SSH_THAT_BREAKS = """#!/bin/sh
while :; do case $1 in -o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
export HOME="$STANDIN/$host"
cd "$HOME"
case $*-$host in
*send*-node000001)
    sh -c "$*" | head -c 3000000
    echo "Connection to $host closed by remote host." >&2
    exit 255;;
*) exec sh -c "$*";;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path).make()


class TestInterruptions:
    SIZE = 8_000_000

    @pytest.fixture(autouse=True)
    def _big(self, cluster: Cluster) -> None:
        cluster.write(SECOND, "outputs/big", noise(self.SIZE))

    def whole(self, cluster: Cluster, report: CollectReport) -> None:
        assert report.is_complete
        assert cluster.files() == cluster.expected(*NAMES)
        assert not (cluster.folder / ".part").exists()
        cluster.verified()

    def part(self, cluster: Cluster) -> int:
        """Bytes of the large file that have come; it has not its name yet."""
        assert not (cluster.folder / "outputs" / SECOND / "big").exists()
        return (cluster.folder / ".part/outputs" / SECOND / "big").stat().st_size

    def test_a_broken_connection_costs_nothing_of_what_has_come(self, cluster: Cluster) -> None:
        cluster.head.breaks_after = 3_000_000
        with pytest.raises(NodeUnreachable, match="the connection broke"):
            cluster.collect()
        there = self.part(cluster)
        assert there > 2_000_000
        cluster.head.breaks_after = None
        report = cluster.collect()
        assert bytes_sent(report) <= self.SIZE - there + 20_000
        assert report.files[SECOND].continued == 1
        self.whole(cluster, report)

    def test_nor_does_one_that_breaks_again_and_again(self, cluster: Cluster) -> None:
        cluster.head.breaks_after = 1_500_000
        seen = [0]
        for _ in range(20):
            try:
                report = cluster.collect()
                break
            except NodeUnreachable:
                seen.append(self.part(cluster))
        assert len(seen) > 5
        assert seen == sorted(set(seen))
        cluster.head.breaks_after = None
        self.whole(cluster, report)

    def test_ctrl_c_too(self, cluster: Cluster) -> None:
        def show(progress: object) -> None:
            there = cluster.folder / ".part/outputs" / SECOND / "big"
            if there.exists() and there.stat().st_size > 2_000_000:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            collect(JOB, cluster.head, cluster.into, remote="hash", show=show)
        there = self.part(cluster)
        report = cluster.collect()
        assert bytes_sent(report) <= self.SIZE - there + 20_000
        self.whole(cluster, report)

    def test_kill_9_too_and_what_is_there_is_true_at_that_moment(self, cluster: Cluster) -> None:
        size = 300_000_000
        os.truncate(cluster.at(SECOND, "outputs/big"), size)
        argv = [*COLLECT, str(cluster.into.parent)]
        process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE)
        part = cluster.folder / ".part/outputs" / SECOND / "big"
        until(lambda: part.exists() and part.stat().st_size > self.SIZE, 60)
        process.send_signal(signal.SIGKILL)
        _, output = process.communicate()
        there = self.part(cluster)
        assert there < size, output
        cluster_files = {name for name in cluster.files() if not name.startswith(".part")}
        assert f"outputs/{SECOND}/big" not in cluster_files
        subprocess.run(["sha256sum", "-c", "--strict", "--quiet", SUMS], cwd=cluster.folder, check=True)
        report = cluster.collect()
        assert bytes_sent(report) <= size - there + 20_000
        self.whole(cluster, report)

    def test_a_node_that_dies_in_the_middle_is_named_and_the_others_come(self, cluster: Cluster) -> None:
        cluster.ssh.write_text(SSH_THAT_BREAKS)
        report = cluster.collect()
        assert list(report.errors) == [SECOND]
        assert "closed by remote host" in str(report.errors[SECOND])
        assert self.part(cluster) > 2_000_000
        cluster.ssh.write_text(SSH)
        again = cluster.collect()
        assert bytes_sent(again) < self.SIZE - 2_000_000
        self.whole(cluster, again)

    def test_a_part_of_what_has_another_content_by_now_is_not_continued(self, cluster: Cluster) -> None:
        cluster.head.breaks_after = 3_000_000
        with pytest.raises(NodeUnreachable):
            cluster.collect()
        cluster.write(SECOND, "outputs/big", noise(self.SIZE, 1))
        cluster.head.breaks_after = None
        self.whole(cluster, cluster.collect())

    def test_a_part_that_was_damaged_here_is_not_continued(self, cluster: Cluster) -> None:
        cluster.head.breaks_after = 3_000_000
        with pytest.raises(NodeUnreachable):
            cluster.collect()
        with (cluster.folder / ".part/outputs" / SECOND / "big").open("r+b") as file:
            file.write(b"?")
        cluster.head.breaks_after = None
        self.whole(cluster, cluster.collect())

    def test_a_log_that_grew_keeps_its_name_until_the_longer_one_is_whole(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.write(SECOND, "outputs/big", noise(2 * self.SIZE))
        cluster.head.breaks_after = 3_000_000
        with pytest.raises(NodeUnreachable):
            cluster.collect()
        assert (cluster.folder / "outputs" / SECOND / "big").read_bytes() == noise(self.SIZE)
        there = (cluster.folder / ".part/outputs" / SECOND / "big").stat().st_size
        assert there > self.SIZE
        cluster.head.breaks_after = None
        report = cluster.collect()
        assert bytes_sent(report) <= 2 * self.SIZE - there
        self.whole(cluster, report)

    def test_no_checksum_is_ever_that_of_an_earlier_content(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.collect()
        cluster.write(SECOND, "outputs/big", noise(self.SIZE + 1))

        def killed(results: Results, name: str, digest: str) -> None:
            raise KeyboardInterrupt  # between its new content and its new sum

        monkeypatch.setattr(Results, "add_sum", killed)
        monkeypatch.setattr(Results, "close", lambda results, *, complete: results._lock.close())
        with pytest.raises(KeyboardInterrupt):
            cluster.collect()
        monkeypatch.undo()
        assert (cluster.folder / "outputs" / SECOND / "big").stat().st_size == self.SIZE + 1
        subprocess.run(["sha256sum", "-c", "--strict", "--quiet", SUMS], cwd=cluster.folder, check=True)
        self.whole(cluster, cluster.collect())

    def test_what_arrives_otherwise_than_it_was_sent_is_not_kept(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = cluster.head.stream

        def stream(argv: Sequence[str], take: Callable[[bytes], object], **more: object) -> Completed:
            def spoil(data: bytes) -> None:
                take(data.replace(b"rank 1\n", b"rank I\n"))

            return plain(argv, spoil, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(cluster.head, "stream", stream)
        report = cluster.collect()
        assert of(report, SECOND).left_out == {
            "logs/rank-1.log": "changed during the transfer: collect again"
        }
        assert not (cluster.folder / "logs/rank-1.log").exists()
        monkeypatch.undo()
        self.whole(cluster, cluster.collect())

    def test_a_second_collect_at_the_same_time_is_refused(self, cluster: Cluster) -> None:
        first = Results(cluster.into, JOB)
        with pytest.raises(RetryError, match="another collect of this job uses this folder"):
            cluster.collect()
        first.close(complete=False)
        self.whole(cluster, cluster.collect())

    def test_a_full_disk_is_told_and_the_next_one_goes_on(self, cluster: Cluster) -> None:
        # By its bytes all fits; the disk, which counts in pages, is full some bytes before the end.
        cluster.write(SECOND, "outputs/big", noise(FULL - 24_000))
        cluster.into.mkdir()
        inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", ON_A_FULL_DISK)
        done = subprocess.run(
            [*inside, str(cluster.into), *COLLECT],
            cwd=ROOT,
            env={
                **os.environ,
                "PART": f"{cluster.folder}/.part/outputs/{SECOND}/big",
                "WHOLE": f"{cluster.folder}/outputs/{SECOND}/big",  # where another node's file came last
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        first, there, second = map(json.loads, done.stdout.splitlines())
        assert first["error"].endswith(
            f"/{JOB}: No space left on device; what was copied is kept, and the same "
            "command continues from there"
        )
        assert there > 3_000_000
        assert second["whole"]
        assert second["sent"] <= FULL - there + 20_000
