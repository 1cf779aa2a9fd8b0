"""Files of environments that jobs name: ``environments/NAME.yml``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["ENDINGS", "FOLDER", "named_files"]

FOLDER = "environments"
ENDINGS = (".yml", ".yaml")


def named_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files by the environments' names; of two with one name, the one in the first folder."""
    found: dict[str, Path] = {}
    for folder in folders:
        for ending in ENDINGS:
            for path in sorted((folder / FOLDER).glob(f"*{ending}")):
                if path.is_file():
                    found.setdefault(path.stem, path)
    return found
