"""What docs/ names is there: files, headings, tasks and their options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from playbooks import ns

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
IDS = [page.name for page in PAGES]


def anchors(page: Path) -> set[str]:
    """The names that headings have as ends of links."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda p: str(p.name)
)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_are_tasks_with_the_options_they_are_shown_with(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?fab ([a-z.]+)( .*)?$", text, re.MULTILINE)
    lines += re.findall(r"`fab ([a-z.]+)( [^`]*)?`", text)
    names = {*ns.task_names, *(alias for names in ns.task_names.values() for alias in names)}
    unknown = []
    for name, rest in lines:
        if name not in names:
            unknown.append(name)
            continue
        known = {flag for argument in ns[name].get_arguments() for flag in argument.names}
        given = re.findall(r"(?<!\S)--([a-z-]+)", re.sub(r'"[^"]*"|#.*', "", rest))
        unknown += [f"{name} --{flag}" for flag in given if flag not in known]
    assert unknown == []


def test_what_is_unknown_would_be_found() -> None:
    assert "exit-statuses" in anchors(ROOT / "docs" / "jobs.md")
    assert "cancel" in ns.task_names
    assert "grace" in {flag for argument in ns["cancel"].get_arguments() for flag in argument.names}
