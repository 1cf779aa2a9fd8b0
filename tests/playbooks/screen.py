"""A terminal of a chosen width, and what it shows, held by golden files."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

__all__ = ["Terminal", "hold", "screen"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(monkeypatch: pytest.MonkeyPatch, columns: int, *, colours: bool) -> Terminal:
    """The terminal that is stdout from here on."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def hold(shown: str, golden: Path) -> None:
    """Compare with the golden file, or write it with WRITE_GOLDEN=1."""
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(shown)
    assert shown == golden.read_text()
