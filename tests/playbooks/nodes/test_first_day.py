"""The report of a first day on Azure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from playbooks.nodes import first_day_probe
from playbooks.nodes.first_day import QUESTIONS, Findings, NodeAnswer, ScaleSetFacts, report

SUBSCRIPTION = "12345678-aaaa-4bbb-8ccc-1234567890ab"
LIMITS = Path(__file__).parents[3] / "docs/rehearsal-limits.md"


def node(cloud: str = "AzurePublicCloud", **tags: str) -> NodeAnswer:
    return {
        "cloud_init_errors": [f"('x', OSError('/subscriptions/{SUBSCRIPTION}'))"],
        "system_disk": {"total_gib": 30.0, "free_gib": 4.5},
        "rdma_ports": ["mlx5_ib0:1 InfiniBand, 4: ACTIVE, 100 Gb/sec (4X EDR)"],
        "ucx_devices": "unknown: no ucx_info",
        "seconds_from_boot_to_ready": 81.5,
        "imds": {"cloud": cloud, "image": "microsoft-dsvm:ubuntu-hpc:2204-v100:1", "tags": tags},
    }


def made(cloud: str = "AzurePublicCloud", **more: NodeAnswer) -> dict[str, Any]:
    scale_set = ScaleSetFacts({"owner": "ada", "ttl": "5"}, "Manual", 4, ["Succeeded"] * 2 + ["Failed"], 1)
    nodes: dict[str, NodeAnswer] = {
        "node000000": node(cloud, owner="ada", ttl="4"),
        "node000001": node(cloud, owner="ada", ttl="5", more="x"),
        "node000002": {"error": "no answer"},
        **more,
    }
    return report(Findings("dev", "Standard_ND40rs_v2", 4, scale_set, nodes), "2026-11-22T20:00:00+00:00")


def test_every_question_is_answered_as_far_as_the_nodes_show_it() -> None:
    answers = {name: one["answer"] for name, one in made()["answers"].items()}
    assert answers["imds-tags"] == {
        "upgrade_policy": "Manual",
        "instances_without_latest_model": 1,
        "tags_of_nodes_and_scale_set": {
            "node000000": "differ: ttl",
            "node000001": "differ: more",
            "node000002": "no answer",
        },
    }
    assert answers["partial-allocation"] == {
        "nodes_wanted": 4,
        "capacity": 4,
        "instances_by_provisioning_state": {"Succeeded": 2, "Failed": 1},
    }
    assert answers["image"]["node000000"]["image"] == "microsoft-dsvm:ubuntu-hpc:2204-v100:1"
    assert answers["image"]["node000000"]["system_disk"]["free_gib"] == 4.5
    assert answers["devices"]["node000001"]["rdma_ports"][0].startswith("mlx5_ib0:1 InfiniBand")
    assert answers["times"] == {
        "node000000": {"seconds_from_boot_to_ready": 81.5},
        "node000001": {"seconds_from_boot_to_ready": 81.5},
        "node000002": "no answer",
    }


IMDS = node()["imds"]


@pytest.mark.parametrize(
    ("answer", "image"),
    [
        ({}, None),
        ({"imds": "unknown: no agent"}, None),
        ({"imds": IMDS}, {"image": "microsoft-dsvm:ubuntu-hpc:2204-v100:1"}),
        ({"imds": IMDS, "error": "odd"}, {"image": "microsoft-dsvm:ubuntu-hpc:2204-v100:1"}),
        ({"gpus": "unknown: none"}, {"gpus": "unknown: none"}),
        ({"error": "no answer"}, "no answer"),
    ],
)
def test_whatever_one_node_leaves_out_the_others_answers_stay(answer: NodeAnswer, image: object) -> None:
    answers = {name: one["answer"] for name, one in made(odd=answer)["answers"].items()}
    assert answers["image"].pop("odd") == image
    del answers["times"]["odd"], answers["devices"]["odd"]
    del answers["imds-tags"]["tags_of_nodes_and_scale_set"]["odd"]
    assert answers == {name: one["answer"] for name, one in made()["answers"].items()}


def test_it_says_where_it_was_made() -> None:
    assert made()["where"] == "AzurePublicCloud"
    assert made("RankliftRehearsal")["where"] == "rehearsal"


def test_ids_and_values_of_tags_are_not_in_it() -> None:
    text = json.dumps(made())
    assert SUBSCRIPTION not in text
    assert "/subscriptions/<id>" in text
    assert "ada" not in text


def test_the_probe_answers_on_a_machine_that_has_nothing_of_azure() -> None:
    program = Path(first_day_probe.__file__).read_bytes()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"], input=program, capture_output=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    assert answer["system_disk"]["total_gib"] > 0
    assert str(answer["components"]).startswith("unknown: ")


def test_the_docs_name_every_question() -> None:
    text = LIMITS.read_text()
    for question in QUESTIONS:
        assert f"`{question.name}`" in text
