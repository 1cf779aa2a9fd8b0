"""Requests for images, and a node's programs, as tests of the head's side need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.remote.environment.image import identity, make

if TYPE_CHECKING:
    from launch.remote.environment.request import EnvironmentRequest

ID = "0123456789abcdef"


def request(reference: str, runtime: str = "charliecloud", **fields: Any) -> EnvironmentRequest:
    wanted: EnvironmentRequest = {
        "kind": "image",
        "requirements": "",
        "constraints": "",
        "python": "",
        "conda": "",
        "channels": [],
        "find_links": [],
        "reference": reference,
        "context": "",
        "dockerfile": "",
        "runtime": runtime,
        "title": reference,
        "nodes": [],
        "registries": {},
    }
    wanted.update(fields)  # type: ignore[typeddict-item]
    return wanted


def made(wanted: EnvironmentRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    """Make the environment as the head does; return its folder and the progress."""
    folder = tmp_path / "environments" / ID
    lines: list[str] = []

    def report(text: str, done: int = 0, total: int = 0) -> None:
        lines.append(f"{text} {done}/{total}" if total else text)

    identity(wanted, report)
    with (tmp_path / "lock").open("w") as lock:
        make(wanted, str(folder), lock.fileno(), report)
    return folder, lines


def unreported(text: str, done: int = 0, total: int = 0) -> None: ...


def install(folder: Path, name: str, line: str = "exit 0") -> None:
    """Put a shell script of one line on a node's PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{line}\n")
    (folder / name).chmod(0o755)
