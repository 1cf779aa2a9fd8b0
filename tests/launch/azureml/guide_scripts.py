"""The submit scripts of the training guide, as they stand there."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GUIDE", "original"]

GUIDE = Path(__file__).parent / "guide"
"""One file a script; what a script takes from the paragraphs before it, tests give it."""


def original(name: str) -> str:
    """A script as the guide has it."""
    return (GUIDE / f"{name}.txt").read_text()
