"""How many nodes a stack's configuration asks for, read as the program reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbooks.project import Stack
from playbooks.stack.building import wanted_of


@pytest.mark.parametrize(
    ("text", "nodes"), [("2", 2), ('" 2 "', 2), ('"+3"', 3), ("x", None), ('"\uff12"', None)]
)
def test_what_the_program_takes_for_a_number_is_one_here_too(
    tmp_path: Path, text: str, nodes: int | None
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config:\n  ranklift:nodeCount: {text}\n")
    assert wanted_of(Stack("dev", tmp_path, {})) == nodes


def test_a_stack_without_a_configuration_asks_for_nothing(tmp_path: Path) -> None:
    assert wanted_of(Stack("dev", tmp_path, {})) is None
