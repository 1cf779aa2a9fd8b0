"""What nodes hold, by environment, and what of it may go."""

from __future__ import annotations

from launch.client.environments import fitting, held_on, removable
from launch.remote.environment.request import EnvironmentListing, StoredEnvironment


def stored(
    name: str,
    used: float,
    title: str = "",
    jobs: tuple[str, ...] = (),
    is_held: bool = False,
    is_damaged: bool = False,
) -> StoredEnvironment:
    return {
        **{"id": name, "title": title, "bytes": 10, "used": used, "jobs": list(jobs), "is_held": is_held},
        "is_damaged": is_damaged,
    }


def test_each_environment_is_listed_once_with_its_nodes_and_jobs_the_last_used_first() -> None:
    found = held_on(
        {
            "node000000": {"environments": [stored("aa", 1, "requirements.txt", ("t-1",)), stored("bb", 2)]},
            "node000001": {"environments": [stored("aa", 5, jobs=("t-2",))]},
        }
    )
    assert [(one.id, one.title, one.nodes, one.jobs) for one in found] == [
        ("aa", "requirements.txt", ("node000000", "node000001"), ("t-1", "t-2")),
        ("bb", "", ("node000000",), ()),
    ]


def test_the_last_used_and_those_in_use_stay() -> None:
    here = [stored("new", 3), stored("used", 2, jobs=("t",)), stored("old", 1), stored("sent", 0)]
    there = [stored("sent", 0, is_held=True)]
    held = held_on({"node000000": {"environments": here}, "node000001": {"environments": there}})
    assert [one.id for one in removable(held)] == ["old"]
    assert held[-1].held == ("node000001",)


class TestFitting:
    def test_the_beginning_of_an_id_decides(self) -> None:
        answers: dict[str, EnvironmentListing]
        answers = {"a": {"environments": [stored("cafe01", 1), stored("beef01", 2)]}}
        assert fitting(answers, "cafe", ["a"]) == ("a", "cafe01")
        assert fitting(answers, "f00d", ["a"]) is None

    def test_of_two_builds_the_one_on_most_nodes_of_the_job_is_taken_then_the_last_used(self) -> None:
        old, new = stored("cafe01", 1), stored("cafe02", 2)
        answers: dict[str, EnvironmentListing]
        answers = {"a": {"environments": [new]}, "b": {"environments": [old]}, "c": {"environments": [old]}}
        assert fitting(answers, "cafe", ["b", "c"]) == ("b", "cafe01")
        assert fitting(answers, "cafe", ["z"]) == ("a", "cafe02")

    def test_a_node_of_the_job_sends_it_if_one_holds_it(self) -> None:
        answers: dict[str, EnvironmentListing]
        answers = {name: {"environments": [stored("cafe01", 1)]} for name in "abc"}
        assert fitting(answers, "cafe", ["c"]) == ("c", "cafe01")

    def test_a_damaged_copy_is_not_sent(self) -> None:
        bad: EnvironmentListing = {"environments": [stored("cafe01", 1, is_damaged=True)]}
        answers: dict[str, EnvironmentListing] = {"a": bad, "b": {"environments": [stored("cafe01", 1)]}}
        assert fitting(answers, "cafe", ["a"]) == ("b", "cafe01")
        assert fitting({"a": bad}, "cafe", ["a"]) is None
