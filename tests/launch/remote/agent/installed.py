"""The agent's files as a node has them, in a folder of the test's."""

from __future__ import annotations

from pathlib import Path

from images.cloud_init import agent_files


def install_agent(folder: Path) -> Path:
    """Write what a node has of the agent, and nothing else of ours, into ``folder``; return the program."""
    for name, text in agent_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "watch.py"
