"""What a command has Python import: each takes its time, at every start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.inventory import INVENTORY_FILE, Inventory, Node
from tests.playbooks.typed import ROOT, fab, write_project


def imports_of(folder: Path, *words: str) -> set[str]:
    """What a command imports in a user's repository."""
    (folder / "fabfile.py").write_text("from playbooks import ns\n")
    ran = fab(folder, *words, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.returncode == 0, ran.stderr
    return {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}


def test_listing_the_tasks_is_quick_because_it_imports_nothing_that_a_task_alone_needs(
    tmp_path: Path,
) -> None:
    """Seconds depend on the machine and on what else it does; what is imported does not."""
    imported = imports_of(tmp_path, "--list")
    assert "playbooks.stack.status" in imported
    heavy = ("azure", "rich", "pulumi", "pulumi_azure_native", "jinja2", "pydantic", "grpc", "aiohttp")
    assert sorted(name for name in imported if name.split(".")[0] in heavy) == []
    # of Invoke: its MockContext and its settings files; and what a check reckons with
    assert {"asyncio", "ssl", "unittest", "yaml", "statistics"} & imported == set()
    work = ("stack.converge", "stack.preflight", "pulumi.drift", "pulumi.run", "nodes.vm_ops")
    needed = {f"playbooks.{name}" for name in work}
    assert sorted(name for name in imported if name in needed) == []


def test_rich_is_imported_by_the_output_alone() -> None:
    importing = re.compile(r"^ *(?:from|import) rich\b", re.MULTILINE)
    found = [path for path in (ROOT / "playbooks").rglob("*.py") if importing.search(path.read_text())]
    assert found == [ROOT / "playbooks/cli/output.py"]


def test_a_launch_of_a_command_line_imports_nothing_that_job_files_and_environments_alone_need(
    tmp_path: Path,
) -> None:
    write_project(tmp_path, "dev")
    node = Node("node000000", 0, "10.0.0.4", "127.0.0.1", 50000, 8, "running")
    saved = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "azureuser", (node,), 0.0)
    (tmp_path / ".ranklift" / "dev").mkdir(parents=True)
    (tmp_path / ".ranklift" / "dev" / INVENTORY_FILE).write_text(json.dumps(asdict(saved)))
    imported = imports_of(tmp_path, "launch.mpi", "hostname", "--dry-run")
    assert "launch.job.plan" in imported
    alone = {"launch.jobfile", "launch.environment.requirements", "launch.environment.registry_secrets"}
    assert (alone | {"infra.config", "yaml"}) & imported == set()


def test_a_job_without_data_and_environment_imports_nothing_that_brings_them() -> None:
    code = """
import sys
from types import SimpleNamespace
from playbooks.data.staging import bring_data
from playbooks.jobs.job_environment import in_environment
plan = SimpleNamespace(spec=SimpleNamespace(environment=None))
assert in_environment(None, None, [], bring_data(None, [], plan, None, None), None, {}) is plan
alone = {"launch.client.stage", "launch.client.environments", "launch.environment.registry_secrets"}
assert not alone & set(sys.modules), alone & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "alone"),
    [
        ("launch.client.submit", "launch.results.collect"),
        ("launch.code.snapshot", "launch.results.folder"),
        ("launch.code.node_code", "launch.remote.store.tree_node"),
        ("playbooks.stack.up", "azure.core"),
    ],
    ids=[
        "a launch and what a collect needs",
        "a snapshot and what writes results",
        "the node code's id and what a push needs",
        "the other commands and what mending needs",
    ],
)
def test_what_another_alone_needs_is_not_imported(module: str, alone: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print({alone!r} in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == "False\n"
