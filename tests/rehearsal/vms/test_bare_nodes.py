"""Nodes without an environment: the system's Python, and nothing of frameworks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rehearsal.daemon import machine_settings
from rehearsal.run_dir import Folder
from tests.rehearsal.node_lab import lab

IMPORT = "python3 -c 'import {0}; print({0}.__path__)'"


def test_a_bare_node_has_the_systems_python_without_the_frameworks_of_this_machine(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "project")

    async def story() -> None:
        view = machine_settings(folder, None, 1, os.environ).view
        async with lab(tmp_path, 1, view=view) as it:
            assert await it.ssh(0, "command -v python3") == (0, "/usr/bin/python3\n")
            status, _ = await it.ssh(0, "python3 -c 'import venv, ensurepip'")
            assert status == 0
            for module in ("torch", "numpy", "mpi4py"):
                status, output = await it.ssh(0, IMPORT.format(module))
                assert status == 1, output
                assert f"ModuleNotFoundError: No module named '{module}'" in output

    asyncio.run(story())


def test_pip_does_not_change_the_systems_python_of_a_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            status, output = await it.ssh(0, "python3 -m pip install --user --no-index nothing")
            assert status == 1
            assert "externally-managed-environment" in output or "No module named pip" in output

    asyncio.run(story())
