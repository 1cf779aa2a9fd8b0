"""The README and the pages of its long tables name what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "training-guide.md").read_text(encoding="utf-8")
MEASURED = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
LONGEST = 200


def test_every_example_job_stands_in_the_table_with_the_command_that_runs_it() -> None:
    shown = set(re.findall(r"`fab launch (examples/[\w-]+/[\w-]+\.yml)`", GUIDE))
    assert shown == {str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/*.yml")}


def test_it_can_be_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= LONGEST


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_make_targets_that_are_named_can_be_made() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`?make ([a-z-]+)`?", README)) - {"and", "git"}
    assert targets
    assert [target for target in sorted(targets) if f"\n{target}:" not in makefile] == []


def measured(bench: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{bench}.json").read_text())["figures"]


def test_figures_are_those_of_the_last_runs() -> None:
    rows = [
        f"| {one['nodes']} | {one['up_s']:.2f} | {one['down_s']:.2f} | {one['memory_gb']:.2f} |"
        for one in measured("scale")["rounds"]
    ]
    for count, seconds in measured("fanout")["seconds"].items():
        medians = " | ".join(f"{median(runs):.2f}" for runs in seconds.values())
        assert f"| | {' | '.join(seconds)} |".replace("fab exec", "`fab exec`") in MEASURED
        rows.append(f"| {count} nodes | {medians} |")
    launch, push = measured("launch")["launch_s"], measured("launch")["push_s"]
    few, many = launch["8 nodes"], launch["64 nodes"]
    for name, label in (
        ("fab launch.mpi", "`hostname` by `fab launch.mpi` on 8 / 64 nodes"),
        ("mpirun on the head", "the same by mpirun, typed on the head"),
    ):
        rows.append(f"| {label} | {median(few[name]):.2f} / {median(many[name]):.2f} |")
    again = median(push["fab push, unchanged"])
    rows.append(f"| `fab push`, and again unchanged | {median(push['fab push']):.1f}, {again:.2f} |")
    rows.append(f"| rsync to each, all at once | {median(push['rsync']):.1f} |")
    assert [row for row in rows if row not in MEASURED] == []
