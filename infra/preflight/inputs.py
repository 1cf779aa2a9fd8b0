"""The answers that a plan is decided from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.preflight.availability import ScaleSet, Usage
from infra.preflight.existing import Kept
from infra.preflight.marketplace import Published
from infra.preflight.meters import Meter
from infra.preflight.prices import Prices
from infra.preflight.storage_firewall import Firewall
from launch.errors import RankliftError

__all__ = ["Figures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All answers; an error stands for one that is missing."""

    prices: Mapping[str, Prices | RankliftError]
    """By size."""
    meters: Mapping[Meter, float | RankliftError | None] = field(default_factory=dict)
    usages: Sequence[Usage] | RankliftError
    skus: Sequence[Mapping[str, Any]] | RankliftError
    there: ScaleSet | RankliftError | None = None
    server: str | RankliftError | None = None
    """Size of the existing server of the shared storage, if the configuration has one."""
    kept: Sequence[Kept] | RankliftError = ()
    """Existing groups that the configuration would make and Pulumi's state lacks."""
    rights: Sequence[str] | RankliftError = ()
    """Ids of the nodes' role assignments on an existing storage account that Pulumi's state lacks."""
    firewall: Firewall | RankliftError | None = None
    """Firewall of the existing storage account; ``None`` if none is configured, or Azure has none."""
    image: Published | RankliftError | None = None
    """The nodes' marketplace image; ``None`` for one of the user's own."""
    elsewhere: Sequence[str] | None = None
    """Regions that offer the size, if queried."""
