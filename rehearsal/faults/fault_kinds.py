"""The faults there are: what each does, and which numbers it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch.errors import InputError

__all__ = ["KINDS", "Kind", "Order", "order"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault."""

    name: str
    does: str
    """In words, for ``--help`` and lists."""
    takes: tuple[str, ...] = ()
    """Options: ``nodes``, ``after``, ``count``, ``seconds``."""
    needs: tuple[str, ...] = ()
    """Those of them that must be given."""
    count: int | None = None
    """How often it strikes unless told otherwise; ``None``: until it is cleared."""
    seconds: float | None = None
    lasts: bool = False
    """``seconds`` is how long it is there."""


_ALL = (
    Kind("death", "the VM is lost at once", ("nodes",), ("nodes",)),
    Kind("partition", "its link goes down", ("nodes",), ("nodes",)),
    Kind("heal", "the link comes back", ("nodes",), ("nodes",)),
    Kind("evict", "Preempt notice, then the VM is gone", ("nodes", "seconds"), ("nodes",), seconds=30.0),
    Kind("clock", "its clock is off by --seconds", ("nodes", "seconds"), ("nodes", "seconds")),
    Kind("no-boot", "a node never answers", ("nodes", "after", "count"), count=1),
    Kind("cloud-init", "cloud-init fails on a node", ("nodes", "after", "count"), count=1),
    Kind("quota", "more VMs than the quota allows", ("after", "count")),
    Kind("sku", "the size is not available for the subscription", ("after", "count")),
    Kind("allocation", "AllocationFailed after N (--after) of the nodes came", ("after", "count")),
    Kind("overconstrained", "OverconstrainedAllocationRequest", ("after", "count")),
    Kind("throttle", "429, with Retry-After --seconds", ("after", "count", "seconds"), count=3, seconds=1.0),
    Kind("stuck", "an operation that does not end (for --seconds)", ("after", "count", "seconds"), count=1),
    Kind("conflict", "409: the name is still being deleted", ("count", "seconds"), seconds=10.0, lasts=True),
    Kind("login", "401 ExpiredAuthenticationToken", ("after", "count", "seconds"), lasts=True),
    Kind("forbidden", "403 AuthorizationFailed for every write", ("after", "count", "seconds"), lasts=True),
    Kind("subnet", "InUseSubnetCannotBeDeleted", ("count", "seconds"), lasts=True),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}


@dataclass(frozen=True, slots=True)
class Order:
    """A fault as it was asked for; numbers that were not given are the kind's own."""

    kind: str
    nodes: tuple[int, ...] = ()
    """Instance ids."""
    after: int | None = None
    """Lets so many pass first."""
    count: int | None = None
    seconds: float | None = None
    struck: int = 0
    """How often it has struck so far."""

    def is_over(self, age: float, struck: int) -> bool:
        """Whether it strikes no more, ``age`` seconds after it was set.

        >>> order("throttle", count=2).is_over(99.0, 1), order("conflict").is_over(11.0, 0)
        (False, True)
        """
        if self.count is not None and struck >= self.count:
            return True
        return KINDS[self.kind].lasts and self.seconds is not None and age >= self.seconds

    def __str__(self) -> str:
        """For a list: kind, numbers, and what it has done."""
        said = [self.kind]
        said += [f"nodes {', '.join(str(number) for number in self.nodes)}"] if self.nodes else []
        for name, value in (("after", self.after), ("count", self.count), ("seconds", self.seconds)):
            if value is not None:
                said.append(f"{name} {value:g}")
        return f"{'; '.join(said)}: struck {self.struck} times"


def order(kind: str, **given: Any) -> Order:
    """The order for a kind and the options given (``None``: not given).

    >>> order("evict", nodes=(0, 1)).seconds
    30.0

    Raises :class:`~launch.errors.InputError` for a kind there is not, an option that means nothing with it,
    and one that is missing.
    """
    found = KINDS.get(kind)
    if found is None:
        raise InputError("kind", kind, "no fault", f"use one of {', '.join(KINDS)}")
    present = {name: value for name, value in given.items() if value not in (None, ())}
    for name, value in present.items():
        if name not in found.takes:
            options = ", ".join(f"--{one}" for one in found.takes)
            raise InputError(f"--{name}", value, f"means nothing with {kind}", f"its options: {options}")
    for name in found.needs:
        if name not in present:
            remedy = "name the nodes by instance id, as in 0-3,7" if name == "nodes" else "give a number"
            raise InputError(f"--{name}", None, f"is missing: {found.does}", remedy)
    if present.get("seconds", 1.0) <= 0 and kind != "clock":
        raise InputError(
            "--seconds", present["seconds"], "must be more than 0", "leave it out for the default"
        )
    for name in ("count", "seconds"):
        default = getattr(found, name)
        if default is not None and name not in present and not (name == "count" and "nodes" in present):
            present[name] = default
    return Order(kind, **present)
