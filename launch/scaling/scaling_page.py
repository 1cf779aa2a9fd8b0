"""A measurement as one HTML file with its plot, which needs no network."""

from __future__ import annotations

from launch.html_page import html_page
from launch.scaling.published_lines import SOURCE, published_lines
from launch.scaling.scaling_plot import HEIGHT, WIDTH, make_panels
from launch.scaling.scaling_study import Study
from launch.scaling.scaling_table import columns, rows, sources
from launch.scaling.scaling_verdict import NOT_AZURE, Analysis

__all__ = ["page"]


def page(study: Study, analysis: Analysis) -> str:
    """Return the page; published lines are drawn for the benchmark that they are of."""
    published = published_lines(study.subject.benchmark)
    return html_page(
        "launch.scaling",
        "scaling_page.html.j2",
        None,
        study=study,
        analysis=analysis,
        panels=make_panels(analysis, study.plan.metric, published),
        columns=columns(study),
        rows=rows(study, analysis),
        sources=sources(study),
        source=SOURCE if published else "",
        not_azure=NOT_AZURE if study.subject.rehearsed else "",
        width=WIDTH,
        height=HEIGHT,
    )
