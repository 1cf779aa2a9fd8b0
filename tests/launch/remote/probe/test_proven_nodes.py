"""Nodes between which InfiniBand was proven, as a head remembers them: which jobs that holds for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.remote.base.records import Plan
from launch.remote.probe import proven_nodes
from tests.launch.job.test_plan import NODES, SPECS, made


def plan(nodes: int, slots: int) -> Plan:
    return made(replace(SPECS["pytorch"], processes_per_node=slots), NODES[:nodes]).as_dict()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The head's home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ranklift").mkdir()
    return tmp_path


def is_proven(job: Plan, subject: str = "torch") -> bool:
    return proven_nodes.find(proven_nodes.read(), job, subject) is not None


def test_a_proof_holds_for_jobs_on_its_nodes_with_no_more_slots() -> None:
    """A job on more GPUs of a node uses devices that nothing was proven of."""
    proven_nodes.remember([], plan(2, 4), "torch", "InfiniBand", {})
    assert is_proven(plan(2, 4))
    assert is_proven(plan(2, 2))
    assert not is_proven(plan(2, 5))
    assert not is_proven(plan(3, 4))
    assert not is_proven(plan(2, 4), "nccl-tests")


@pytest.mark.parametrize(
    "content", ["{}", "7", "[7]", '[{"subject": "torch"}]', "[", '[{"nodes": 1}]', "null"]
)
def test_what_cannot_be_read_proves_nothing(home: Path, content: str) -> None:
    (home / ".ranklift/probes.json").write_text(content)
    assert not is_proven(plan(2, 1))


def test_what_does_not_hold_is_forgotten_for_its_nodes_alone() -> None:
    proven_nodes.remember([], plan(1, 4), "torch", "InfiniBand", {})
    proven_nodes.remember(proven_nodes.read(), plan(2, 4), "torch", "InfiniBand", {})
    names = [node["name"] for node in plan(2, 4)["nodes"]]
    job = plan(2, 4)
    proven_nodes.forget({**job, "nodes": job["nodes"][1:]})
    assert [one["nodes"] for one in proven_nodes.read()] == [names[:1]]
