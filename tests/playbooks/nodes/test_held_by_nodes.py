"""What is asked of nodes about their environments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from playbooks.nodes import environments


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
    found = environments._on_all(stack, inventory, lambda _, remote: remote, "listing")
    assert found == {"node000000": expected}
