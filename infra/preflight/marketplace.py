"""Query: what Azure's marketplace has of the nodes' image, and whether new nodes can boot it.

``VirtualMachineImages_Get`` and ``_List`` of the compute API (learn.microsoft.com
rest/api/compute/virtual-machine-images), and ``MarketplaceAgreements_Get`` for the terms of a purchase plan
(azure-rest-api-specs, marketplaceordering 2021-01-01). An image of the user's own is not queried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from images.os_images import Image, MarketplaceImage, Plan, default_image
from infra.arm.errors import AzureRefused
from infra.arm.rest import Rest
from infra.arm.types import api_version
from infra.config.cluster_config import ClusterConfig
from infra.naming import OFFER_UNKNOWN
from infra.preflight.availability import moment
from infra.preflight.refusal import Refusal
from launch.errors import RankliftError

__all__ = ["Published", "against", "described", "published", "reference", "retiring", "unknown"]

_IMAGES_API = api_version("Microsoft.Compute/locations/publishers")
_TERMS_API = api_version("Microsoft.MarketplaceOrdering/offertypes")
_SHOWN = 5
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version of a marketplace image in one region; ``None`` where Azure's answer lacks the figure."""

    found: bool
    versions: tuple[str, ...] = ()
    """Of an image that was not found, the versions that there are, the newest first."""
    generation: str | None = None
    """Of Hyper-V: ``V1`` or ``V2``."""
    architecture: str | None = None
    """``x64`` or ``Arm64``."""
    plan: Plan | None = None
    """The purchase plan that new VMs have to state."""
    accepted: bool | RankliftError | None = None
    """Whether the plan's terms are accepted; ``None`` without a plan."""
    state: str | None = None
    """``Active``, ``ScheduledForDeprecation`` or ``Deprecated``."""
    ends: datetime | None = None
    """When it will be deprecated."""
    alternative: str | None = None
    """The offer or plan that the publisher names instead of a deprecated one."""
    known: bool = True
    """``False``: a rehearsal, which has no listing of the marketplace, and takes any version."""


def reference(image: Image) -> str:
    """Return the image as ``ranklift:image`` names it: its URN or its id."""
    return image.urn if isinstance(image, MarketplaceImage) else image.id


def published(rest: Rest, subscription: str, location: str, image: Image) -> Published | None:
    """Return what the marketplace has of ``image`` in the region; ``None`` for an image of the user's own.

    Raises :class:`~infra.arm.errors.AzureRefused`.
    """
    if not isinstance(image, MarketplaceImage):
        return None
    path = (
        f"/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/publishers/"
        f"{image.publisher}/artifacttypes/vmimage/offers/{image.offer}/skus/{image.sku}/versions"
    )
    asked = {"api-version": _IMAGES_API}
    shown = rest.find(f"{path}/{image.version}", **asked)
    if shown is None:
        listed = rest.array(path, **asked)
        names = sorted((str(one.get("name")) for one in listed), key=_by_numbers, reverse=True)
        return Published(found=False, versions=tuple(names))
    properties: Mapping[str, Any] = shown.get("properties") or {}
    deprecation = properties.get("imageDeprecationStatus") or {}
    option = deprecation.get("alternativeOption") or {}
    plan = _plan(properties.get("plan"))
    return Published(
        found=True,
        generation=properties.get("hyperVGeneration"),
        architecture=properties.get("architecture"),
        plan=plan,
        accepted=None if plan is None else _accepted(rest, subscription, plan),
        state=deprecation.get("imageState"),
        ends=moment(deprecation.get("scheduledDeprecationTime")),
        alternative=option.get("value"),
        known=(shown.get("tags") or {}).get(OFFER_UNKNOWN) is None,
    )


def _by_numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers: ``22.04.2025082501`` is older than ``22.04.2026012301``."""
    return tuple(int(number) for number in _NUMBER.findall(version))


def _plan(shown: Mapping[str, Any] | None) -> Plan | None:
    if not shown:
        return None
    return Plan(name=str(shown["name"]), product=str(shown["product"]), publisher=str(shown["publisher"]))


def _accepted(rest: Rest, subscription: str, plan: Plan) -> bool | RankliftError:
    path = (
        f"/subscriptions/{subscription}/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/"
        f"publishers/{plan.publisher}/offers/{plan.product}/plans/{plan.name}/agreements/current"
    )
    try:
        answer = rest.get(path, **{"api-version": _TERMS_API})
    except AzureRefused as error:
        return error
    return (answer.get("properties") or {}).get("accepted") is True


# -- judged -----------------------------------------------------------------------------------------------


def described(found: Published | RankliftError | None) -> str:
    """Return what there is of an image, in words.

    >>> described(Published(found=True, generation="V2", architecture="x64", state="Active"))
    'V2, x64, no purchase plan'
    """
    if not isinstance(found, Published):
        return "your own, not queried" if found is None else "unknown"
    if not found.found:
        return "not there"
    plan = f"purchase plan {found.plan.name}" if found.plan else "no purchase plan"
    state = None if found.state in (None, "Active") else found.state
    return ", ".join(filter(None, (found.generation, found.architecture, plan, state)))


def against(found: Published, config: ClusterConfig) -> list[Refusal]:
    """Return why new nodes cannot boot the configured image."""
    image, size = config.image, config.size
    assert isinstance(image, MarketplaceImage)  # noqa: S101 - no other is queried
    here = f"{image.urn} in {config.location}"
    if not found.found:
        return [_missing(found, image, here)]
    refusals = []
    of_size = default_image(size.image) if size.image else None
    other = "set ranklift:image to another"
    if of_size is not None and of_size != image:
        other += f", or remove it for {of_size.urn}, the one of the size"
    if found.state == "Deprecated":
        instead = f" ({found.alternative} is named in its place)" if found.alternative else ""
        refusals.append(
            Refusal("image", f"{here} is deprecated: Azure makes no new VM of it{instead}", other)
        )
    if found.generation is not None and size.hyperv == "Gen2" and found.generation != "V2":
        problem = f"{here} is for Hyper-V generation {found.generation}, and {size.name} boots V2 alone"
        refusals.append(Refusal("image", problem, other))
    if found.architecture is not None and found.architecture != size.cpu_arch:
        problem = f"{here} is for {found.architecture}, and {size.name} is {size.cpu_arch}"
        refusals.append(Refusal("image", problem, other))
    has, states = _named(found.plan), _named(image.plan)
    if has.lower() != states.lower():
        problem = f"{here} has {has}, and the nodes would state {states}, which Azure refuses"
        refusals.append(Refusal("image", problem, "take another image, or one of your own made from it"))
    elif found.accepted is False:
        remedy = f"read and accept them: `az vm image terms accept --urn {image.urn}`"
        problem = f"the terms of {image.urn} are not accepted in this subscription"
        refusals.append(Refusal("image", problem, remedy))
    return refusals


def _missing(found: Published, image: MarketplaceImage, here: str) -> Refusal:
    if not found.versions:
        return Refusal("image", f"Azure has no version of {here}", "set ranklift:image to one that it has")
    newest, *older = found.versions
    shown = ", ".join(older[: _SHOWN - 1])
    there = f"the newest is {newest}" + (f", before it {shown}" if shown else "")
    other = replace(image, version=newest).urn
    return Refusal("image", f"Azure does not have {here}; {there}", f"set ranklift:image to {other}")


def _named(plan: Plan | None) -> str:
    return f"the purchase plan {plan.publisher}:{plan.product}:{plan.name}" if plan else "no purchase plan"


def retiring(found: Published, config: ClusterConfig) -> str | None:
    """Return the warning about an image that will be deprecated; ``None`` for any other."""
    if found.state != "ScheduledForDeprecation":
        return None
    at = f" on {found.ends.strftime('%Y-%m-%d')}" if found.ends else ""
    return f"image {reference(config.image)} will be deprecated{at}: Azure makes no new VM of it from then on"


def unknown(found: Published | RankliftError | None, config: ClusterConfig) -> list[str]:
    """Return what is unknown about the image, and why, a sentence each."""
    image = reference(config.image)
    if isinstance(found, RankliftError):
        return [f"whether Azure has image {image}: {found}"]
    if found is not None and isinstance(found.accepted, RankliftError):
        return [f"whether the terms of image {image} are accepted: {found.accepted}"]
    if found is not None and found.found and not found.known:
        return [f"whether Azure has image {image}: the rehearsal has no listing of the marketplace"]
    return []
