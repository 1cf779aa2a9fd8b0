"""The agent's files as a node has them, in a folder of the test's."""

from __future__ import annotations

from pathlib import Path

import launch.remote

REMOTE = Path(launch.remote.__file__).parent


def install_agent(folder: Path) -> Path:
    """Put the agent's program, with the modules that it needs and nothing else of ours, into ``folder``."""
    (folder / "agent").mkdir(parents=True)
    for source in (REMOTE / "agent").glob("*.py"):
        (folder / "agent" / source.name).write_bytes(source.read_bytes())
    program = folder / "watch.py"
    program.write_bytes((REMOTE / "__main__.py").read_bytes())
    return program
