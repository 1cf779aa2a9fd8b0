"""Images of the emulated marketplace: versions, purchase plans and whether their terms are accepted.

Paths and bodies are those of ``VirtualMachineImages_Get`` and ``_List`` of the compute API and of
``MarketplaceAgreements_Get`` (Microsoft.MarketplaceOrdering 2021-01-01). Refusals have the codes and words of
published reports: ``NotFound`` (clong/DetectionLab#729), ``PlatformImageNotFound`` (pulumi/pulumi#5450),
``ImageVersionDeprecated`` (Orange-Cyberdefense/GOAD#248), ``ResourcePurchaseValidationFailed``
(hashicorp/terraform-provider-azurerm#1145).

The rehearsal has no listing of Azure's marketplace: every version exists, with a tag that says so, unless a
fault hits it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from infra.naming import OFFER_UNKNOWN
from rehearsal.arm.core.errors import ArmError, no_provider_in
from rehearsal.arm.offers.regions import REGIONS

__all__ = ["answer", "refusal", "too_small"]

_IMAGES = re.compile(
    r"(?P<base>/subscriptions/[^/]+/providers/microsoft\.compute/locations/(?P<place>[^/]+)/publishers/"
    r"(?P<publisher>[^/]+)/artifacttypes/vmimage/offers/(?P<offer>[^/]+)/skus/(?P<sku>[^/]+)/versions)"
    r"(?:/(?P<version>[^/]+))?",
    re.IGNORECASE,
)
_TERMS = re.compile(
    r"/subscriptions/[^/]+/providers/microsoft\.marketplaceordering/offertypes/virtualmachine/publishers/"
    r"([^/]+)/offers/([^/]+)/plans/([^/]+)/agreements/current",
    re.IGNORECASE,
)
_WITH_PLAN = frozenset({"almalinux", "azhpc", "azurecyclecloud", "erocky"})
"""Publishers whose images have a purchase plan (github.com/Azure/azurehpc states one for them)."""
_ARM64 = re.compile(r"arm64|-gb$", re.IGNORECASE)
"""SKUs for Arm64; ``2404-gb`` of microsoft-dsvm:ubuntu-hpc is for GB200 and GB300 (azhpc-images#603)."""
_BOTH_GENERATIONS = frozenset({"almalinux", "erocky", "openlogic"})
"""Publishers whose SKUs are for generation 1 unless their names have ``gen2``."""
_NEWER = ("2026100101", "2026110101")
"""The made-up dates of the versions that are there while the fault ``image`` is set."""

_OS_GIB = {"canonical": 30}
_HPC_GIB = 64
"""GiB of the images' disks: of Ubuntu's own (juju/juju pull request 5829), and of Azure's for HPC
(``os_disk_size_gb`` of azhpc-images' packer/source.pkr.hcl)."""

Faults = Callable[[str], bool]
"""Whether a fault of this kind is set."""


def answer(request: web.Request, is_set: Faults) -> web.Response | None:
    """Return the answer about an image's versions or terms; ``None`` to any other request."""
    path = request.path.rstrip("/")
    if request.method != "GET":
        return None
    if (terms := _TERMS.fullmatch(path)) is not None:
        return web.json_response(_agreement(path, *terms.groups(), accepted=not is_set("terms")))
    found = _IMAGES.fullmatch(path)
    if found is None:
        return None
    if found["place"].lower() not in REGIONS:
        raise no_provider_in(found["place"], "locations/publishers", request.query["api-version"])
    if found["version"] is None:
        return web.json_response([_listed(found, version) for version in _versions(found["sku"])])
    if is_set("image") and found["version"] not in _versions(found["sku"]):
        raise ArmError(404, "NotFound", "Artifact: VMImage was not found.")
    return web.json_response(_published(found, deprecated=is_set("deprecated")))


def refusal(reference: Mapping[str, Any], plan: Mapping[str, Any] | None, is_set: Faults) -> ArmError | None:
    """Return Azure's refusal to boot VMs from a marketplace image; ``None`` for any that it boots."""
    if not reference.get("publisher"):
        return None
    urn = ":".join(str(reference.get(part)) for part in ("publisher", "offer", "sku", "version"))
    if is_set("image") and reference.get("version") not in _versions(str(reference.get("sku"))):
        problem = f"The platform image '{urn}' is not available. Verify that all fields in the storage "
        more = "profile are correct. For more details about storage profile information, please refer to "
        text = f"{problem}{more}https://aka.ms/storageprofile"
        return ArmError(404, "PlatformImageNotFound", text, "imageReference")
    if is_set("deprecated"):
        text = f"The platform image '{urn}' is deprecated."
        return ArmError(404, "ImageVersionDeprecated", text, "imageReference")
    if plan and is_set("terms"):
        return ArmError(
            400,
            "ResourcePurchaseValidationFailed",
            "User failed validation to purchase resources. Error message: 'Legal terms have not been "
            "accepted for this item on this subscription. To accept legal terms using Azure CLI, please use "
            "az vm image accept-terms'",
        )
    return None


def too_small(reference: Mapping[str, Any], gib: int | None) -> ArmError | None:
    """Return Azure's refusal of an OS disk smaller than its image; ``None`` for one that fits.

    Code, words and target are those of hitachienergy/epiphany#1049. The size of own images is not known.
    """
    publisher = str(reference.get("publisher") or "").lower()
    image = _OS_GIB.get(publisher, _HPC_GIB)
    if not publisher or gib is None or gib >= image:
        return None
    problem = (
        f"The specified disk size {gib} GB is smaller than the size of the corresponding disk in the VM "
    )
    text = f"{problem}image: {image} GB. This is not allowed. Please choose equal or greater size or do not "
    return ArmError(409, "OperationNotAllowed", f"{text}specify an explicit size.", "osDisk.diskSizeGB")


def _versions(sku: str) -> tuple[str, ...]:
    release = re.match(r"(\d\d)(\d\d)", sku)
    front = f"{release[1]}.{release[2]}" if release else "1.0"
    return tuple(f"{front}.{date}" for date in _NEWER)


def _listed(found: re.Match[str], version: str) -> dict[str, Any]:
    return {"location": found["place"], "name": version, "id": f"{found['base']}/{version}"}


def _published(found: re.Match[str], *, deprecated: bool) -> dict[str, Any]:
    publisher, sku = found["publisher"].lower(), found["sku"]
    is_first = publisher in _BOTH_GENERATIONS and "gen2" not in sku.lower()
    properties: dict[str, Any] = {
        "hyperVGeneration": "V1" if is_first else "V2",
        "architecture": "Arm64" if _ARM64.search(sku) else "x64",
        "osDiskImage": {"operatingSystem": "Linux"},
        "dataDiskImages": [],
        "automaticOSUpgradeProperties": {"automaticOSUpgradeSupported": False},
        "imageDeprecationStatus": {"imageState": "Deprecated" if deprecated else "Active"},
    }
    if publisher in _WITH_PLAN:
        properties["plan"] = {"publisher": found["publisher"], "name": sku, "product": found["offer"]}
    return {**_listed(found, found["version"]), "tags": {OFFER_UNKNOWN: "True"}, "properties": properties}


def _agreement(path: str, publisher: str, product: str, plan: str, *, accepted: bool) -> dict[str, Any]:
    properties = {"publisher": publisher, "product": product, "plan": plan, "accepted": accepted}
    return {
        "id": path,
        "name": plan,
        "type": "Microsoft.MarketplaceOrdering/offertypes",
        "properties": properties,
    }
