"""Azure Resource Manager's writes and views over a :class:`~rehearsal.arm.core.subscription.Subscription`."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from rehearsal.arm.core import checks
from rehearsal.arm.core.errors import ArmError, being_deleted, conflict, not_found, unknown_type
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.operations import Fault, Faults, Operation, Operations
from rehearsal.arm.core.records import Record, place
from rehearsal.arm.core.resource_type import GROUP, ResourceType
from rehearsal.arm.core.subscription import Subscription

__all__ = ["ResourceManager"]


class ResourceManager:
    """Every write and view of the endpoint.

    ``hooks`` is each type's behaviour by its name, ``common`` the behaviour that all types share; ``faults``
    is asked once for every write.
    """

    def __init__(
        self,
        subscription: Subscription,
        hooks: Mapping[str, Hooks[Any]],
        common: Collection[Hooks[Any]] = (),
        faults: Faults | None = None,
    ) -> None:
        self.subscription, self._hooks, self._common, self._faults = subscription, hooks, common, faults
        self.operations = Operations()

    def hooks(self, kind: ResourceType) -> Hooks[Any]:
        """Return the behaviour of a type."""
        return self._hooks[kind.type]

    # -- views --------------------------------------------------------------------------------------------

    def view(self, rid: ResourceId) -> Body:
        """Return the body of a GET of a resource, a resource group or a child."""
        subscription = self.subscription
        record = subscription.find(rid)
        kind = subscription.types.find(rid.type)
        if kind is not None and kind.embedded:
            return self._child(record, subscription.element(rid), kind.collection)
        shown = copy.deepcopy(record.body)
        shown.update(id=str(record.id), name=record.id.name, type=record.kind.type)
        properties = shown.setdefault("properties", {})
        if record.kind.shows_state:
            properties["provisioningState"] = record.state
        if record.kind is GROUP:
            return shown
        for collection in record.kind.children:
            elements = record.children(collection)
            properties[collection] = [self._child(record, e, collection, brief=True) for e in elements]
        shown["etag"] = f'W/"{record.etag}"'
        if record.kind.guid_name:
            properties[record.kind.guid_name] = record.guid
        if record.kind.referrers:
            holders = subscription.holders(record.id)
            properties[record.kind.referrers] = [{"id": str(h)} for h in holders]
        for behaviour in (*self._common, self.hooks(record.kind)):
            behaviour.show(record, shown)
        return shown

    def _child(self, record: Record, element: Body, collection: str, *, brief: bool = False) -> Body:
        shown = copy.deepcopy(element)
        rid = record.id.child(collection, element.get("name", ""))
        shown.update(id=str(rid), type=rid.type, etag=f'W/"{record.etag}"')
        state = "Updating" if record.state == "Creating" else record.state
        shown.setdefault("properties", {})["provisioningState"] = state
        kind = self.subscription.types.find(rid.type)  # None for a child that is not a resource by itself
        if kind is not None:
            self.hooks(kind).show_child(rid, shown, brief=brief)
        return shown

    # -- writes -------------------------------------------------------------------------------------------

    def put(self, rid: ResourceId, body: Body, verb: str = "put") -> tuple[bool, Operation | None]:
        """Create or change a resource from a body that fits its model.

        Returns whether it is new, and the operation that was started.
        """
        subscription = self.subscription
        kind = subscription.types.find(rid.type)
        if kind is None:
            raise unknown_type(rid.type.partition("/")[2], rid.namespace)
        if kind is GROUP:
            return self._put_group(rid, body), None
        if rid.group and subscription.group(rid).state == "Deleting":
            raise being_deleted(rid.group)
        if kind.embedded:
            return self._put_child(rid, kind, body)
        if rid.parent.parts and not subscription.exists(rid.parent):
            if kind.extends:
                raise not_found(rid.parent.short, rid.group)
            raise _no_parent(rid)
        record = subscription.resources.get(rid.key) or subscription.implied(rid)
        if record is not None and record.busy:
            raise self._conflict(record)
        fault = self._fault(verb, rid)
        old = record.body if record is not None else None
        body = self._accept(rid, kind, body, old)
        new = record is None
        if record is None:
            record = Record(rid, kind, body)
            subscription.add(record)
        record.body, record.state = body, "Creating" if new else "Updating"
        record.etag = str(uuid.uuid4())
        return new, self._start(record, self.hooks(kind).apply(record, old), fault, "Succeeded")

    def _accept(self, rid: ResourceId, kind: ResourceType, body: Body, old: Body | None) -> Body:
        body = {**body, "properties": body.get("properties") or {}}
        if kind.tracked:
            body = checks.with_location(rid, body, old)
        if old is not None:
            body = checks.with_kept_lists(kind, body, old)
            checks.refuse_immutable(kind, body, old)
            for child in checks.lost_children(rid, kind, body, old):
                self._refuse_in_use(child)
        checks.refuse_dangling(self.subscription, rid, kind, body)
        if kind.merges and old is not None:
            body["properties"] = {**old["properties"], **body["properties"]}
        for behaviour in (*self._common, self.hooks(kind)):
            body = behaviour.accept(rid, body, old)
        return body

    def _put_group(self, rid: ResourceId, body: Body) -> bool:
        groups = self.subscription.groups
        old = groups.get(rid.key)
        fault = self._fault("put", rid)
        if fault and fault.error:
            raise fault.error
        if old is None:
            groups[rid.key] = Record(rid, GROUP, body, "Succeeded")
            return True
        if old.state == "Deleting":
            raise being_deleted(rid.group)
        if place(old.body["location"]) != place(body["location"]):
            raise ArmError(
                409,
                "InvalidResourceGroupLocation",
                f"Invalid resource group location '{body['location']}'. "
                f"The Resource group already exists in location '{old.body['location']}'.",
            )
        old.body = body
        return False

    def _put_child(self, rid: ResourceId, kind: ResourceType, body: Body) -> tuple[bool, Operation | None]:
        if self.subscription.resources.get(rid.parent.key) is None:
            raise _no_parent(rid)
        return self._with_child(rid, kind, "put", {**body, "name": rid.name})

    def _with_child(
        self, rid: ResourceId, kind: ResourceType, verb: str, *element: Body
    ) -> tuple[bool, Operation | None]:
        parent = self.subscription.find(rid.parent)
        present = parent.children(kind.collection)
        others = [e for e in present if e.get("name", "").lower() != rid.name.lower()]
        merged = copy.deepcopy(parent.body)
        merged.setdefault("properties", {})[kind.collection] = [*others, *element]
        return len(others) == len(present), self.put(rid.parent, merged, verb)[1]

    def delete(self, rid: ResourceId) -> Operation | None:
        """Start to delete a resource; None when it does not exist."""
        if not rid.parts:
            return self._delete_group(rid)
        try:
            record = self.subscription.find(rid)
        except ArmError as error:
            if error.code == "ResourceGroupNotFound":
                raise
            return None
        if record.state == "Deleting":
            return record.operation
        if record.busy:
            raise self._conflict(record)
        if record.kind.singleton:
            raise ArmError(405, "MethodNotAllowed", f"{rid} goes with the resource it belongs to.")
        self._refuse_in_use(rid)
        kind = self.subscription.types.find(rid.type)
        if kind is not None and kind.embedded:
            return self._with_child(rid, kind, "delete")[1]
        fault = self._fault("delete", rid)
        record.state = "Deleting"
        return self._start(record, self._remove(record), fault, "Deleting")

    def _refuse_in_use(self, rid: ResourceId) -> None:
        kind = self.subscription.types.find(rid.type)
        if kind is None:
            return
        self.hooks(kind).release(rid)
        checks.refuse_in_use(self.subscription, rid, kind)

    def _delete_group(self, rid: ResourceId) -> Operation:
        group = self.subscription.group(rid)
        if group.state == "Deleting" and group.operation is not None:
            return group.operation
        fault = self._fault("delete", rid)
        group.state = "Deleting"
        return self._start(group, self._empty(group), fault, "Succeeded")

    async def _empty(self, group: Record) -> None:
        inside = f"{group.id.key}/"
        members = [r for r in self.subscription.resources.values() if r.id.key.startswith(inside)]
        members.sort(key=lambda r: (-r.kind.group_rank, -str(r.id).count("/")))
        for record in members:
            if record.operation is not None:
                await record.operation.done.wait()
            record.state = "Deleting"
        for record in members:
            await self._remove(record)
        self.subscription.groups.pop(group.id.key, None)

    async def _remove(self, record: Record) -> None:
        for each in (*self.subscription.inside(record.id), record):
            each.state = "Deleting"
            await self.hooks(each.kind).remove(each)
            self.forget(each)

    def forget(self, record: Record) -> None:
        """Drop a resource from the state, e.g. one whose creation failed before the request was answered."""
        self.subscription.resources.pop(record.id.key, None)

    # -- operations ---------------------------------------------------------------------------------------

    def begin(
        self, record: Record, verb: str, work: Coroutine[Any, Any, Any], state: str | None
    ) -> Operation:
        """Start an action on a resource; with ``state`` it is a change, which no other may overlap."""
        if state is not None and record.busy:
            work.close()
            raise self._conflict(record)
        try:
            fault = self._fault(verb, record.id)
        except ArmError:
            work.close()
            raise
        if state is None:
            return self.operations.start(record.kind.namespace, self._place(record), work, fault)
        record.state = state
        operation = self._start(record, work, fault, "Succeeded")
        operation.subject = None  # an action's final answer is its result, not the resource
        return operation

    def _start(
        self, record: Record, work: Coroutine[Any, Any, Any], fault: Fault | None, then: str
    ) -> Operation:
        def ended(operation: Operation) -> None:
            record.state = "Failed" if operation.error else then

        namespace = record.kind.namespace
        record.operation = self.operations.start(namespace, self._place(record), work, fault, ended)
        record.operation.subject = record.id
        return record.operation

    def _place(self, record: Record) -> str:
        if not record.body.get("location") and not record.id.group:
            return "global"
        return place(record.body.get("location") or self.subscription.group(record.id).body["location"])

    def _fault(self, verb: str, rid: ResourceId) -> Fault | None:
        fault = self._faults(verb, rid) if self._faults is not None else None
        if fault is not None and fault.at_request and fault.error is not None:
            raise fault.error
        return fault

    def _conflict(self, record: Record) -> ArmError:
        path = record.operation.path if record.operation else ""
        return conflict(record.id.namespace, f"/subscriptions/{self.subscription.id}{path}")

    async def close(self) -> None:
        """Cancel the operations under way."""
        await self.operations.close()
        await asyncio.sleep(0)


def _no_parent(rid: ResourceId) -> ArmError:
    problem = "Can not perform requested operation on nested resource. Parent resource "
    return ArmError(404, "ParentResourceNotFound", f"{problem}'{rid.parent.name}' not found.")
