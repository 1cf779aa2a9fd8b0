"""What a collect brings, what it does with what is here already, and with what changes meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from launch.errors import GiveUpError, InputError
from launch.host import Completed
from launch.remote.base import frames
from launch.remote.collect import send as remote
from launch.results.collect import collect
from launch.results.download import CollectReport, NodeFetch, NodeFiles, Progress
from launch.results.folder import SUMS, Results
from tests.launch.collected import HEAD, JOB, NAMES, SECOND, THIRD, Cluster, bytes_sent, noise, of
from tests.launch.remote.sample_records import sample_plan, sample_state

pytestmark = pytest.mark.timeout(300)

ODD = [*(b"a b", b"-n", b"--help", b"a\nb", b"\xff\xfe"), *("ü 日本".encode(), b"a\\nb", b"~", b"x" * 255)]
WITHOUT_ROOTS_RIGHT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path).make()


def from_a_node(
    into: Path, name: str, data: bytes, announced: int | None = None, listed: int | None = None
) -> NodeFiles:
    """What came of a head that sends one file as it is."""
    results = Results(into, "t-1")
    fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
    at = 1_700_000_000_000_000_000
    size = len(data) if announced is None else announced

    def take(kind: bytes, answer: object) -> None:
        fetch.take(frames.frame(kind, answer if isinstance(answer, bytes) else json.dumps(answer).encode()))

    try:
        take(remote.ENTRIES, [["f", name, len(data) if listed is None else listed, at]])
        take(remote.LISTED, True)
        assert fetch.requests(is_head=True)
        take(remote.START, {"matched": [], "size": size, "mtime_ns": at})
        for start in range(0, len(data), piece := 1 << 20):
            take(remote.DATA, data[start : start + piece])
        take(remote.END, {"sha256": hashlib.sha256(data).hexdigest()})
        fetch.check()
    finally:
        fetch.close()
        results.close(complete=True)
    return fetch.result()


class TestWhatComes:
    def test_logs_outputs_and_records_of_every_node_with_checksums(self, cluster: Cluster) -> None:
        report = cluster.collect()
        assert report.is_complete
        assert list(report.results) == list(NAMES)
        assert cluster.files() == cluster.expected(*NAMES)
        assert [files.written for files in report.files.values()] == [6, 3, 3]
        assert (bytes_sent(report), report.without_head) == (sum(map(len, cluster.files().values())), "")
        cluster.verified()
        assert {path.name for path in cluster.folder.iterdir()} == {
            *("events.jsonl", "exits.jsonl", "job.json", "state.json"),
            *("exits", "logs", "outputs", SUMS),
        }

    @pytest.mark.parametrize("prints", ["echo Welcome", "printf Welcome", "seq 100000"])
    def test_what_logins_print_is_none_of_it(self, cluster: Cluster, prints: str) -> None:
        for name in NAMES:
            (cluster.nodes / name / ".profile").write_text(prints)
        assert cluster.collect().is_complete
        assert cluster.files() == cluster.expected(*NAMES)

    def test_values_of_user_variables_stay_on_the_head_and_their_names_come(self, cluster: Cluster) -> None:
        plan = json.loads(cluster.at(HEAD, "job.json").read_bytes())
        plan["user_env"] = {"WANDB_API_KEY": "s3cret", "LR": "s3cret too"}
        cluster.write(HEAD, "job.json", json.dumps(plan).encode())
        assert cluster.collect().is_complete
        came = json.loads((cluster.folder / "job.json").read_bytes())
        assert came == {**plan, "user_env": {"WANDB_API_KEY": None, "LR": None}}
        assert not [
            path for path in cluster.folder.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()
        ]
        cluster.verified()
        assert bytes_sent(cluster.collect()) == 0

    @pytest.mark.parametrize("times", [1, 2])
    def test_values_that_node_code_of_an_earlier_version_sends_are_not_kept(
        self, tmp_path: Path, times: int
    ) -> None:
        plan = sample_plan(user_env={"KEY": "s3cret", "LR": ""})
        for _ in range(times):
            found = from_a_node(tmp_path, "job.json", json.dumps(plan).encode())
            assert (dict(found.left_out), dict(found.renamed)) == ({}, {})
        came = (tmp_path / "t-1" / "job.json").read_bytes()
        assert json.loads(came) == {**plan, "user_env": {"KEY": None, "LR": None}}
        sums = (tmp_path / "t-1" / SUMS).read_text().splitlines()
        assert sums[-1] == f"{hashlib.sha256(came).hexdigest()}  job.json"
        assert [path.name for path in (tmp_path / "t-1").iterdir() if b"s3cret" in path.read_bytes()] == []

    def test_what_such_code_sends_in_the_place_of_a_plan_is_not_kept(self, tmp_path: Path) -> None:
        found = from_a_node(tmp_path, "job.json", b'{"user_env": {"KEY": "s3cret"')
        assert found.left_out == {"job.json": "is damaged"}
        assert [
            path for path in tmp_path.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()
        ] == []

    def test_a_list_of_files_without_end_is_refused(self, tmp_path: Path) -> None:
        results = Results(tmp_path, "t-1")
        fetch = NodeFetch(HEAD, results, Progress(lambda _: None), {})
        piece = frames.frame(remote.ENTRIES, json.dumps([["f", "x" * 2**20, 1, 1]] * 50).encode())
        try:
            with pytest.raises(
                frames.ProtocolError, match="more than 1000000 files and folders, or 128 MiB of"
            ):
                for _ in range(6):
                    fetch.take(piece)
        finally:
            fetch.close()
            results.close(complete=True)

    @pytest.mark.parametrize("more", [1, 100_000])
    def test_no_more_of_a_file_than_was_announced(self, tmp_path: Path, more: int) -> None:
        with pytest.raises(GiveUpError, match=rf"^{HEAD}: it sent more of logs/rank-0.log than the size"):
            from_a_node(tmp_path, "logs/rank-0.log", b"x" * 10, announced=max(0, 10 - more))
        assert list(tmp_path.rglob("rank-0.log*")) == []

    def test_a_plan_that_cannot_be_read_is_not_sent_since_it_may_hold_values(self, cluster: Cluster) -> None:
        cluster.write(HEAD, "job.json", b'{"user_env": {"KEY": "s3cret"')
        report = cluster.collect(others=True)
        assert report.files[HEAD].left_out == {"job.json": "is damaged"}
        assert not (cluster.folder / "job.json").exists()

    def test_what_came_is_for_the_operator_alone(self, cluster: Cluster) -> None:
        before = os.umask(0o022)
        try:
            cluster.collect()
        finally:
            os.umask(before)
        modes = {
            str(path.relative_to(cluster.folder)): stat.S_IMODE(path.stat().st_mode)
            for path in (cluster.folder, *cluster.folder.rglob("*"))
        }
        assert modes["."] == 0o700
        records = ("job.json", "state.json", "events.jsonl", "exits.jsonl", f"exits/{SECOND}.jsonl")
        assert {name: oct(modes[name]) for name in records} == dict.fromkeys(records, "0o600")
        # Behind the folder's own mode, so that one chmod shares them.
        assert modes["logs/rank-0.log"] == 0o644

    def test_nothing_is_sent_again(self, cluster: Cluster) -> None:
        cluster.collect()
        before = {path: path.stat() for path in cluster.folder.rglob("*") if path.is_file()}
        report = cluster.collect()
        assert report.is_complete
        assert (bytes_sent(report), [(f.written, f.kept) for f in report.files.values()]) == (
            0,
            [(0, 6), (0, 3), (0, 3)],
        )
        assert {path: path.stat().st_mtime_ns for path in before if path.name != SUMS} == {
            path: found.st_mtime_ns for path, found in before.items() if path.name != SUMS
        }

    def test_names_of_every_kind(self, cluster: Cluster) -> None:
        for name in ODD:
            cluster.write(SECOND, b"outputs/" + name, name)
            cluster.write(SECOND, b"outputs/d" + name[:254] + b"/" + name, name)
        report = cluster.collect()
        assert report.is_complete
        assert cluster.files() == cluster.expected(*NAMES)
        cluster.verified()
        assert bytes_sent(cluster.collect()) == 0

    def test_empty_files_and_empty_folders(self, cluster: Cluster) -> None:
        cluster.at(THIRD, "outputs/none/of/it").mkdir(parents=True)
        cluster.write(THIRD, "outputs/empty", b"")
        assert cluster.collect().is_complete
        assert (cluster.folder / "outputs" / THIRD / "none/of/it").is_dir()
        assert (cluster.folder / "outputs" / THIRD / "empty").read_bytes() == b""
        assert cluster.collect().files[THIRD].kept == 4

    def test_links_stay_links_within_the_job_and_lead_nowhere_else(self, cluster: Cluster) -> None:
        cluster.write(SECOND, "outputs/step-3/weights", b"w")
        cluster.at(SECOND, "outputs/latest").symlink_to("step-3")
        cluster.at(SECOND, "outputs/best").symlink_to(cluster.at(SECOND, "outputs/step-3"))
        cluster.at(SECOND, "outputs/passwd").symlink_to("/etc/passwd")
        cluster.at(SECOND, "outputs/up").symlink_to("../logs")
        for _ in range(2):
            report = cluster.collect()
            top = cluster.folder / "outputs" / SECOND
            assert [str((top / name).readlink()) for name in ("latest", "best")] == ["step-3", "step-3"]
            assert (top / "latest/weights").read_bytes() == b"w"
            assert report.is_complete
            assert of(report, SECOND).skipped == {
                f"outputs/{name}": f"is a link that leads out of the job's folder, to {target}"
                for name, target in (("passwd", "/etc/passwd"), ("up", "../logs"))
            }
            assert sorted(path.name for path in top.iterdir()) == ["best", "latest", "model.bin", "step-3"]

    def test_what_git_obeys_is_named_and_the_rest_comes(self, cluster: Cluster) -> None:
        for node, names in (
            (HEAD, ["outputs/.git/config", "logs/HEAD"]),
            (SECOND, ["logs/objects/x", "logs/refs/x"]),
        ):
            for name in (*names, "outputs/model"):
                cluster.write(node, name, b"x")
        report = cluster.collect()
        assert {*of(report, HEAD).left_out} == {"outputs/.git", "outputs/.git/config"}
        assert {*of(report, SECOND).left_out} >= {"logs/objects/x", "logs/refs/x"}
        assert not report.is_complete
        assert not (cluster.folder / "logs/refs").exists() and not list(cluster.folder.rglob(".git"))
        assert len(list(cluster.folder.rglob("outputs/*/model"))) == 2

    def test_what_cannot_be_read_is_named_and_the_rest_comes(self, cluster: Cluster) -> None:
        cluster.write(HEAD, "outputs/secret", b"s").chmod(0)
        cluster.at(HEAD, "outputs/closed").mkdir(mode=0)
        os.mkfifo(cluster.at(HEAD, "outputs/pipe"))
        cluster.head.prefix = WITHOUT_ROOTS_RIGHT if os.getuid() == 0 else ()
        report = cluster.collect()
        assert of(report, HEAD).left_out == {
            "outputs/secret": "Permission denied",
            "outputs/closed": "Permission denied",
        }
        assert of(report, HEAD).skipped == {"outputs/pipe": "is a socket, a pipe or a device"}
        assert not report.is_complete
        cluster.at(HEAD, "outputs/secret").unlink()
        assert cluster.files() == cluster.expected(*NAMES)

    def test_of_a_job_that_is_lost_the_state_says_so(self, cluster: Cluster) -> None:
        state = sample_state(JOB, supervisor={"pid": 1, "started": 1, "boot": "x"})
        cluster.write(HEAD, "state.json", json.dumps(state).encode())
        assert cluster.collect().is_complete
        assert json.loads((cluster.folder / "state.json").read_bytes())["state"] == "LOST"

    def test_of_a_job_that_never_ran_on_a_node_there_is_nothing(self, cluster: Cluster) -> None:
        for path in sorted(cluster.at(THIRD, "").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cluster.at(THIRD, "").rmdir()
        report = cluster.collect()
        assert (report.is_complete, report.files[THIRD].written) == (True, 0)

    def test_a_job_that_the_head_does_not_have(self, cluster: Cluster) -> None:
        with pytest.raises(InputError, match="no job no-such-job on this head"):
            collect("no-such-job", cluster.head, cluster.into, remote="hash")
        assert list(cluster.into.iterdir()) == []


class TestWhatIsHereAlready:
    def test_a_log_that_grew_is_continued(self, cluster: Cluster) -> None:
        cluster.write(SECOND, "logs/rank-1.log", noise(400_000))
        cluster.collect()
        cluster.write(SECOND, "logs/rank-1.log", noise(400_000) + b"more\n")
        report = cluster.collect()
        assert (bytes_sent(report), report.files[SECOND].continued) == (5, 1)
        assert cluster.files() == cluster.expected(*NAMES)
        cluster.verified()

    def test_the_state_of_a_job_that_went_on_is_the_newest(self, cluster: Cluster) -> None:
        cluster.collect()
        cluster.write(HEAD, "state.json", json.dumps(sample_state(JOB, state="FAILED")).encode())
        assert cluster.collect().files[HEAD].renamed == {}
        assert cluster.files() == cluster.expected(*NAMES)
        cluster.verified()

    def test_another_content_gets_a_numbered_name_once_and_is_told(self, cluster: Cluster) -> None:
        name = f"outputs/{SECOND}/model.bin"
        (cluster.folder / name).parent.mkdir(parents=True)
        (cluster.folder / name).write_bytes(b"mine")
        report = cluster.collect()
        assert report.is_complete
        assert of(report, SECOND).renamed == {name: f"{name}.~2~"}
        for _ in range(2):
            assert (cluster.folder / name).read_bytes() == b"mine"
            assert (cluster.folder / f"{name}.~2~").read_bytes() == noise(5000, 1)
            assert of(cluster.collect(), SECOND).renamed == {}
        cluster.write(SECOND, "outputs/model.bin", noise(5000, 7))
        assert of(cluster.collect(), SECOND).renamed == {name: f"{name}.~3~"}
        cluster.write(SECOND, "outputs/model.bin", noise(6000, 7))
        assert of(cluster.collect(), SECOND).renamed == {}
        assert (cluster.folder / f"{name}.~3~").read_bytes() == noise(6000, 7)

    def test_what_the_user_changed_is_not_taken_for_what_came(self, cluster: Cluster) -> None:
        cluster.collect()
        name = f"outputs/{SECOND}/model.bin"
        (cluster.folder / name).write_bytes(b"x" * 5000)
        assert of(cluster.collect(), SECOND).renamed == {name: f"{name}.~2~"}
        assert (cluster.folder / name).read_bytes() == b"x" * 5000

    def test_what_the_user_removed_comes_again(self, cluster: Cluster) -> None:
        cluster.collect()
        (cluster.folder / "logs/rank-1.log").unlink()
        assert cluster.collect().files[SECOND].written == 1
        assert cluster.files() == cluster.expected(*NAMES)

    def test_a_copy_without_a_checksum_is_compared_not_sent(self, cluster: Cluster) -> None:
        cluster.collect()
        (cluster.folder / SUMS).unlink()
        assert bytes_sent(cluster.collect()) == 0
        cluster.verified()

    def test_something_that_is_no_file_in_its_place_stays(self, cluster: Cluster) -> None:
        (cluster.folder / "logs/rank-0.log").mkdir(parents=True)
        assert of(cluster.collect(), HEAD).renamed == {"logs/rank-0.log": "logs/rank-0.log.~2~"}
        assert (cluster.folder / "logs/rank-0.log").is_dir()

    def test_a_file_in_a_folders_place_stays_and_is_named(self, cluster: Cluster) -> None:
        cluster.write(SECOND, "outputs/d/x", b"1")
        (cluster.folder / "outputs" / SECOND).mkdir(parents=True)
        (cluster.folder / "outputs" / SECOND / "d").write_bytes(b"mine")
        report = cluster.collect()
        assert "is not a folder: the file" in of(report, SECOND).left_out["outputs/d/x"]
        assert (cluster.folder / "outputs" / SECOND / "d").read_bytes() == b"mine"


class TestWhatChangesMeanwhile:
    """The operator's side is stopped between the listing and the sending."""

    def meanwhile(self, cluster: Cluster, change: Callable[[], object]) -> CollectReport:
        plain = cluster.head.stream

        def stream(argv: Sequence[str], *rest: object, **more: object) -> Completed:
            if argv[-1] == "send":
                change()
            return plain(argv, *rest, **more)  # type: ignore[arg-type]

        cluster.head.stream = stream  # type: ignore[method-assign]
        return cluster.collect()

    def test_a_file_that_vanishes_is_told_and_no_failure(self, cluster: Cluster) -> None:
        report = self.meanwhile(cluster, cluster.at(SECOND, "outputs/model.bin").unlink)
        assert (report.is_complete, of(report, SECOND).vanished) == (True, ("outputs/model.bin",))
        assert cluster.files() == cluster.expected(*NAMES)

    def test_a_file_that_grows_comes_as_long_as_it_is_then(self, cluster: Cluster) -> None:
        report = self.meanwhile(
            cluster, lambda: cluster.write(SECOND, "outputs/model.bin", noise(9000, 1), age=0)
        )
        assert report.is_complete
        assert cluster.files() == cluster.expected(*NAMES)
        cluster.verified()

    def test_a_file_that_shrinks_too(self, cluster: Cluster) -> None:
        self.meanwhile(cluster, lambda: cluster.write(SECOND, "outputs/model.bin", b"s"))
        assert cluster.files() == cluster.expected(*NAMES)
        cluster.verified()

    @pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
    def test_what_has_become_something_else_is_left_out(
        self, cluster: Cluster, make: Callable[[Path], object]
    ) -> None:
        def change() -> None:
            cluster.at(SECOND, "outputs/model.bin").unlink()
            make(cluster.at(SECOND, "outputs/model.bin"))

        report = self.meanwhile(cluster, change)
        assert list(of(report, SECOND).left_out) == ["outputs/model.bin"]
        assert cluster.files() == cluster.expected(*NAMES)

    def test_what_the_user_writes_meanwhile_is_not_overwritten(self, cluster: Cluster) -> None:
        def change() -> None:
            (cluster.folder / "logs").mkdir(exist_ok=True)
            (cluster.folder / "logs/rank-1.log").write_bytes(b"mine")

        report = self.meanwhile(cluster, change)
        assert of(report, SECOND).renamed == {"logs/rank-1.log": "logs/rank-1.log.~2~"}
        assert (cluster.folder / "logs/rank-1.log").read_bytes() == b"mine"
