"""The heat map of pairs, as an SVG file."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from launch.health.measurement import WARN
from launch.health.search import SearchResult

__all__ = ["heat_map"]

_CELL, _MARGIN = 14, 120


def heat_map(found: SearchResult) -> str:
    """Return the picture: one cell a pair, the redder the slower; pairs that were not measured are grey."""
    names = [one.node for one in found.nodes]
    place = {name: number for number, name in enumerate(names)}
    usual = found.usual_gbs
    cells = {}
    for measured in found.rounds:
        for one in measured:
            if len(one.group) == 2:  # noqa: PLR2004
                ratio = one.gbs / usual if one.gbs is not None and usual else 0.0
                text = one.problem if one.gbs is None else f"{one.gbs:.3g} GB/s, {100 * ratio:.0f} %"
                cells[tuple(sorted(one.group))] = (ratio, f"{' and '.join(one.group)}: {text}")
    drawn = [
        (place[x] * _CELL, place[y] * _CELL, _colour(ratio), text)
        for (a, b), (ratio, text) in cells.items()
        for x, y in ((a, b), (b, a))
    ]
    slow = {one.node for one in found.nodes if one.verdict in ("sick", "suspect")}
    return _template().render(
        names=names, slow=slow, cells=drawn, cell=_CELL, margin=_MARGIN, usual=usual or 0.0, warn=WARN
    )


def _colour(ratio: float) -> str:
    """Return green from :data:`WARN` on, else from yellow to red.

    >>> _colour(1.1), _colour(0.0)
    ('hsl(130 45% 55%)', 'hsl(0 80% 50%)')
    """
    return "hsl(130 45% 55%)" if ratio >= WARN else f"hsl({60 * ratio / WARN:.0f} 80% 50%)"


@cache
def _template() -> Template:
    loader = PackageLoader("playbooks.check", package_path="")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return made.get_template("heat_map.svg.j2")
