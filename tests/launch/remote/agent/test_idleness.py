"""Since when a cluster is idle: nodes that come and go do not restart its clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from launch.remote.agent.autostop import look
from launch.remote.agent.idleness import idleness, numbers
from tests.launch.remote.agent.test_autostop import SET, Azure, Others, lead_request

SPAN = 1800.0


def answers(**idle: float) -> dict[str, dict[str, float]]:
    """Answers of nodes by their seconds without a job; those of new nodes begin with ``new``."""
    return {name: {"idle_s": seconds, "new": name.startswith("new")} for name, seconds in idle.items()}


class TestTheClock:
    def test_it_runs_from_the_last_job_of_any_node(self) -> None:
        assert idleness(answers(a=1700.0, b=200.0), {}, 0.0, SPAN, 1700.0)[0] == 1600.0

    def test_a_node_that_joins_does_not_restart_it(self) -> None:
        assert idleness(answers(a=1000.0, new=10.0), {}, 0.0, SPAN, 1000.0)[0] == 800.0

    def test_a_node_that_has_just_joined_is_left_for_a_while(self) -> None:
        assert idleness(answers(a=1790.0, new=10.0), {}, 0.0, SPAN, 1790.0)[0] == 590.0
        assert idleness(answers(a=290.0, new=10.0), {}, 0.0, 300.0, 290.0)[0] == 140.0

    def test_a_node_that_went_had_the_last_job(self) -> None:
        assert idleness(answers(a=1700.0, new=10.0), {}, 0.0, SPAN, 200.0)[0] == 1600.0

    def test_without_earlier_checks_a_new_node_counts_from_its_boot(self) -> None:
        assert idleness(answers(a=1700.0, new=10.0), {}, 0.0, SPAN, None)[0] == 1790.0

    def test_a_cluster_without_any_job_counts_from_its_first_check(self) -> None:
        first = idleness(answers(new0=60.0, new1=50.0), {}, 0.0, SPAN, None)
        assert first[0] == 1750.0
        later = idleness(answers(new0=960.0, new1=950.0, new2=5.0), {}, 900.0, SPAN, first[1] + 900)
        assert later[0] == 850.0

    def test_a_job_on_a_new_node_counts(self) -> None:
        assert idleness(answers(a=1700.0, b=0.0), {}, 0.0, SPAN, 1690.0)[1] == 0.0

    def test_who_hears_almost_nobody_stops_nobody(self) -> None:
        silent: dict[str, dict[str, float]] = {"a": {}, "b": {}}
        stands = idleness({"": {"idle_s": 400.0}, **silent}, {"a": -1e6, "b": -1e6}, 0.0, 300.0, None)
        assert (stands[0], stands[3]) == (300.0, "1 of 3 nodes answer: too few to stop the cluster")
        assert idleness({"": {"idle_s": 400.0}, "a": {}}, {"a": -1e6}, 0.0, 300.0, None)[0] == 0.0
        assert idleness({"": {"idle_s": 400.0}}, {}, 0.0, 300.0, None)[0] == 0.0


@pytest.mark.parametrize("lie", [-1.0, -9e14, -1e300, 1e15, "0", None, [0]])
def test_a_number_that_can_be_none_of_an_agents_is_dropped(lie: object) -> None:
    assert numbers(json.dumps({"idle_s": lie, "used_s": lie, "leads": True}).encode()) == {"leads": 1.0}


class Joined(Others):
    """Others with their clocks, of whom ``new`` have had no job; a leader says when the last job was."""

    new: tuple[str, ...] = ()
    used_s: float | None = None

    def answers(self, names: list[str]) -> dict[str, dict[str, float]]:
        found = super().answers(names)
        for name, one in found.items():
            one["new"] = name in self.new
            if one.get("leads") and self.used_s is not None:
                one["used_s"] = self.used_s
        return found


@pytest.fixture
def azure() -> Iterator[Azure]:
    made = Azure("node000000", "node000001", "node000002")
    yield made
    made.close()


def checks(azure: Azure, request: dict[str, Any], *rounds: tuple[float, Others]) -> dict[str, Any]:
    """Check once after the other, by the seconds that the leader is idle and the other nodes, with the memory
    of the check before; return the last result. As long passes between two as the leader's idleness grows."""
    before = rounds[0][0]
    for idle, others in rounds:
        if "used" in request["memory"]:
            request["memory"]["used"] -= idle - before
        result = look({**request, "idle_s": idle}, others)
        request["memory"], before = result["memory"], idle
    return result


class TestTheLead:
    def test_nodes_that_are_added_go_with_the_others_when_those_are_due(self, azure: Azure) -> None:
        added = Joined(node000001=400.0, node000002=151.0)
        added.new = ("node000002",)
        before = Others(node000001=200.0, node000002=250.0)
        checks(azure, lead_request(azure, idle_stop=300.0), (200.0, before), (400.0, added))
        assert azure.changes() == [("POST", f"{SET}/delete", {"instanceIds": ["0", "1", "2"]})]

    def test_the_job_of_a_node_that_is_replaced_still_counts(self, azure: Azure) -> None:
        replaced = Joined(node000001=400.0, node000002=200.0)
        replaced.new = ("node000002",)
        before = Others(node000001=200.0, node000002=20.0)
        checks(azure, lead_request(azure, idle_stop=300.0), (200.0, before), (400.0, replaced))
        assert azure.changes() == []

    def test_who_takes_the_lead_knows_the_clock_of_who_had_it(self, azure: Azure) -> None:
        leader = Joined(node000000=250.0)
        leader.used_s = 250.0
        result = checks(azure, lead_request(azure, 1, idle_stop=300.0), (900.0, leader))
        assert abs(time.monotonic() - 250 - result["memory"]["used"]) < 30

    def test_an_answer_of_azure_that_is_not_understood_loses_no_clock(self, azure: Azure) -> None:
        request = lead_request(azure, idle_stop=300.0)
        others = Others(node000001=400.0, node000002=400.0)
        before = checks(azure, request, (100.0, others))["memory"]["used"]
        azure.instead[SET] = (500, {}, b"")
        assert checks(azure, request, (100.0, Others()))["memory"]["used"] == before
