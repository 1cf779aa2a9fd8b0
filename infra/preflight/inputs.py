"""What is asked before a cluster is made, and the ways in which the answers can speak against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.preflight.availability import ScaleSet, Usage
from infra.preflight.existing import Kept
from infra.preflight.meters import Meter
from infra.preflight.prices import Prices
from infra.preflight.storage_firewall import Firewall
from launch.errors import RankliftError

__all__ = ["Figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was asked before; an error stands for what could not be had."""

    prices: Mapping[str, Prices | RankliftError]
    """By size."""
    meters: Mapping[Meter, float | RankliftError | None] = field(default_factory=dict)
    usages: Sequence[Usage] | RankliftError
    skus: Sequence[Mapping[str, Any]] | RankliftError
    there: ScaleSet | RankliftError | None = None
    server: str | RankliftError | None = None
    """Size of the NFS server that is there, where the configuration has one."""
    kept: Sequence[Kept] | RankliftError = ()
    """The groups that the configuration would make, and that are there without Pulumi's knowing of them."""
    rights: Sequence[str] | RankliftError = ()
    """Ids of the nodes' role assignments on a given storage account that Pulumi does not know of."""
    firewall: Firewall | RankliftError | None = None
    """That of a given storage account; ``None`` where there is no such account, given or not."""
    elsewhere: Sequence[str] | None = None
    """Regions that offer the size, where that was asked for."""
