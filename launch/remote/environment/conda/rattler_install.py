"""Solve and install packages by py-rattler: a program for the Python of its own that has it.

The request is JSON on stdin; py-rattler's own text is on stdout where it fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _install(request: dict[str, Any]) -> None:
    from rattler import (
        ChannelPriority,
        Gateway,
        Subdir,
        VirtualPackage,
        VirtualPackageOverrides,
        install,
        solve,
    )
    from rattler.networking import Client

    client = Client.default_client()
    specs = request["specs"]
    cache = Path(str(request["cache"]))
    _write(f"Solving for {', '.join(specs)} from {', '.join(request['channels'])}")
    records = await solve(
        request["channels"],
        specs,
        gateway=Gateway(cache_dir=cache / "repodata", client=client),
        platforms=[Subdir(request["platform"]), Subdir("noarch")],
        virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),
        channel_priority=ChannelPriority[str(request["priority"]).capitalize()],
        channel_relations="disabled",  # what a channel adds by itself, conda does not search
    )
    size = sum(record.size or 0 for record in records)
    _write(f"Resolved {len(records)} packages, {size / 1e6:.0f} MB")
    await install(
        records,
        target_prefix=str(request["prefix"]),
        cache_dir=cache / "packages",
        installed_packages=[],
        platform=Subdir(request["platform"]),
        execute_link_scripts=True,  # as conda does
        show_progress=False,
        client=client,
    )
    _write(f"Installed {len(records)} packages")


def main() -> int:
    """Return the exit status."""
    try:
        asyncio.run(_install(json.load(sys.stdin)))
    except Exception as error:  # noqa: BLE001  (each of its errors is a class of its own)
        _write(str(error) or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    # Without the interpreter's end, in which threads of py-rattler that have not ended yet crash it.
    os._exit(main())
