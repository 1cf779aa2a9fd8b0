"""Kinds of faults: what each does, and which options it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.errors import InputError

__all__ = ["KINDS", "FaultKind", "FaultSpec", "fault_spec"]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault."""

    name: str
    does: str
    """Description for ``--help`` and lists."""
    takes: tuple[str, ...] = ()
    """Options: fields of :class:`FaultSpec`."""
    needs: tuple[str, ...] = ()
    """Options that must be given."""
    count: int | None = None
    """Number of hits by default; ``None``: until it is cleared."""
    seconds: float | None = None
    lasts: bool = False
    """Whether ``seconds`` is how long it lasts."""
    states: tuple[str, ...] = ()
    """Values of ``state``."""


_ALL = (
    FaultKind("death", "the VM is lost at once", ("nodes",), ("nodes",)),
    FaultKind("partition", "its link goes down", ("nodes",), ("nodes",)),
    FaultKind("heal", "the link comes back", ("nodes",), ("nodes",)),
    FaultKind("evict", "Preempt notice, then the VM is gone", ("nodes", "seconds"), ("nodes",), seconds=30.0),
    FaultKind(
        "hca",
        "an InfiniBand device's link is in --state: down, init, polling, or active again",
        ("nodes", "state", "device"),
        ("nodes", "state"),
        states=("down", "init", "polling", "active"),
    ),
    FaultKind(
        "rate", "an InfiniBand device's link has --rate Gb/s", ("nodes", "rate", "device"), ("nodes", "rate")
    ),
    FaultKind(
        "pkey", "an InfiniBand device lacks the cluster's partition key", ("nodes", "device"), ("nodes",)
    ),
    FaultKind(
        "counter",
        "a --counter of an InfiniBand device, such as link_downed, has grown to --count",
        ("nodes", "counter", "count", "device"),
        ("nodes", "counter", "count"),
    ),
    FaultKind(
        "gpu",
        "a GPU is in --state: lost, ecc, remap (failed), hot, throttled, recovery (needed), no-persistence, "
        "missing (to its driver), absent (from the bus, too), hang (the driver does), or healthy again",
        ("nodes", "state", "device"),
        ("nodes", "state"),
        states=(
            *("lost", "ecc", "remap", "hot", "throttled", "recovery", "no-persistence", "missing", "absent"),
            *("hang", "healthy"),
        ),
    ),
    FaultKind(
        "gpu-load",
        "a GPU computes --count percent of its time, with as much of its memory in use",
        ("nodes", "count", "device"),
        ("nodes", "count"),
    ),
    FaultKind(
        "xid", "a GPU's error --code in the kernel's log", ("nodes", "code", "device"), ("nodes", "code")
    ),
    FaultKind("clock", "its clock is off by --seconds", ("nodes", "seconds"), ("nodes", "seconds")),
    FaultKind("slow-link", "its link brings it --rate MB per second", ("nodes", "rate"), ("nodes", "rate")),
    FaultKind(
        "slow-path",
        "of two nodes, the second gets --rate MB per second from the first",
        ("nodes", "rate"),
        ("nodes", "rate"),
    ),
    FaultKind("cut-path", "two nodes do not reach each other, and all others do", ("nodes",), ("nodes",)),
    FaultKind("no-boot", "a node never answers", ("nodes", "after", "count"), count=1),
    FaultKind("cloud-init", "cloud-init fails on a node", ("nodes", "after", "count"), count=1),
    FaultKind(
        "cloud-init-image", "a module of the image's cloud-init fails", ("nodes", "after", "count"), count=1
    ),
    FaultKind(
        "ib-names", "a node's RDMA devices are named mlx5_0 and on", ("nodes", "after", "count"), count=1
    ),
    FaultKind("no-ib", "a node comes without InfiniBand devices", ("nodes", "after", "count"), count=1),
    FaultKind("quota", "more VMs than the quota allows", ("after", "count")),
    FaultKind("sku", "the size is not available for the subscription", ("after", "count")),
    FaultKind("allocation", "AllocationFailed after N (--after) of the nodes came", ("after", "count")),
    FaultKind("overconstrained", "OverconstrainedAllocationRequest", ("after", "count")),
    FaultKind(
        "throttle", "429, with Retry-After --seconds", ("after", "count", "seconds"), count=3, seconds=1.0
    ),
    FaultKind(
        "stuck", "an operation that does not end (for --seconds)", ("after", "count", "seconds"), count=1
    ),
    FaultKind(
        "conflict", "409: the name is still being deleted", ("count", "seconds"), seconds=10.0, lasts=True
    ),
    FaultKind("login", "401 ExpiredAuthenticationToken", ("after", "count", "seconds"), lasts=True),
    FaultKind(
        "forbidden", "403 AuthorizationFailed for every write", ("after", "count", "seconds"), lasts=True
    ),
    FaultKind(
        "replication",
        "roles, identities and rights are not known at once: new assignments and image templates are refused",
        ("after", "count"),
        count=2,
    ),
    FaultKind(
        "impact", "MissingSubscriptionRegistration: no report of a host, Microsoft.Impact is not registered"
    ),
    FaultKind("image", "PlatformImageNotFound: the marketplace has newer versions of the image only"),
    FaultKind("deprecated", "ImageVersionDeprecated: the version of the image boots no new VM"),
    FaultKind("terms", "ResourcePurchaseValidationFailed: terms of purchase plans are not accepted"),
    FaultKind(
        "storage-busy", "503 ServerBusy for blobs", ("after", "count", "seconds"), seconds=5.0, lasts=True
    ),
    FaultKind(
        "storage-denied",
        "403 AuthorizationPermissionMismatch for blobs",
        ("after", "count", "seconds"),
        lasts=True,
    ),
    FaultKind("storage-cut", "a blob breaks off half-way", ("after", "count"), count=1),
    FaultKind(
        "storage-slow",
        "blobs come and go at --rate MB per second, all together",
        ("rate", "seconds"),
        ("rate",),
        lasts=True,
    ),
    FaultKind("subnet", "InUseSubnetCannotBeDeleted", ("count", "seconds"), lasts=True),
)
KINDS: Mapping[str, FaultKind] = {kind.name: kind for kind in _ALL}


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Fault as requested; options that were not given have the kind's defaults."""

    kind: str
    nodes: tuple[int, ...] = ()
    """Instance ids."""
    after: int | None = None
    """Number of requests, operations or nodes that pass first."""
    count: int | None = None
    seconds: float | None = None
    rate: int | None = None
    """MB per second; for a link, Gb/s."""
    state: str | None = None
    device: int | None = None
    """Place of the InfiniBand device or GPU on its node; ``None`` is the first."""
    counter: str | None = None
    code: int | None = None
    hits: int = 0
    """Number of hits so far."""

    def is_over(self, age: float, hits: int) -> bool:
        """Whether it has ended, ``age`` seconds after it was set.

        >>> fault_spec("throttle", count=2).is_over(99.0, 1), fault_spec("conflict").is_over(11.0, 0)
        (False, True)
        """
        if self.count is not None and hits >= self.count:
            return True
        return KINDS[self.kind].lasts and self.seconds is not None and age >= self.seconds

    def __str__(self) -> str:
        """Return kind and options."""
        parts = [self.kind]
        parts += [f"nodes {', '.join(str(number) for number in self.nodes)}"] if self.nodes else []
        for name, value in (
            ("after", self.after),
            ("count", self.count),
            ("seconds", self.seconds),
            ("rate", self.rate),
            ("state", self.state),
            ("device", self.device),
            ("counter", self.counter),
            ("code", self.code),
        ):
            if value is not None:
                parts.append(f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}")
        return "; ".join(parts)


def fault_spec(kind: str, **given: Any) -> FaultSpec:
    """Return the request for a kind and options (``None``: not given).

    >>> fault_spec("evict", nodes=(0, 1)).seconds
    30.0

    Raises :class:`~launch.errors.InputError` for an unknown kind, an option that it does not take, and one
    that is missing.
    """
    found = KINDS.get(kind)
    if found is None:
        raise InputError("kind", kind, "no such kind of fault", f"use one of {', '.join(KINDS)}")
    present = {name: value for name, value in given.items() if value not in (None, ())}
    for name, value in present.items():
        if name not in found.takes:
            options = ", ".join(f"--{one}" for one in found.takes)
            raise InputError(f"--{name}", value, f"does not apply to {kind}", f"its options: {options}")
    for name in found.needs:
        if name not in present:
            remedy = {
                "nodes": "name the nodes by instance id, as in 0-3,7",
                "state": f"give one of {', '.join(found.states)}",
                "counter": "give the name of its file, as in link_downed",
            }.get(name, "give a number")
            raise InputError(f"--{name}", None, f"is missing: {found.does}", remedy)
    if "state" in present and present["state"] not in found.states:
        known = ", ".join(found.states)
        raise InputError("--state", present["state"], f"is not a state of {kind}", f"use one of {known}")
    if present.get("seconds", 1.0) <= 0 and kind != "clock":
        raise InputError(
            "--seconds", present["seconds"], "must be more than 0", "leave it out for the default"
        )
    for name in ("count", "seconds"):
        default = getattr(found, name)
        if default is not None and name not in present and not (name == "count" and "nodes" in present):
            present[name] = default
    return FaultSpec(kind, **present)
