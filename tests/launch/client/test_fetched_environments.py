"""A head that lacks an environment gets it from a node that holds it, and makes it only where none does."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from launch.client.environments import fitting, query_environments, send_to
from launch.code.node_code import remote_id
from launch.errors import GiveUpError
from launch.remote.environment.usage import REQUEST_DIGITS
from tests.launch.client.environment_desk import Desk, folder, left, run_python
from tests.launch.cluster import LocalHost, contents


def from_the_first_two(desk: Desk) -> Callable[[str], None]:
    """What has the first two nodes asked, and one of them send what they hold to the third."""

    def fetch(wanted: str) -> None:
        holders = {node.name: node for node in desk.cluster.nodes[:2]}
        hosts = {name: LocalHost(node) for name, node in holders.items()}
        answers = {name: query_environments(host, remote_id()) for name, host in hosts.items()}
        found = fitting(answers, wanted, [])
        assert found is not None
        head, (name, environment) = desk.cluster.nodes[2], found
        send_to(head, hosts[name], holders[name], remote_id(), environment, print, ssh=desk.cluster.ssh)

    return fetch


def test_a_new_head_gets_it_from_a_node_that_holds_it_and_makes_nothing(desk: Desk) -> None:
    made = desk.make(on=(0, 1))
    wanted: list[str] = []

    def fetch(one: str) -> None:
        wanted.append(one)
        from_the_first_two(desk)(one)

    again = desk.make(on=(2, 3), fetch=fetch)
    assert (again.built, again.record["id"]) == (False, made.record["id"])
    assert wanted == [made.record["id"][:REQUEST_DIGITS]]
    trees = [contents(folder(node, made)) for node in desk.cluster.nodes]
    assert all(tree == trees[0] for tree in trees)
    assert run_python(desk.cluster.nodes[3], again, "import toolkit; print(toolkit.ANSWER)") == "42"


def test_a_head_that_lost_it_gets_it_again(desk: Desk) -> None:
    """The node that sends it remembers that the head held it once."""
    made = desk.make(on=(0, 1, 2))
    shutil.rmtree(desk.cluster.nodes[2].home / ".ranklift" / "environments")
    assert not desk.make(on=(2, 3), fetch=from_the_first_two(desk)).built
    assert contents(folder(desk.cluster.nodes[2], made)) == contents(folder(desk.cluster.nodes[0], made))


def test_what_a_job_has_changed_is_not_sent_to_another_head(desk: Desk) -> None:
    made = desk.make(on=(0,))
    (changed,) = folder(desk.cluster.nodes[0], made).rglob("toolkit/__init__.py")
    changed.chmod(0o644)
    changed.write_bytes(b"ANSWER = 66\n")
    with pytest.raises(GiveUpError, match="node000000: a job changed the head's copy"):
        desk.make(on=(2, 3), fetch=from_the_first_two(desk))
    assert not [name for name in left(desk.cluster.nodes[2]) if name.endswith(".manifest")]


def test_a_head_makes_what_no_node_holds(desk: Desk) -> None:
    assert desk.make(on=(2, 3), fetch=lambda _: None).built
