"""Azure's regions, and which of them have which sizes: what is known, with its source, and nothing else.

``REGIONS``: the regions in which Azure makes resource groups, as its own refusals list them
(``LocationNotAvailableForResourceGroup`` of 2024-05-30 in MicrosoftDocs/executable-docs#75, without the two
early-access ones; those that were added until 2025-10-28 in microsoft/aspire#12303). Looked up on 2026-11-22.

``_OFFERED``: the sizes and regions of the list that SkyPilot takes from Azure's Resource SKUs
(skypilot-org/skypilot-catalog, ``catalogs/v6/azure/vms.csv`` at commit 098741e, which has the regions of the
United States alone). Looked up on 2026-11-22; Azure may have added regions since.
"""

from __future__ import annotations

from collections.abc import Mapping

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId

__all__ = ["REGIONS", "SURVEYED", "check_region", "is_offered"]

REGIONS = (
    *("australiacentral", "australiacentral2", "australiaeast", "australiasoutheast", "austriaeast"),
    *("belgiumcentral", "brazilsouth", "canadacentral", "canadaeast", "centralindia", "centralus"),
    *("chilecentral", "eastasia", "eastus", "eastus2", "francecentral", "germanywestcentral"),
    *("indonesiacentral", "israelcentral", "italynorth", "japaneast", "japanwest", "jioindiawest"),
    *("koreacentral", "koreasouth", "malaysiawest", "mexicocentral", "newzealandnorth", "northcentralus"),
    *("northeurope", "norwayeast", "polandcentral", "qatarcentral", "southafricanorth", "southcentralus"),
    *("southeastasia", "southindia", "spaincentral", "swedencentral", "switzerlandnorth"),
    *("switzerlandwest", "uaenorth", "uksouth", "ukwest", "westcentralus", "westeurope", "westindia"),
    *("westus", "westus2", "westus3"),
)

SURVEYED = frozenset(name for name in REGIONS if name.rstrip("23").endswith("us"))
"""Regions of which it is known that they have no other of the sizes in the list."""

_A100_PCIE = SURVEYED - {"northcentralus", "westcentralus"}
_H100_PCIE = frozenset(("eastus", "eastus2", "southcentralus", "westus3"))
_OFFERED: Mapping[str, frozenset[str]] = {
    "Standard_NC24ads_A100_v4": _A100_PCIE,
    "Standard_NC24rs_v3": _A100_PCIE,
    "Standard_NC24s_v3": _A100_PCIE,
    "Standard_NC40ads_H100_v5": _H100_PCIE,
    "Standard_NC48ads_A100_v4": _A100_PCIE,
    "Standard_NC80adis_H100_v5": _H100_PCIE,
    "Standard_NC96ads_A100_v4": _A100_PCIE,
    "Standard_ND40rs_v2": frozenset(("eastus", "southcentralus", "westus2")),
    "Standard_ND96amsr_A100_v4": frozenset(("eastus", "eastus2", "southcentralus")),
    "Standard_ND96asr_v4": frozenset(("eastus", "southcentralus", "westus2")),
    "Standard_ND96isr_H100_v5": frozenset(("eastus", "eastus2", "westus")),
}
_BY_NAME = {size.lower(): regions for size, regions in _OFFERED.items()}
_EVERYWHERE = "global"
_GLOBAL_TYPES = ("microsoft.network/privatednszones",)


def is_offered(size: str, region: str) -> bool | None:
    """Return whether the region has the size; ``None``: not known here.

    >>> [is_offered("Standard_ND40rs_v2", place) for place in ("eastus", "eastus2", "westeurope", "mars")]
    [True, False, None, False]
    """
    if region not in REGIONS:
        return False
    offered = _BY_NAME.get(size.lower())
    return None if offered is None or region not in SURVEYED else region in offered


def check_region(rid: ResourceId, location: object) -> None:
    """Raise Azure's refusal of a resource, or a group of them, in a region that Azure does not have."""
    if not isinstance(location, str):
        return
    name, kind = location.lower().replace(" ", ""), rid.type.lower()
    if name in REGIONS or (name == _EVERYWHERE and kind.startswith(_GLOBAL_TYPES)):
        return
    listed = ",".join(REGIONS)
    if not rid.parts:
        problem = f"The provided location '{location}' is not available for resource group. "
        raise ArmError(
            400,
            "LocationNotAvailableForResourceGroup",
            f"{problem}List of available regions is '{listed}'.",
        )
    problem = f"The provided location '{location}' is not available for resource type '{rid.type}'. "
    raise ArmError(
        400,
        "LocationNotAvailableForResourceType",
        f"{problem}List of available regions for the resource type is '{listed}'.",
    )
