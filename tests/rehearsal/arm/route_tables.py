"""A resource type that the package lacks: route tables, written as a room would have them."""

from __future__ import annotations

from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks, Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import InUse, ResourceType
from rehearsal.arm.services import Services

Body = dict[str, Any]
APPLIED: list[tuple[str, str]] = []
"""What the hooks did, in order."""
TABLES = ResourceType(
    "Microsoft.Network/routeTables",
    "network.RouteTable",
    ("routeTableName",),
    immutable=("disableBgpRoutePropagation",),
    in_use=InUse("InUseRouteTableCannotBeDeleted"),
    referrers="subnets",
)


class RouteTableHooks(Hooks[Services]):
    """Tables are noted, and their size is shown."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        routes = (body.get("properties") or {}).get("routes") or ()
        names = [route["name"] for route in routes]
        if len(names) != len(set(names)):
            raise ArmError(400, "DuplicateRoute", f"Two routes of {rid.name} have the same name.")
        return body

    async def apply(self, record: Record, old: Body | None) -> None:
        APPLIED.append(("apply", record.id.name))

    async def remove(self, record: Record) -> None:
        APPLIED.append(("remove", record.id.name))

    def show(self, record: Record, shown: Body) -> None:
        shown["tags"] = {**(shown.get("tags") or {}), "routes": str(len(record.children("routes")))}

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        return {"count": len(record.children("routes"))} if action == "count" else None


ENTRIES = ((TABLES, RouteTableHooks),)
