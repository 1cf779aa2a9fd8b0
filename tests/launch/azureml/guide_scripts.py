"""The submit scripts of the training guide, as they stand there, and what is changed in them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["GUIDE", "moved", "original"]

GUIDE = Path(__file__).parent / "guide"
"""One file a script; what a script takes from the paragraphs before it, tests give it."""


def original(name: str) -> str:
    """A script as the guide has it."""
    return (GUIDE / f"{name}.txt").read_text()


def moved(text: str) -> str:
    """The script with its import lines changed, as the documentation asks of users."""
    return re.sub(
        r"^from azureml(\.core\b|(?=\.exceptions\b))", "from launch.azureml", text, flags=re.MULTILINE
    )
