"""What is known of each Azure size: its GPUs, its InfiniBand, its image, its end.

The figures are data, in ``sizes.json``, each row with its source; an absent figure is one that no source
gave. A name with ``*`` stands for a whole family of which only the shortcoming is known.

>>> size = lookup("standard_nd40RS_v2")
>>> size.name, size.slots, size.hcas, size.hca_gbps
('Standard_ND40rs_v2', 8, 1, 100)
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Literal

from launch.errors import InputError

__all__ = ["Refusal", "Size", "catalogue", "lookup", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One row of the catalogue; ``None`` where no source gives the figure."""

    name: str
    """Azure's spelling."""
    source: str
    vcpus: int | None = None
    memory_gib: int | None = None
    """What Azure sells."""
    seen_memory_gib: int | None = None
    """What Azure's node health check expects the operating system to report."""
    gpu: str | None = None
    """Model; ``None`` for a size without GPUs, and for a family of several models."""
    gpus: int | None = None
    """GPUs, 0 for a size without."""
    gpu_memory_gib: int | None = None
    """Of each GPU."""
    gpu_arch: str | None = None
    cpu_arch: Literal["x64", "Arm64"] = "x64"
    rdma: bool
    """Has InfiniBand adapters at all."""
    sriov: bool
    """Shows them to the VM as InfiniBand devices, which MPI, NCCL and UCX need."""
    hcas: int
    hca_gbps: int | None = None
    """Of each adapter, in Gb/s."""
    link: Literal["FDR", "EDR", "HDR", "NDR"] | None = None
    hyperv: Literal["Gen2"] | None = None
    """``Gen2`` where the size takes no other image."""
    accelerated_networking: bool | None = None
    local_disk: str | None = None
    """Disks of the host that can hold the operating system, in words; ``None`` when none is known."""
    image: Literal["ubuntu", "ubuntu-v100", "ubuntu-rocm"] | None = None
    """Which default image fits (:mod:`images.os_images`); ``None`` when the user has to name one."""
    retired: bool = False
    """Gone, whatever ``retirement`` says: the day it went is not always known."""
    retirement: date | None = None
    """The day on which Azure deallocates its VMs."""
    instead: str | None = None
    """The nearest size that does what this one does not."""
    note: str | None = None

    @property
    def slots(self) -> int | None:
        """Processes a node can take: its GPUs, or its vCPUs when it has none; ``None`` when unknown."""
        return self.gpus if self.gpus != 0 else self.vcpus

    def gone(self, today: date) -> bool:
        """Whether Azure no longer creates it on that day.

        >>> size = lookup("Standard_HC44rs")
        >>> size.gone(date(2027, 5, 30)), size.gone(date(2027, 5, 31))
        (False, True)
        """
        return self.retired or (self.retirement is not None and self.retirement <= today)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a size is not for a training cluster."""

    reason: str
    instead: str
    waivable: bool
    """``allowWithoutInfiniBand`` lets it pass: Azure would create it and its figures are known."""


@cache
def catalogue() -> tuple[Size, ...]:
    """Every row, the InfiniBand sizes first."""
    rows = json.loads(resources.files(__package__).joinpath("sizes.json").read_text("utf-8"))
    return tuple(Size(**_typed(row)) for row in rows)


def lookup(name: str, key: str = "ranklift:vmSize") -> Size:
    """The size called ``name``, in any case, as Azure reads it.

    Raises :class:`~launch.errors.InputError` naming ``key`` and the nearest names.

    >>> lookup("Standard_NC4as_T4_v3").gpu
    'T4'
    >>> lookup("Standard_ND40_v2")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: ranklift:vmSize = 'Standard_ND40_v2': is no size known here; did you mean \
Standard_ND40rs_v2, Standard_NC24s_v3 or Standard_NC24rs_v3?
    """
    for size in catalogue():
        if fnmatchcase(name.lower(), size.name.lower()) and "*" not in name:
            return size
    names = {s.name.lower(): s.name for s in catalogue() if "*" not in s.name and not s.retired}
    close = [names[match] for match in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)]
    if not close:
        remedy = "take one of " + ", ".join(s.name for s in catalogue() if s.sriov and not s.retired)
    else:
        listed = " or ".join(filter(None, [", ".join(close[:-1]), close[-1]]))
        remedy = f"did you mean {listed}?"
    raise InputError(key, name, "is no size known here", remedy)


def refusal(size: Size, today: date) -> Refusal | None:
    """Why ``size`` is refused on that day, or ``None`` when it is fit for a training cluster.

    >>> refusal(lookup("Standard_ND96is_H100_v5"), date(2026, 1, 1))
    Refusal(reason='has no InfiniBand', instead='Standard_ND96isr_H100_v5', waivable=True)
    """
    reasons = []
    if not size.rdma:
        reasons.append("has no InfiniBand")
    elif not size.sriov:
        reasons.append("has InfiniBand without SR-IOV, which MPI and NCCL cannot use")
    gone = size.gone(today)
    if gone:
        reasons.append("is retired" + (f" since {size.retirement}" if size.retirement else ""))
    if not reasons:
        return None
    if size.slots is None:
        reasons.append("is not known well enough to say how many processes a node takes")
    assert size.instead is not None, f"{size.name} names no better size"  # noqa: S101 - data of this module
    return Refusal(" and ".join(reasons), size.instead, waivable=not gone and size.slots is not None)


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    retirement = row.get("retirement")
    return row | {"retirement": date.fromisoformat(retirement)} if retirement else row
