"""Choose the project and the stack from files of this machine: without Pulumi, in milliseconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = [
    "IMAGE_PROGRAM",
    "NEWEST",
    "environment_note",
    "note_environment",
    "noted_stack",
]

NEWEST = "newest"
"""What stands for the newest job wherever a job's id is expected."""


IMAGE_PROGRAM = "images/build"
"""The folder, in the project's, of the Pulumi program that makes an image."""


def environment_note(folder: Path, name: str) -> Path:
    """Return the file of a stack's folder that notes what an environment is made of, for completion."""
    return folder / "environments" / name


def note_environment(folder: Path, name: str, title: str) -> None:
    """Note an environment in a stack's folder, so that shells complete its id; a full disk is ignored."""
    note = environment_note(folder, name)
    with suppress(OSError):
        note.parent.mkdir(mode=0o700, exist_ok=True)
        note.write_text(title, errors="backslashreplace")


def noted_stack(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the stack that ``pulumi stack select`` chose, from Pulumi's own note; None without one."""
    home = Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi")
    digest = hashlib.sha1(str(project / "Pulumi.yaml").encode(), usedforsecurity=False).hexdigest()
    note = home / "workspaces" / f"ranklift-{digest}-workspace.json"
    try:
        chosen = json.loads(note.read_text()).get("stack")
    except (OSError, ValueError):
        return None
    return str(chosen).removeprefix("organization/ranklift/") if chosen else None
