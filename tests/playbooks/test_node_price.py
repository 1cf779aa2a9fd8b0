"""What an update keeps of the nodes' price, and what a launch puts into a job's plan."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from infra.inventory import Inventory
from playbooks.node_price import save_price, saved_price
from playbooks.project import Stack

INVENTORY = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "me", ())


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack("dev", tmp_path, {})


def keep(stack: Stack, per_hour: float | None = 22.032, *, spot: bool = False) -> None:
    save_price(stack, INVENTORY.size, INVENTORY.location, per_hour, spot=spot)


@pytest.mark.parametrize(("spot", "kind"), [(False, "regular"), (True, "spot")])
def test_a_price_is_read_with_its_kind_and_the_day_of_the_price_list(
    stack: Stack, spot: bool, kind: str
) -> None:
    keep(stack, spot=spot)
    price = saved_price(stack, INVENTORY)
    assert price is not None
    assert (price["per_hour"], price["currency"], price["kind"]) == (22.032, "USD", kind)
    assert re.fullmatch(r"Azure Retail Prices, read on \d{4}-\d\d-\d\d", price["source"])


def test_without_a_kept_price_there_is_none(stack: Stack) -> None:
    assert saved_price(stack, INVENTORY) is None


def test_a_price_that_has_become_unknown_is_removed(stack: Stack) -> None:
    keep(stack)
    keep(stack, None)
    assert saved_price(stack, INVENTORY) is None
    keep(stack, None)


@pytest.mark.parametrize(
    "other",
    [replace(INVENTORY, size="Standard_NC24rs_v3"), replace(INVENTORY, location="westeurope")],
    ids=["size", "location"],
)
def test_a_price_of_other_nodes_is_not_theirs(stack: Stack, other: Inventory) -> None:
    keep(stack)
    assert saved_price(stack, other) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000])
def test_a_damaged_file_has_none(stack: Stack, text: str) -> None:
    keep(stack)
    stack.node_price.write_text(text)
    assert saved_price(stack, INVENTORY) is None


@pytest.mark.parametrize("per_hour", ["1", None, 0, -1.0, float("inf"), True])
def test_a_price_that_is_none_counts_as_damaged(stack: Stack, per_hour: object) -> None:
    keep(stack)
    record = json.loads(stack.node_price.read_text())
    stack.node_price.write_text(json.dumps({**record, "per_hour": per_hour}))
    assert saved_price(stack, INVENTORY) is None


def test_it_goes_with_the_other_files_of_the_stack(stack: Stack) -> None:
    keep(stack)
    stack.forget()
    assert not stack.node_price.exists()
