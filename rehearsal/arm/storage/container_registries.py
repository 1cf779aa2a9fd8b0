"""Container registries, as far as a stack meets one that exists: its login server, and rights on it."""

from __future__ import annotations

import re

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_NAME = re.compile(r"[A-Za-z0-9]{5,50}")
_REGISTRIES = ResourceType(
    "Microsoft.ContainerRegistry/registries",
    "resources.GenericResource",
    ("registryName",),
    pulumi_type="",
    patch_model="resources.GenericResource",
    sync=True,
)


class _RegistryHooks(Hooks[Services]):
    """A registry without images: only its name and the rights on it count."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a malformed name."""
        if not _NAME.fullmatch(rid.name):
            problem = "is invalid: 5 to 50 letters and digits."
            raise ArmError(400, "InvalidParameter", f"The registry name '{rid.name}' {problem}", "name")
        return body

    def show(self, record: Record, shown: Body) -> None:
        """Add the login server."""
        shown["properties"]["loginServer"] = f"{record.id.name.lower()}.azurecr.io"


ENTRIES = ((_REGISTRIES, _RegistryHooks),)
