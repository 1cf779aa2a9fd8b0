"""Every known VM size: the rows of ``sizes.toml``, and those of the files that ``RANKLIFT_SIZES`` names.

``RANKLIFT_SIZES`` takes paths of TOML files between colons. Their rows have the form of those of
``sizes.toml`` and count like them: in the tasks, in the Pulumi program and in the rehearsed Azure.

>>> size = lookup("standard_nd40RS_v2")
>>> size.name, size.slots, size.hcas, size.hca_gbps, size.sources["vcpus"]
('Standard_ND40rs_v2', 8, 1, 100, 'azure-docs ndv2-series.md')
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path

from catalogue.rows import NOTHING, Entries, read
from catalogue.size import Size
from launch.errors import InputError

__all__ = ["MORE", "FabricSettings", "Refusal", "catalogue", "fabric_settings", "find", "lookup", "refusal"]

MORE = "RANKLIFT_SIZES"
"""The environment variable that names further files of sizes."""


@dataclass(frozen=True, slots=True)
class FabricSettings:
    """Defaults for ranks; what the user or the node sets wins over ``env`` and ``files`` alike."""

    env: Mapping[str, str]
    files: Mapping[str, str]
    """Set only on nodes where the file exists: some images have it, some have not."""
    infiniband: bool
    """Nodes have InfiniBand devices, whose names are known to themselves alone."""
    capability: str
    """Compute capability of their GPUs; empty where there are none of NVIDIA's, or it is unknown."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a size is not for a training cluster."""

    reason: str
    instead: str
    waivable: bool
    """``allowWithoutInfiniBand`` lets it pass: Azure would create it and its figures are known."""


def catalogue() -> tuple[Size, ...]:
    """Return every row: the InfiniBand sizes, the others, those from outside.

    Raises :class:`~launch.errors.InputError` for a file that cannot be read or has mistakes.
    """
    return _entries(os.environ.get(MORE, "")).sizes


def find(name: str) -> Size | None:
    """Return the size called ``name``, in any case, or the family that it is one of.

    >>> find("Standard_NC4as_T4_v3").gpu, find("Standard_A0")
    ('T4', None)
    """
    lowered = name.lower()
    exact = (size for size in catalogue() if size.name.lower() == lowered)
    families = (size for size in catalogue() if size.is_family and fnmatchcase(lowered, size.name.lower()))
    return None if "*" in name else next(exact, next(families, None))


def lookup(name: str, key: str = "ranklift:vmSize") -> Size:
    """Return the size called ``name``, in any case, as Azure reads it.

    Raises :class:`~launch.errors.InputError` naming ``key`` and the nearest names.

    >>> lookup("Standard_ND40_v2")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: ranklift:vmSize = 'Standard_ND40_v2': is not a known size; did you mean \
Standard_ND40rs_v2, Standard_NC24s_v3 or Standard_NC24rs_v3?
    """
    size = find(name)
    if size is not None:
        return size
    likely = [s.name for s in catalogue() if not s.is_family and not s.retired and (s.rdma or s.gpu)]
    names = {one.lower(): one for one in likely}
    close = [names[match] for match in difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)]
    if not close:
        remedy = "use one of " + ", ".join(s.name for s in catalogue() if s.sriov and not s.retired)
    else:
        listed = " or ".join(filter(None, [", ".join(close[:-1]), close[-1]]))
        remedy = f"did you mean {listed}?"
    raise InputError(key, name, "is not a known size", remedy)


def refusal(size: Size, today: date) -> Refusal | None:
    """Return why ``size`` is refused on that day, or ``None`` when it is fit for a training cluster.

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
        reasons.append("has no known number of slots (GPUs or vCPUs)")
    assert size.instead is not None, f"{size.name} names no better size"  # noqa: S101 - read() saw to it
    return Refusal(" and ".join(reasons), size.instead, waivable=not gone and size.slots is not None)


def fabric_settings(name: str) -> FabricSettings:
    """Return the settings of the size ``name``; of an unknown one, those of every size.

    >>> fabric_settings("Standard_ND40rs_v2").files
    {'NCCL_TOPO_FILE': '/opt/microsoft/ndv2-topo.xml'}
    >>> dict(fabric_settings("Standard_HC44rs").env)
    {'NCCL_SOCKET_IFNAME': 'eth0'}
    """
    size = find(name)
    env = _entries(os.environ.get(MORE, "")).settings[size.settings if size and size.settings else "default"]
    topology = size.topology if size else None
    files = {"NCCL_TOPO_FILE": f"/opt/microsoft/{topology}-topo.xml"} if topology else {}
    capability = (size.compute_capability if size else None) or ""
    return FabricSettings(env, files, infiniband=size is not None and size.infiniband, capability=capability)


@cache
def _entries(more: str) -> Entries:
    own = resources.files(__package__).joinpath("sizes.toml").read_text("utf-8")
    found = read(own, "catalogue/sizes.toml", NOTHING)
    for path in filter(None, more.split(os.pathsep)):
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(MORE, path, f"cannot be read: {error}", "name TOML files of sizes") from None
        found = read(text, path, found)
    return found
