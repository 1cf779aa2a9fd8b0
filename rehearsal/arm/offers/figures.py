"""What a test sets of the emulated Azure's offer, where the usual figures will not do."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Figures"]


@dataclass(slots=True)
class Figures:
    """Figures that are not the usual ones; sizes and quotas in Azure's spelling."""

    limits: dict[str, int] = field(default_factory=dict)
    """Quota by its name among the usages, e.g. ``standardNDSv2Family``, in vCPUs, in every region."""
    closed: dict[str, str] = field(default_factory=dict)
    """Sizes that the subscription may not have, with the reason: ``NotAvailableForSubscription``."""
    prices: dict[tuple[str, bool], float | None] = field(default_factory=dict)
    """USD an hour by size and whether it is a spot VM's; None: the price list has no such meter."""
