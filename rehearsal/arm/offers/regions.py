"""Azure's regions, and whether they have a size: what is known, with its source.

``REGIONS``: the regions in which Azure makes resource groups, as its own refusals list them
(``LocationNotAvailableForResourceGroup`` of 2024-05-30 in MicrosoftDocs/executable-docs#75, without the two
early-access ones; those that were added until 2025-10-28 in microsoft/aspire#12303). Looked up on 2026-11-22.

``SURVEYED``: those of them of which the catalogue's source of ``regions`` says which sizes they have.
"""

from __future__ import annotations

from catalogue.sizes import find
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
"""A size with ``regions`` in the catalogue is in no other of these."""

_EVERYWHERE = "global"
_GLOBAL_TYPES = ("microsoft.network/privatednszones",)


def is_offered(size: str, region: str) -> bool | None:
    """Return whether the region has the size; ``None``: not known here.

    >>> [is_offered("Standard_ND40rs_v2", place) for place in ("eastus", "eastus2", "westeurope", "mars")]
    [True, False, None, False]
    """
    if region not in REGIONS:
        return False
    known = find(size)
    if known is None or known.regions is None:
        return None
    return region in known.regions or (False if region in SURVEYED else None)


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
            400, "LocationNotAvailableForResourceGroup", f"{problem}List of available regions is '{listed}'."
        )
    problem = f"The provided location '{location}' is not available for resource type '{rid.type}'. "
    raise ArmError(
        400,
        "LocationNotAvailableForResourceType",
        f"{problem}List of available regions for the resource type is '{listed}'.",
    )
