"""Sick is a node by the last check of this very cluster, or by what a look finds now."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from infra.inventory import KNOWN_HOSTS_FILE, Inventory, Node
from launch.errors import InputError, NodeUnreachable
from launch.remote.base.health_records import Finding, Look
from playbooks.nodes.host_report import category_of
from playbooks.nodes.sick import (
    Sick,
    Verdict,
    examine,
    keep_measured,
    read_checked,
    sick_nodes,
    write_checked,
)
from playbooks.project import Stack

NODES = tuple(Node(f"node00000{n}", n, "", "", 0, 8, "running") for n in range(4))
INVENTORY = Inventory("dev", "size", "place", "me", NODES)
SLOW = Verdict(1, "sick", ("41 % of its peers' bandwidth in 6 of 6 pairs",), slow="sick")


def finding(level: Any = "error", rule: str = "ib-down") -> Finding:
    return {
        "rule": rule,
        "level": level,
        "subject": "mlx5_ib0:1",
        "measured": "1: DOWN",
        "expected": "4: ACTIVE",
        "source": "sizes.toml",
        "remedy": "replace the node",
    }


def look(*findings: Finding) -> Look:
    return {"findings": list(findings), "gpus": 8, "ports": []}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    made = Stack("dev", tmp_path, {})
    made.folder.mkdir(parents=True)
    (made.folder / KNOWN_HOSTS_FILE).write_text("node000000 ssh-ed25519 AAAA\nnode000001 ssh-ed25519 AAAA\n")
    return made


def test_what_a_check_found_is_read_as_it_was_written(stack: Stack) -> None:
    verdicts = {"node000000": Verdict(0, "healthy"), "node000001": SLOW}
    verdicts["node000002"] = Verdict(2, "sick", findings=(finding(),))
    write_checked(stack, verdicts, rounds=3)
    assert read_checked(stack, time.time()) == verdicts
    assert json.loads((stack.last_check).read_text())["rounds"] == 3


def test_without_a_check_nothing_is_known_of_any_node(stack: Stack) -> None:
    assert read_checked(stack, time.time()) == {}


def test_an_old_check_is_refused_with_its_age(stack: Stack) -> None:
    write_checked(stack, {"node000001": SLOW})
    assert read_checked(stack, time.time() + 23 * 3600)
    with pytest.raises(InputError, match="is 25 hours old; run `fab check --stack dev` again"):
        read_checked(stack, time.time() + 25 * 3600)


def test_the_check_of_an_earlier_cluster_of_that_name_is_refused(stack: Stack) -> None:
    write_checked(stack, {"node000001": SLOW})
    (stack.folder / KNOWN_HOSTS_FILE).write_text("node000000 ssh-ed25519 BBBB\n")
    with pytest.raises(InputError, match="is of an earlier cluster dev; run `fab check"):
        read_checked(stack, time.time())


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"at": 1}', '{"at": "now", "cluster": "", "nodes": {}}'),
        '{"at": 1e12, "cluster": "AAAA", "nodes": {"n": {}}}',
        '{"at": 1, "cluster": "AAAA", "nodes": {"n": {"instance_id": 1, "verdict": "sick", "reasons": 7}}}',
    ],
)
def test_a_torn_check_is_refused_by_its_file(stack: Stack, text: str) -> None:
    stack.last_check.write_text(text)
    with pytest.raises(InputError, match=r"check\.json.*cannot be read"):
        read_checked(stack, 1e12)


def test_sick_is_what_a_check_calls_so_or_a_look_finds_now() -> None:
    verdicts = {"node000001": SLOW, "node000002": Verdict(2, "suspect", ("slow",)), "node000003": SLOW}
    looks: dict[str, Look | Exception] = {
        "node000000": look(finding(), finding("warning")),
        "node000001": look(),
        "node000002": look(finding("warning"), finding("unknown")),
        "node000003": OSError("no route"),
    }
    assert sick_nodes(INVENTORY, verdicts, looks) == [
        Sick(NODES[0], findings=(finding(),)),
        Sick(NODES[1], reasons=SLOW.reasons),  # node 3 has another id than the node of that name had then
    ]


def test_what_a_check_saw_in_a_look_is_not_taken_for_slow() -> None:
    """It would be shown twice, and be reported to Azure as bad performance where the image is at fault."""
    own = finding(rule="fabric-manager")
    verdicts = {"node000000": Verdict(0, "sick", ("nv-fabricmanager: does not run",), (own,))}
    (sick,) = sick_nodes(INVENTORY, verdicts, {"node000000": look(own)})
    assert sick == Sick(NODES[0], (), (own,))
    assert category_of(sick.findings, sick.reasons, infiniband=True) is None


def test_a_look_is_newer_than_a_check() -> None:
    verdicts = {"node000000": Verdict(0, "sick", ("gone", "slow"), (finding(rule="gpu-missing"),), "sick")}
    assert sick_nodes(INVENTORY, verdicts, {"node000000": look(finding())}) == [
        Sick(NODES[0], ("slow",), (finding(),))
    ]
    assert str(Sick(NODES[0], ("slow",), (finding(),))) == "slow; mlx5_ib0:1: 1: DOWN, expected 4: ACTIVE"


def test_the_nodes_are_looked_at_and_those_that_do_not_answer_are_named(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = NodeUnreachable("node000001", "no route to host")
    answers = {"node000000": look(finding()), "node000001": error, "node000002": look()}
    monkeypatch.setattr("playbooks.nodes.look.look", lambda *_: answers)
    assert examine(stack, INVENTORY, NODES[:3], {}) == (
        [Sick(NODES[0], findings=(finding(),))],
        {"node000001": error},
    )


def test_a_job_without_infiniband_minds_no_port(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbooks.nodes.look.look", lambda *_: {"node000000": look(finding())})
    assert examine(stack, INVENTORY, NODES[:1], {}, {"NCCL_IB_DISABLE": "1"}) == ([], {})


def test_a_look_does_not_clear_a_node_that_was_measured_as_slow() -> None:
    slow = {"node000001": Verdict(1, "sick", ("41 %",), slow="sick", measured_at=1000.0)}
    looked = {"node000000": Verdict(0, "healthy"), "node000001": Verdict(1, "suspect", ("warm",))}
    kept = keep_measured(looked, slow, (), 2000.0)
    assert kept["node000001"].verdict == "sick"
    assert kept["node000001"].reasons == ("warm", "41 %, by an earlier check")
    again = keep_measured({"node000000": Verdict(0, "healthy")}, kept, (), 3000.0)
    assert again["node000001"].reasons == ("41 %, by an earlier check",)
    assert again["node000001"].measured_at == 1000.0, "a look renews no measurement"


def test_a_measurement_a_replacement_and_a_day_end_what_was_measured() -> None:
    slow = {"node000001": Verdict(1, "sick", ("41 %",), slow="sick", measured_at=1000.0)}
    healthy = {"node000001": Verdict(1, "healthy")}
    assert keep_measured(healthy, slow, ("node000001",), 2000.0) == healthy
    assert keep_measured(healthy, slow, (), 1001.0 + 24 * 3600) == healthy
    fresh = {"node000001": Verdict(7, "healthy")}
    assert keep_measured(fresh, slow, (), 2000.0) == fresh


def test_a_slow_verdict_has_the_time_of_its_check() -> None:
    found = {"node000001": Verdict(1, "sick", ("41 %",), slow="sick")}
    assert keep_measured(found, {}, ("node000001",), 2000.0)["node000001"].measured_at == 2000.0
