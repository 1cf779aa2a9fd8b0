"""What a check says of nodes: the worst of its look and of what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Literal

from infra.inventory import Node
from launch.errors import NodeUnreachable
from launch.health.bandwidth_programs import figure_of, program_of
from launch.health.measurement import Figure, NodeBandwidth
from launch.health.search import SearchResult, search, search_all_pairs
from launch.remote.base.health_records import Finding, Look
from playbooks.check.heat_map import heat_map
from playbooks.check.report import format_search, make_report
from tests.launch.health.networks import Network, names

Level = Literal["error", "warning", "unknown"]
SIZE = "Standard_ND96isr_H100_v5"
FIGURE = Figure(450.0, 400.0, 300.0, "a source")
ALL = names(8)
NODES = tuple(
    Node(name, number, f"10.0.0.{4 + number}", "x", 1, 8, "running") for number, name in enumerate(ALL)
)


def seen(*findings: Finding) -> Look:
    return {"findings": list(findings), "gpus": 8, "ports": []}


def finding(level: Level) -> Finding:
    return {
        "rule": "ib-rate",
        "level": level,
        "subject": "mlx5_ib0:1",
        "measured": "100 Gb/sec",
        "expected": "400 Gb/sec",
        "source": "a source",
        "remedy": "`fab replace 1`",
    }


def measured(slow: float = 180.0) -> SearchResult:
    return search(ALL, Network(usual=440.0, nodes={ALL[3]: slow}, noise=0.001).measure, FIGURE)


def test_a_node_is_as_bad_as_the_worst_that_was_found() -> None:
    looks: dict[str, Look | Exception] = {name: seen() for name in ALL}
    looks[ALL[0]] = seen(finding("warning"))
    looks[ALL[1]] = seen(finding("warning"), finding("error"))
    looks[ALL[2]] = NodeUnreachable(ALL[2], "no route")
    report = make_report(SIZE, NODES, looks, {}, program_of(SIZE, None), measured())
    assert [report.nodes[name].verdict for name in ALL[:5]] == [
        "suspect",
        "sick",
        "unknown",
        "sick",
        "healthy",
    ]
    assert report.nodes[ALL[1]].reasons[0] == (
        "mlx5_ib0:1: 100 Gb/sec, expected 400 Gb/sec (a source); `fab replace 1`"
    )
    assert report.nodes[ALL[2]].reasons == ("does not answer: no route",)
    (reason,) = report.nodes[ALL[3]].reasons
    assert reason.startswith("41 % of its peers' bandwidth in ")
    assert not report.is_healthy


def test_a_look_alone_at_nodes_without_findings_is_healthy() -> None:
    report = make_report(SIZE, NODES, {name: seen() for name in ALL}, {}, None, None)
    assert {one.verdict for one in report.nodes.values()} == {"healthy"}
    assert report.is_healthy


def test_nodes_of_a_size_without_a_row_do_not_pass() -> None:
    no_row: Finding = {**finding("unknown"), "rule": "size"}
    report = make_report("Standard_X", NODES, {name: seen(no_row) for name in ALL}, {}, None, None)
    assert {one.verdict for one in report.nodes.values()} == {"unknown"}
    assert not report.is_healthy


def test_a_figure_that_no_source_gives_is_no_fault_of_the_nodes() -> None:
    looks = {name: seen(finding("unknown")) for name in ALL}
    assert make_report(SIZE, NODES, looks, {}, None, None).is_healthy


def test_the_cluster_is_stated_as_a_part_of_its_sizes_figure() -> None:
    found = search(ALL, Network(usual=432.0, noise=0.0).measure, figure_of(SIZE, program_of(SIZE, None)))
    (line,) = format_search(found)
    assert line.startswith("8 nodes together: 432 GB/s each, 96 % of 450 GB/s (ai-infrastructure-on-azure")
    assert line.endswith("; 1 round")


def test_what_is_below_the_reporting_limit_is_said_and_the_rest_without_the_slow_node() -> None:
    lines = format_search(measured())
    assert lines[0].startswith("8 nodes together: 180 GB/s each, 40 % of 450 GB/s")
    assert lines[1].startswith("7 nodes without them: 440 GB/s each, 98 % of 450 GB/s")
    assert lines[-1] == "less than 300 GB/s is worth a report to Azure"


def test_a_slow_path_is_named_by_its_ends() -> None:
    found = search_all_pairs(ALL, Network(paths={(ALL[1], ALL[4]): 40.0}, noise=0.001).measure)
    assert format_search(found)[1].startswith("node000001 and node000004: 40 % of their peers' bandwidth")


def test_the_heat_map_has_each_measured_pair_twice_and_marks_slow_nodes() -> None:
    found = search_all_pairs(ALL, Network(nodes={ALL[3]: 41.0}, noise=0.001).measure)
    root = ET.fromstring(heat_map(found))
    space = "{http://www.w3.org/2000/svg}"
    titles = [one.text or "" for one in root.iter(f"{space}title")][1:]
    assert len(titles) == 8 * 7
    assert sum(title.startswith("node000003 and node000004: 41") for title in titles) == 2
    red = {one.text for one in root.iter(f"{space}text") if one.get("fill") == "#c00"}
    assert red == {ALL[3]}


def test_an_unstable_node_is_unknown_and_the_check_does_not_pass() -> None:
    unstable = NodeBandwidth(ALL[3], "unknown", "unstable: …", is_unstable=True)
    found = measured(440.0)
    report = make_report(
        SIZE,
        NODES,
        {name: seen() for name in ALL},
        {},
        program_of(SIZE, None),
        replace(found, nodes=(unstable,)),
    )
    assert (report.nodes[ALL[3]].verdict, report.nodes[ALL[3]].slow) == ("unknown", "")
    assert report.nodes[ALL[3]].reasons == ("unstable: …",)
    assert not report.is_healthy
