"""The list price of a stack's nodes: kept by the update that made them, for the jobs that they run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from infra.json_records import read_record
from launch.remote.base.files import replace_file
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.remote.base.phase_records import PlannedPrice

__all__ = ["save_price", "saved_price"]


@dataclass(frozen=True, slots=True)
class _Price:
    """The price of one node, and of which nodes."""

    size: str
    location: str
    per_hour: float
    """USD."""
    spot: bool
    source: str


def save_price(stack: Stack, size: str, location: str, per_hour: float | None, *, spot: bool) -> None:
    """Keep the price of a node in USD per hour, read today; without one, remove what was kept before."""
    if per_hour is None:
        stack.node_price.unlink(missing_ok=True)
        return
    source = f"Azure Retail Prices, read on {datetime.now(UTC):%Y-%m-%d}"
    text = json.dumps(asdict(_Price(size, location, per_hour, spot, source))) + "\n"
    stack.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(str(stack.node_price), text.encode())


def saved_price(stack: Stack, inventory: Inventory) -> PlannedPrice | None:
    """Return the price that was kept of such nodes; None without one, and where its file is damaged."""
    try:
        found = _Price(**read_record(json.loads(stack.node_price.read_text()), _Price))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    if (found.size, found.location) != (inventory.size, inventory.location):
        return None
    if not (math.isfinite(found.per_hour) and found.per_hour > 0):
        return None
    return {
        "per_hour": found.per_hour,
        "currency": "USD",
        "kind": "spot" if found.spot else "regular",
        "source": found.source,
    }
