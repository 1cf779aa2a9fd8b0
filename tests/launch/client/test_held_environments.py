"""What nodes hold, by environment, and what of it may go."""

from __future__ import annotations

from launch.client.environments import held_on, removable
from launch.remote.environment.request import StoredEnvironment


def stored(
    name: str, used: float, title: str = "", jobs: tuple[str, ...] = (), is_held: bool = False
) -> StoredEnvironment:
    return {"id": name, "title": title, "bytes": 10, "used": used, "jobs": list(jobs), "is_held": is_held}


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
