"""The README names what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_example_job_stands_in_the_table_with_the_command_that_runs_it() -> None:
    told = set(re.findall(r"`fab launch (examples/[\w-]+/[\w-]+\.yml)`", README))
    assert told == {str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/*.yml")}


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_make_targets_that_are_named_can_be_made() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`?make ([a-z-]+)`?", README)) - {"and", "git"}
    assert targets
    assert [target for target in sorted(targets) if f"\n{target}:" not in makefile] == []
