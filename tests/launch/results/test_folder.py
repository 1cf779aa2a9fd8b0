"""A job's results folder: its checksums, and how files get there."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.errors import InputError, RetryError
from launch.received_names import CannotKeep
from launch.results.diff import Copy
from launch.results.folder import PARTS, SUMS, Results, read_sums, sums_line

JOB = "train-20260301-090507-0f3a"
ODD = ["a b", "-n", "a\nb", "a\\b", "a\\nb", "end\r", "\\", "ü 日本", "\udcff\udcfe", " ", "*", "a\tb", "~"]


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    made = Results(tmp_path, JOB)
    yield made
    made.close(complete=True)


def bring(results: Results, name: str, data: bytes, at: str | None = None, over: Copy | None = None) -> str:
    with results.open_part(name, None, hashlib.sha256()) as part:
        part.write(data)
    return results.keep(name, at or name, over, 0, hashlib.sha256(data).hexdigest())


class TestChecksums:
    @pytest.mark.parametrize("name", ODD)
    def test_every_name_comes_back(self, name: str) -> None:
        assert read_sums(sums_line(name, "0" * 64)) == {name: "0" * 64}

    def test_sha256sum_finds_every_file_whatever_its_name(self, results: Results) -> None:
        for name in ODD:
            bring(results, f"outputs/node000000/{name}", name.encode("utf-8", "replace"))
        results.close(complete=True)
        subprocess.run(
            ["sha256sum", "-c", "--strict", "--quiet", SUMS], cwd=results.folder, check=True, timeout=60
        )
        assert len(read_sums((results.folder / SUMS).read_bytes())) == len(ODD)

    def test_of_two_lines_the_later_counts_and_half_a_line_is_none(self) -> None:
        data = sums_line("a", "0" * 64) + sums_line("a", "1" * 64) + sums_line("b", "2" * 64)[:40]
        assert read_sums(data) == {"a": "1" * 64}

    def test_lines_of_what_is_no_longer_here_go(self, results: Results, tmp_path: Path) -> None:
        bring(results, "a", b"1")
        bring(results, "b", b"2")
        (results.folder / "a").unlink()
        results.close(complete=True)
        assert list(read_sums((results.folder / SUMS).read_bytes())) == ["b"]


class TestTheFolder:
    def test_only_one_collect_works_in_it(self, results: Results, tmp_path: Path) -> None:
        with pytest.raises(RetryError, match="another collect of this job uses this folder"):
            Results(tmp_path, JOB)
        results.close(complete=True)
        Results(tmp_path, JOB).close(complete=True)

    def test_another_jobs_is_free(self, results: Results, tmp_path: Path) -> None:
        Results(tmp_path, JOB + "0").close(complete=True)

    @pytest.mark.parametrize("job", ["../x", "a/b", "/tmp", "..", "", "."])
    def test_it_is_never_elsewhere(self, tmp_path: Path, job: str) -> None:
        with pytest.raises(InputError, match="is not the id of a job"):
            Results(tmp_path, job)

    def test_that_it_cannot_be_made_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="--into"):
            Results(tmp_path / "file", JOB)

    def test_nothing_stays_of_one_into_which_nothing_came(self, tmp_path: Path) -> None:
        Results(tmp_path, JOB).close(complete=True)
        assert list(tmp_path.iterdir()) == []

    def test_parts_stay_as_long_as_something_is_missing(self, results: Results) -> None:
        results.open_part("outputs/x", None, hashlib.sha256()).close()
        results.close(complete=False)
        assert (results.folder / PARTS / "outputs/x").exists()

    def test_but_no_empty_folder_of_them(self, results: Results) -> None:
        bring(results, "outputs/x", b"1")
        results.close(complete=False)
        assert {path.name for path in results.folder.iterdir()} == {"outputs", SUMS}


class TestNames:
    def test_what_came_to_be_meanwhile_is_not_overwritten(self, results: Results) -> None:
        (results.folder / "a").write_text("mine")
        assert bring(results, "a", b"theirs") == "a.~2~"
        assert (results.folder / "a").read_text() == "mine"
        assert (results.folder / "a.~2~").read_text() == "theirs"

    def test_nor_is_what_was_to_be_continued_but_changed_meanwhile(self, results: Results) -> None:
        (results.folder / "a").write_text("x")
        (copy,) = results.here("a").copies
        (results.folder / "a").write_text("mine")
        assert bring(results, "a", b"x and more", over=copy) == "a.~2~"
        assert (results.folder / "a").read_text() == "mine"

    def test_no_link_here_is_ever_followed(self, results: Results, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        results.make_link("outputs/d", str(tmp_path / "elsewhere"))
        with pytest.raises(CannotKeep, match="outputs/d is not a folder"):
            bring(results, "outputs/d/x", b"1", at="outputs/d/x")
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_nor_is_one_in_the_files_own_place(self, results: Results, tmp_path: Path) -> None:
        results.make_link("a", str(tmp_path / "elsewhere"))
        assert bring(results, "a", b"1") == "a.~2~"
        assert not (tmp_path / "elsewhere").exists()

    def test_a_name_that_cannot_be_here_is_that_files_trouble_alone(self, results: Results) -> None:
        with pytest.raises(CannotKeep, match="File name too long"):
            bring(results, "outputs/" + "x" * 256, b"1")
        assert bring(results, "outputs/y", b"1") == "outputs/y"

    def test_a_part_of_what_was_a_folder_or_has_become_one_is_no_hindrance(self, results: Results) -> None:
        results.open_part("a", None, hashlib.sha256()).close()
        assert bring(results, "a/b", b"1") == "a/b"
        (results.folder / PARTS / "c/d").mkdir(parents=True)
        assert bring(results, "c", b"1") == "c"


class TestNamesOfGit:
    def test_nodes_bring_no_repository_together_nor_one_after_the_other(
        self, results: Results, tmp_path: Path
    ) -> None:
        head, rest = ["logs/HEAD", "logs/rank-0.log"], ["logs/objects/a", "logs/refs/b", "logs/rank-1.log"]
        assert results.problems(head) == ["", ""]
        assert [bool(problem) for problem in results.problems(rest)] == [True, True, False]
        bring(results, "logs/HEAD", b"ref: refs/heads/m")
        results.close(complete=True)
        later = Results(tmp_path, JOB)
        assert [bool(problem) for problem in later.problems(rest)] == [True, True, False]
        later.close(complete=True)

    def test_names_that_are_none_of_a_repository_are_kept(self, results: Results) -> None:
        names = ["outputs/node000000/HEAD", "outputs/node000001/objects/x", "outputs/node000001/refs/x"]
        assert not any(results.problems(names))
