"""A measurement as one HTML file with its plot, which needs no network."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from launch.scaling.published_lines import SOURCE, published_lines
from launch.scaling.scaling_plot import HEIGHT, WIDTH, make_panels
from launch.scaling.scaling_study import Study
from launch.scaling.scaling_table import columns, rows
from launch.scaling.scaling_verdict import NOT_AZURE, Analysis

__all__ = ["page"]


def page(study: Study, analysis: Analysis) -> str:
    """Return the page; published lines are drawn for the benchmark that they are of."""
    published = published_lines(study.subject.benchmark)
    return _template().render(
        study=study,
        analysis=analysis,
        panels=make_panels(analysis, study.plan.metric, published),
        columns=columns(study),
        rows=rows(study, analysis),
        source=SOURCE if published else "",
        not_azure=NOT_AZURE if study.subject.rehearsed else "",
        width=WIDTH,
        height=HEIGHT,
    )


@cache
def _template() -> Template:
    loader = PackageLoader("launch.scaling", package_path="")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return made.get_template("scaling_page.html.j2")
