"""What is asked of nodes about their environments."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from invoke.context import Context

from infra.inventory import Inventory
from launch.client import environments as client
from launch.client.environments import Held
from launch.remote.reading import Malformed
from playbooks.nodes import environments
from playbooks.project import Stack

HELD = Held("1e5f0409602567e6", "reqs.txt", 2_000_000, datetime(2026, 3, 1, tzinfo=UTC), (), (), ("n0", "n1"))


class Opened:
    def __init__(self, *words: Any) -> None:
        self.host = str

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *words: object) -> None: ...


@pytest.mark.parametrize(("there", "expected"), [("earlier", "earlier"), (None, None)])
def test_nodes_answer_with_the_node_code_that_they_have(
    monkeypatch: pytest.MonkeyPatch, there: str | None, expected: str | None
) -> None:
    """After an upgrade, too: they would seem to hold nothing until the next push."""
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", Opened)
    monkeypatch.setattr("launch.client.rpc.version_there", lambda *_: there)
    monkeypatch.setattr(
        environments, "fan_out_hosts", lambda host, nodes, step, **_: {node: step(node) for node in nodes}
    )
    stack: Any = SimpleNamespace(folder=None)
    inventory: Any = SimpleNamespace(nodes=["node000000"])
    found = environments.on_all_nodes(stack, inventory, lambda _, remote: remote, "listing")
    assert found == {"node000000": expected}


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What was removed from the nodes of a stack that hold :data:`HELD`."""
    calls: list[list[str]] = []
    monkeypatch.setattr(environments, "open_from", lambda *_: Stack("dev", tmp_path, {}))
    monkeypatch.setattr(Stack, "saved", lambda _: Inventory("dev", "size", "place", "me", ()))
    monkeypatch.setattr(environments, "_held", lambda *_: [HELD])
    monkeypatch.setattr(client, "removable", lambda found: found)
    monkeypatch.setattr(client, "remove_from", lambda _, __, names, **___: calls.append(names))
    monkeypatch.setattr(environments, "on_all_nodes", lambda _, __, work, what: work(None, "") or {})
    return calls


def test_what_is_removed_is_a_line_or_a_record(
    removed: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for task, words in ((environments.remove, (HELD.id[:4],)), (environments.prune, ())):
        task(Context(), *words)
        assert capsys.readouterr().out == f"removed {HELD.id} reqs.txt: 2.0 MB on 2 nodes\n"
        task(Context(), *words, json=True)
        (record,) = json.loads(capsys.readouterr().out)
        assert (record["id"], record["nodes"]) == (HELD.id, ["n0", "n1"])
    assert removed == [[HELD.id]] * 4
    environments.prune(Context(), json=True, dry_run=True)
    (record,) = json.loads(capsys.readouterr().out)
    assert record["id"] == HELD.id
    assert len(removed) == 4


@pytest.mark.usefixtures("removed")
def test_nodes_without_any_environment_are_reported_instead_of_an_empty_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "_held", lambda *_: [])
    environments.environment(Context())
    assert capsys.readouterr() == ("", "no job has brought an environment to these nodes\n")


@pytest.mark.usefixtures("removed")
def test_what_is_damaged_is_listed_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "_held", lambda *_: [replace(HELD, damaged=("n1",))])
    environments.environment(Context())
    assert "reqs.txt; damaged on n1" in capsys.readouterr().out
    environments.name_damaged(cast("Any", SimpleNamespace(name="n0")), "data")(
        {"id": "hello"}, Malformed("is x")
    )
    assert capsys.readouterr().err == "n0: data hello is damaged and not listed: is x\n"
