"""What docs/ and the README name is there: files, headings, and commands as they are shown."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path

import pytest
from invoke.exceptions import ParseError
from invoke.parser import Parser

from infra.config.schema import parse
from launch.errors import InputError
from playbooks import ns
from playbooks.cli.command_line import arranged
from rehearsal.arm.core.subscription import OPERATOR

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
EVERY_PAGE = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
# A task gives away the help of its options once; others ask for it too.
CONTEXTS = copy.deepcopy(ns).to_contexts()
LEFT_OUT = ("did not receive required positional arguments", "needed value and was not given one")


def anchors(page: Path) -> set[str]:
    """The names that headings have as ends of links."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda p: str(p.name))
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


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda p: str(p.name))
def test_paths_that_are_named_are_there(page: Path) -> None:
    ours = "bench|catalogue|docs|examples|images|infra|launch|playbooks|rehearsal|requirements|tests|tools"
    named = re.findall(rf"(?<![\w/.-])((?:{ours})/[\w./-]*\w)", page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: str(p.name))
def test_commands_can_be_typed_as_they_are_shown(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$ )?fab ([a-z].*)$", text, re.MULTILINE)
    lines += [line for line in re.findall(r"`fab ([a-z][^`]*)`", text) if "…" not in line]
    assert {line: shown for line in lines if (shown := refused(line))} == {}


def refused(line: str) -> str | None:
    """What the command line's own parser has against ``line``, where that is more than a word left out."""

    words = shlex.split(line, comments=True)
    end = words.index("--") if "--" in words else len(words)
    parser = Parser(contexts=CONTEXTS)
    try:
        parser.parse_argv(arranged(words[:end], words[end + 1 :], parser.contexts))
    except (InputError, ParseError) as error:
        return None if any(shown in str(error) for shown in LEFT_OUT) else str(error)
    return None


def test_every_setting_is_told() -> None:
    with pytest.raises(InputError) as caught:
        parse({"ranklift:zzzz": "1"})
    keys = str(caught.value).partition("known settings: ")[2].partition("\n")[0].split(", ")
    part = (ROOT / "docs" / "azure.md").read_text(encoding="utf-8").partition("\n## Settings\n")[2]
    table = part.partition("\n## ")[0]
    assert "vmSize" in keys
    assert [key for key in keys if f"`{key}`" not in table] == []


def test_what_is_unknown_would_be_found() -> None:
    assert "exit-statuses" in anchors(ROOT / "docs" / "jobs.md")
    assert refused("cancel JOB --grace 10s  # or less") is None
    assert refused("wait A B --timeout 2s") is None
    assert refused("replace") is None
    assert refused('exec -n 0 -- ls "a b"') is None
    assert refused("exec ls -l") is not None
    assert refused("launch.mpi --grace") is None
    assert refused("cancel JOB --mercy 10s") is not None
    assert refused("status 0") is not None
    assert refused("delete JOB") is not None


def test_an_operator_of_a_rehearsal_finds_the_object_id_for_storage() -> None:
    assert OPERATOR in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
