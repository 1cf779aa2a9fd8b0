"""The dashboard asks for metrics that there are, and for each of them."""

from __future__ import annotations

import json
import os
import re

from launch.remote.metrics.families import FAMILIES
from tests.launch.remote.metrics.dashboard import DASHBOARD, make_dashboard, metrics_of, queries

NAMES = {family.name for family in FAMILIES}
NOT_SHOWN = {
    "ranklift_cluster_info",
    "ranklift_job_created_timestamp_seconds",
    "ranklift_job_ended_timestamp_seconds",
    "ranklift_job_exit_status",
    "ranklift_monitor_last_sent_timestamp_seconds",
    "ranklift_monitor_samples_dropped_total",
    "ranklift_monitor_samples_sent_total",
    "ranklift_monitor_up",
}
"""What a table or an alert would use, and no panel does."""


def test_the_file_is_made_of_the_table_here() -> None:
    text = json.dumps(make_dashboard(), indent=2) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        DASHBOARD.write_text(text)
    assert DASHBOARD.read_text() == text


def test_every_metric_that_a_panel_asks_for_is_exported() -> None:
    assert metrics_of(json.loads(DASHBOARD.read_text())) - NAMES == set()


def test_a_panel_that_asks_for_another_is_found() -> None:
    made = make_dashboard()
    made["panels"][1]["targets"][0]["expr"] = "rate(ranklift_node_cpu_seconds_total[1m])"
    assert metrics_of(made) - NAMES == {"ranklift_node_cpu_seconds_total"}


def test_every_metric_has_a_panel_or_a_reason() -> None:
    assert NAMES - metrics_of(make_dashboard()) == NOT_SHOWN


def test_labels_of_queries_and_legends_are_those_of_their_metrics() -> None:
    labels = {family.name: {*family.labels} for family in FAMILIES}
    for panel in make_dashboard()["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"ranklift_[a-z0-9_]+", target["expr"]))
            known = set.intersection(*(labels[name] for name in named))
            asked = set(re.findall(r"(\w+)=~?\"", target["expr"]))
            grouped = {
                one.strip()
                for group in re.findall(r"by \(([^)]*)\)", target["expr"])
                for one in group.split(",")
            }
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert asked | grouped | shown <= known, target


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in make_dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_panel_has_a_query() -> None:
    made = make_dashboard()
    assert len(queries(made)) >= len([panel for panel in made["panels"] if panel["type"] != "row"])


def test_every_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in make_dashboard()["panels"] if not panel.get("description")] == [
        panel["title"] for panel in make_dashboard()["panels"] if panel["type"] == "row"
    ]


def test_a_panel_of_one_value_asks_for_this_moment_alone() -> None:
    """Else a job that has ended would be shown as running too, for as long as the time range has it."""
    for panel in make_dashboard()["panels"]:
        moments = {target.get("instant", False) for target in panel.get("targets", ())}
        assert moments <= {panel["type"] == "stat"}, panel["title"]
