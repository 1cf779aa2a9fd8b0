"""What commands for a cluster would do, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose stack ``dev`` had a node."""
    top = tmp_path_factory.mktemp("steps")
    write_project(top, "dev", fabfile=True)
    key = make_key(top / "key")
    save_stack(top / ".ranklift" / "dev", {3: 1}, key, key)
    return top


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["up"], ["pulumi up --yes --stack dev", "fab wait --stack dev --timeout "]),
    ],
)
def test_a_dry_run_as_json_is_a_list_of_steps(workplace: Path, words: list[str], steps: list[str]) -> None:
    ran = fab(workplace, *words, "--dry-run", "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr, len(found)) == (0, "", len(steps))
    assert all(line.startswith(step) for line, step in zip(found, steps, strict=True))


def test_a_dry_run_of_a_replacement_asks_the_node_as_the_replacement_does(workplace: Path) -> None:
    ran = fab(workplace, "replace", "node000003", "--yes", "--dry-run", "--json")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "error: node000003 is not replaced\nnode000003: its use is unknown (" in ran.stderr


def test_a_dry_run_of_a_removal_asks_the_nodes_and_names_what_is_unknown(workplace: Path) -> None:
    ran = fab(workplace, "down", "--dry-run", "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    ((node,), (asks,)) = (
        [line for line in found if line.startswith(words)] for words in ("node000003: ", "ask first")
    )
    assert node.startswith("node000003: its jobs and results are unknown: ")
    assert found[-2:] == [
        "pulumi destroy --yes --stack dev",
        f"{workplace}/.ranklift/dev: its keys, ssh_config, inventory and notes of jobs are removed",
    ]
    assert found.index(asks) == len(found) - 3
    assert (workplace / ".ranklift/dev/inventory.json").exists()
