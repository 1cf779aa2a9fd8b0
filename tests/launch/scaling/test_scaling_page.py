"""The page: whole by itself, escaped, with published lines where they belong."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from launch.scaling.published_lines import RESNET50, published_lines
from launch.scaling.scaling_page import page
from launch.scaling.scaling_plan import ScalingPlan
from launch.scaling.scaling_plot import make_panels
from launch.scaling.scaling_study import Study
from launch.scaling.scaling_verdict import NOT_AZURE, analyse
from tests.launch.scaling.studies import PLAN, SUBJECT, study

MEASURED = study({1: [100.0, 101.0], 2: [190.0, 191.0], 4: [340.0, 345.0]})


def of(made: Study) -> str:
    return page(made, analyse(made))


class Tags(HTMLParser):
    """Checks that elements are closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_well_formed_and_asks_the_network_for_nothing() -> None:
    text = of(MEASURED)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert [tag for tag, _ in tags.seen].count("circle") == 6
    assert "default-src 'none'" in text
    assert "http:" not in text
    assert "https:" not in text
    assert not re.search(r"<script|src=|@import|url\(", text)


def test_names_are_escaped() -> None:
    plan: ScalingPlan = replace(MEASURED.plan, metric="<b>(x)")
    text = of(replace(MEASURED, plan=plan, subject=replace(SUBJECT, name="<script>alert(1)</script>")))
    assert "<script>" not in text
    assert "<b>" not in text


def test_published_lines_are_behind_the_benchmark_that_they_are_of_alone() -> None:
    text = of(replace(MEASURED, subject=replace(SUBJECT, benchmark=RESNET50)))
    assert text.count("published: V100, InfiniBand") == 1
    assert "BatchAIHorovodBenchmark" in text
    assert text.index('class="published"') < text.index("<circle", text.index("part of linear"))
    assert "published:" not in of(MEASURED)
    assert published_lines("another") == ()


def test_published_lines_end_at_32_gpus_with_57_and_37_percent() -> None:
    ends = {line.name: line.points[-1] for line in published_lines(RESNET50)}
    assert {name: (gpus, round(100 * part)) for name, (gpus, part) in ends.items()} == {
        "V100, InfiniBand": (32, 57),
        "V100, TCP": (32, 37),
        "P100, InfiniBand": (32, 78),
        "P100, TCP": (32, 53),
    }


def test_a_rehearsal_is_never_shown_as_azure() -> None:
    text = of(replace(MEASURED, subject=replace(SUBJECT, rehearsed=True, benchmark=RESNET50)))
    assert f'<p class="notice">{NOT_AZURE}</p>' in text
    assert NOT_AZURE not in of(MEASURED)


def test_the_plot_rises_with_throughput_and_marks_what_is_undecided() -> None:
    made = study({1: [100.0, 100.0], 2: [150.0, 151.0], 4: [390.0, 420.0]})
    throughput, efficiency = make_panels(analyse(made), "m", ())
    assert [mark.y for mark in throughput.marks] == sorted((m.y for m in throughput.marks), reverse=True)
    assert [mark.is_decided for mark in efficiency.marks] == [True, True, False]
    inside = [mark for panel in (throughput, efficiency) for mark in panel.marks]
    assert all(62 <= mark.x <= 410 and 28 <= mark.high <= mark.y <= mark.low <= 260 for mark in inside)


def test_nothing_measured_is_a_page_too() -> None:
    assert "nothing is measured yet" not in of(MEASURED)
    assert "0 of 9 runs are measured" in of(Study(PLAN, SUBJECT))
