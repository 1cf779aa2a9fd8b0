"""What an operator installs is what the packages import: nothing is required that nothing uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("catalogue", "images", "infra", "launch", "playbooks", "rehearsal")
MODULE = re.compile(r"[a-z_]\w*(\.\w+)+")


def required(name: str) -> list[str]:
    """The distributions that ``requirements/<name>.in`` asks for."""
    lines = (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
    return [found.group() for line in lines if (found := re.match(r"[A-Za-z0-9][\w.-]*", line))]


@pytest.fixture(scope="module")
def imported() -> set[str]:
    return set(names())


def names() -> Iterator[str]:
    """Every module that a package imports, or names in a string: the emulated ARM looks its models up."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Import():
                    yield from (alias.name for alias in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield module
                    yield from (f"{module}.{alias.name}" for alias in node.names)
                case ast.Constant(value=str(text)) if MODULE.fullmatch(text):
                    yield text


def modules(distribution: str) -> set[str]:
    """The packages and modules that a distribution brings; of a namespace, what lies in it."""
    found = set()
    for file in metadata.files(distribution) or []:
        if file.suffix == ".py" or ".so" in file.suffixes:
            parts = (
                file.parent.parts
                if file.stem == "__init__"
                else (*file.parent.parts, file.name.split(".")[0])
            )
            found.add(".".join(parts))
    return found


PROGRAMS = {"py-spy"}
"""Distributions of a program alone, which is run."""


@pytest.mark.parametrize("distribution", sorted({*required("base"), *required("rehearsal")} - PROGRAMS))
def test_what_is_required_is_imported(distribution: str, imported: set[str]) -> None:
    assert modules(distribution) & imported
