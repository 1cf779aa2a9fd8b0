"""What is fetched, given what a node has and what is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from launch.received_names import ReceivedNames
from launch.results.diff import Copy, Entry, FetchPlan, Here, Landing, Wanted, landing, numbered, plan_fetch

NODE = "node000001"
LOG = "logs/rank-0.log"
NOTHING: Mapping[str, Here] = {}


def plan(*entries: Entry, here: Mapping[str, Here] = NOTHING, is_head: bool = False) -> FetchPlan:
    def found(name: str) -> Here:
        return here.get(name, Here(free=name))

    return plan_fetch(*(NODE, entries, found), is_head=is_head, taken=lambda _: False, problems=problems)


def problems(names: Sequence[str]) -> list[str]:
    return ReceivedNames().problems([(Path("nowhere"), name) for name in names])


def wanted(*copies: Copy, path: str = LOG, free: str = "free") -> Wanted:
    return Wanted(Entry("f", path, 100, 1), path, Here(copies, free))


class TestWhatIsAskedFor:
    def test_what_is_not_here(self) -> None:
        made = plan(Entry("f", LOG, 5, 1), Entry("f", "outputs/a/b", 5, 1))
        assert [one.name for one in made.wanted] == [LOG, f"outputs/{NODE}/a/b"]
        assert made.kept == []

    def test_a_path_once_however_often_it_is_listed(self) -> None:
        sought: list[str] = []

        def here(name: str) -> Here:
            sought.append(name)
            return Here(free=name)

        entries = [*[Entry("f", LOG, 5, 1)] * 3, Entry("l", LOG, text="x")]
        made = plan_fetch(*(NODE, entries, here), is_head=False, taken=lambda _: False, problems=problems)
        assert ([one.name for one in made.wanted], made.links, sought) == ([LOG], [], [LOG])
        assert made.left_out == {LOG: "is listed more than once: the first of them counts"}

    def test_not_what_has_the_same_size_and_time_as_when_it_was_checked(self) -> None:
        copy = Copy(LOG, 5, 1, "digest")
        made = plan(Entry("f", LOG, 5, 1), here={LOG: Here((copy,), "x")})
        assert (made.kept, made.wanted) == ([copy], [])

    @pytest.mark.parametrize(
        "copy",
        [
            Copy(LOG, 4, 1, "digest"),
            Copy(LOG, 5, 2, "digest"),
            Copy(LOG, 5, 1, None),
            Copy(LOG, 5, 1, "digest", whole=False),
        ],
        ids=["shorter", "touched", "never checked", "a part"],
    )
    def test_whatever_may_differ(self, copy: Copy) -> None:
        made = plan(Entry("f", LOG, 5, 1), here={LOG: Here((copy,), "x")})
        assert ([one.here.copies for one in made.wanted], made.kept) == ([(copy,)], [])

    def test_a_file_that_may_change_unseen_even_when_it_looks_the_same(self) -> None:
        made = plan(Entry("f", LOG, 5, -1), here={LOG: Here((Copy(LOG, 5, 1, "digest"),), "x")})
        assert len(made.wanted) == 1

    def test_a_numbered_copy_is_as_good(self) -> None:
        copies = (Copy(LOG, 9, 9, "other"), Copy(numbered(LOG, 2), 5, 1, "digest"))
        made = plan(Entry("f", LOG, 5, 1), here={LOG: Here(copies, numbered(LOG, 3))})
        assert made.kept == [copies[1]]

    def test_folders_also_when_they_are_empty(self) -> None:
        assert plan(Entry("d", "outputs"), Entry("d", "outputs/x")).folders == [
            f"outputs/{NODE}",
            f"outputs/{NODE}/x",
        ]

    def test_a_log_that_another_node_has_too_gets_a_place_of_its_own(self) -> None:
        made = plan_fetch(
            NODE,
            [Entry("f", LOG, 5, 1)],
            lambda name: Here(free=name),
            is_head=False,
            taken=lambda name: name == LOG,
            problems=problems,
        )
        assert [one.name for one in made.wanted] == [f"logs/{NODE}/rank-0.log"]

    def test_the_heads_records_and_of_other_nodes_how_their_ranks_ended(self) -> None:
        entries = [Entry("f", name, 5, 1) for name in ("state.json", "exits.jsonl")]
        assert [one.name for one in plan(*entries, is_head=True).wanted] == ["state.json", "exits.jsonl"]
        other = plan(*entries)
        assert [one.name for one in other.wanted] == [f"exits/{NODE}.jsonl"]
        assert list(other.left_out) == ["state.json"]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "path",
        [
            "../x",
            "outputs/../../x",
            "outputs/..",
            "/etc/passwd",
            "outputs//etc/passwd",
            "outputs/./x",
            "",
            ".",
            "x",
            "SHA256SUMS",
            ".part/lock",
            "outputs/a\0b",
            "logs/",
        ],
    )
    @pytest.mark.parametrize("kind", ["f", "d", "l"])
    def test_a_path_that_leaves_the_folder(self, kind: str, path: str) -> None:
        made = plan(Entry(kind, path, text="x"))
        assert made == FetchPlan(left_out={path: "its path leads out of the job's folder"})

    @pytest.mark.parametrize(
        "target", ["/etc/passwd", "..", "../x", "a/../../x", "a/..", "../../../x", "x/../../outputs/y"]
    )
    def test_a_link_that_leaves_the_folder(self, target: str) -> None:
        made = plan(Entry("l", "outputs/link", text=target))
        assert made.links == []
        assert made.skipped == {"outputs/link": f"is a link that leads out of the job's folder, to {target}"}
        assert made.left_out == {}

    @pytest.mark.parametrize("target", ["x", "a/b", "../b", "../../x", "no-such-thing", "."])
    def test_but_not_one_within_it(self, target: str) -> None:
        made = plan(Entry("l", "outputs/a/b/link", text=target))
        assert made.links == [(f"outputs/{NODE}/a/b/link", target)]

    @pytest.mark.parametrize(
        ("kind", "path"),
        [
            *(("f", "outputs/.git/config"), ("d", "outputs/.git"), ("l", "outputs/.git"), ("f", "logs/.GIT")),
            *(("f", "work/src/.g\u200cit/config"), ("f", "outputs/a/.ranklift/dev/ssh_config")),
        ],
    )
    def test_a_name_that_git_or_ranklift_obeys(self, kind: str, path: str) -> None:
        made = plan(Entry(kind, path, 5, 1, text="x"), Entry("f", "outputs/.gitignore", 5, 1))
        assert made.left_out == {path: "would be in a folder of settings, which programs obey"}
        assert [one.name for one in made.wanted] == [f"outputs/{NODE}/.gitignore"]
        assert (made.folders, made.links) == ([], [])

    def test_names_that_make_a_folder_a_repository_of_git(self) -> None:
        parts = [
            Entry("f", "outputs/a/HEAD", 5, 1),
            Entry("d", "outputs/a/objects"),
            Entry("l", "outputs/a/refs", text="x"),
        ]
        made = plan(*parts, Entry("f", "outputs/a/config", 5, 1), Entry("f", "outputs/a/model", 5, 1))
        assert list(made.left_out) == [
            *(f"outputs/a/{name}" for name in ("HEAD", "objects", "refs", "config"))
        ]
        assert [one.name for one in made.wanted] == [f"outputs/{NODE}/a/model"]
        assert (made.folders, made.links) == ([], [])
        assert plan(*parts[:2], Entry("f", "outputs/a/config", 5, 1)).left_out == {}

    def test_what_the_node_itself_could_not_read(self) -> None:
        assert plan(Entry("x", "outputs/a", text="Permission denied")).left_out == {
            "outputs/a": "Permission denied"
        }


class TestWhereItLands:
    WHOLE, PART = Copy(LOG, 40, 1), Copy(LOG, 60, 1, whole=False)

    def test_a_new_file_has_its_own_name(self) -> None:
        assert landing(wanted(free=LOG), [], 100) == Landing(None, LOG)

    def test_the_same_file_is_kept(self) -> None:
        same = Copy(LOG, 100, 1)
        assert landing(wanted(same), [0], 100) == same

    def test_a_file_that_grew_continues_what_is_here_and_takes_its_name(self) -> None:
        assert landing(wanted(self.WHOLE), [0], 100) == Landing(self.WHOLE, LOG, self.WHOLE)

    def test_an_interrupted_one_continues_its_part(self) -> None:
        assert landing(wanted(self.PART, free=LOG), [0], 100) == Landing(self.PART, LOG)

    def test_one_that_grew_and_was_interrupted_does_both(self) -> None:
        made = wanted(self.WHOLE, self.PART)
        assert landing(made, [0, 1], 100) == Landing(self.PART, LOG, self.WHOLE)

    def test_a_part_that_has_every_byte_is_not_kept_as_a_part(self) -> None:
        part = Copy(LOG, 100, 1, whole=False)
        assert landing(wanted(part, free=LOG), [0], 100) == Landing(part, LOG)

    def test_another_content_gets_the_free_name_and_what_is_here_stays(self) -> None:
        goal = landing(wanted(self.WHOLE, free=numbered(LOG, 2)), [], 100)
        assert goal == Landing(None, numbered(LOG, 2))

    def test_the_other_content_grows_under_its_numbered_name(self) -> None:
        second = Copy(numbered(LOG, 2), 50, 1)
        goal = landing(wanted(self.WHOLE, second, free=numbered(LOG, 3)), [1], 100)
        assert goal == Landing(second, second.name, second)

    def test_of_the_jobs_state_the_newest_counts(self) -> None:
        old = Copy("state.json", 40, 1)
        goal = landing(wanted(old, path="state.json", free="state.json.~2~"), [], 100)
        assert goal == Landing(None, "state.json", old)
