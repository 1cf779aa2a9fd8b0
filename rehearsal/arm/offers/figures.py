"""Figures of the emulated Azure's offer that a test sets in place of the usual ones."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Figures"]


@dataclass(slots=True)
class Figures:
    """Figures in place of the usual ones; sizes and quotas in Azure's spelling."""

    limits: dict[str, int] = field(default_factory=dict)
    """Quota by its name among the usages, e.g. ``standardNDSv2Family``, in vCPUs, in every region."""
    closed: dict[str, str] = field(default_factory=dict)
    """Sizes closed to the subscription, with the reason: ``NotAvailableForSubscription``."""
    prices: dict[tuple[str, bool], float | None] = field(default_factory=dict)
    """USD an hour by size and whether it is a spot VM's; None: the price list has no such meter."""
