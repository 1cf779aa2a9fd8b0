"""Image Builder's templates, whose runs make gallery versions; nothing is really built."""

from __future__ import annotations

import time

from rehearsal.arm.auth import roles
from rehearsal.arm.auth.identities import assigned
from rehearsal.arm.compute.galleries import VERSIONS
from rehearsal.arm.core.errors import ArmError, may_not_make_images
from rehearsal.arm.core.hooks import Body, Hooks, Work
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record, now
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.services import Services

__all__ = ["ENTRIES"]

_TEMPLATES = ResourceType(
    "Microsoft.VirtualMachineImages/imageTemplates",
    "imagebuilder.ImageTemplate",
    ("imageTemplateName",),
    pulumi_type="azure-native:virtualmachineimages:VirtualMachineImageTemplate",
    patch_model="imagebuilder.ImageTemplateUpdateParameters",
    # An image template is replaced, not changed (learn.microsoft.com image-builder-troubleshoot).
    immutable=("source", "customize", "distribute", "vmProfile", "buildTimeoutInMinutes"),
    # What it names is what it will make.
    loose=("distribute",),
)


class _TemplateHooks(Hooks[Services]):
    """A run makes one version for each distribution."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a template without an identity, or whose identity may not write the versions."""
        given = list(assigned(body))
        if not given:
            raise _invalid(f"Image template {rid.name} needs a user-assigned identity.")
        for target in _targets(body):
            image = _image(target)
            for identity in given:
                principal = self.services.subscription.find(identity).guid
                if not roles.allows(self.services.subscription, principal, f"{VERSIONS.type}/write", image):
                    raise may_not_make_images(target)
        return body

    def show(self, record: Record, shown: Body) -> None:
        if record.status:
            shown["properties"]["lastRunStatus"] = dict(record.status)

    def act(self, rid: ResourceId, record: Record, action: str, body: Body) -> Work | Body | None:
        return Work(_run(self.services.subscription, record)) if action == "run" else None

    async def part(self, record: Record, name: str) -> Body | None:
        """Return what the last run has made, one entry a distribution."""
        return {"value": _run_outputs(self.services.subscription, record)} if name == "runoutputs" else None


async def _run(subscription: Subscription, record: Record) -> None:
    started = now()
    record.status = {"runState": "Running", "startTime": started, "message": ""}
    for target in _targets(record.body):
        if not subscription.exists(_image(target)):
            problem = f"The gallery image {_image(target)} was not found."
            record.status = {**record.status, "runState": "Failed", "endTime": now(), "message": problem}
            raise ArmError(404, "ResourceNotFound", problem)
        rid = (
            target
            if target.type == VERSIONS.type
            else target.child("versions", _next_version(subscription, target))
        )
        body = {
            "location": record.body["location"],
            "tags": dict(record.body.get("tags") or {}),
            "properties": {"storageProfile": {"source": {}}, "publishingProfile": {}},
        }
        subscription.add(Record(rid, VERSIONS, body, "Succeeded", owner=str(record.id)))
    record.status = {**record.status, "runState": "Succeeded", "endTime": now()}


def _run_outputs(subscription: Subscription, record: Record) -> list[Body]:
    made = [r for r in subscription.of_type(VERSIONS.type) if r.owner == str(record.id)]
    shown = []
    for distribution in record.properties.get("distribute") or ():
        image = ResourceId.parse(distribution.get("galleryImageId", ""))
        of_it = [m for m in made if image is not None and m.id.parent.key == _image(image).key]
        if of_it:
            rid = record.id.child("runOutputs", distribution["runOutputName"])
            properties = {"artifactId": str(of_it[-1].id), "provisioningState": "Succeeded"}
            shown.append({"id": str(rid), "name": rid.name, "type": rid.type, "properties": properties})
    return shown


def _invalid(problem: str) -> ArmError:
    return ArmError(400, "ValidationFailed", f"Validation failed: {problem}")


def _targets(body: Body) -> list[ResourceId]:
    given = body["properties"].get("distribute") or ()
    found = [ResourceId.parse(d.get("galleryImageId", "")) for d in given]
    return [f for f in found if f is not None]


def _image(target: ResourceId) -> ResourceId:
    return target.parent if target.type == VERSIONS.type else target


def _next_version(subscription: Subscription, image: ResourceId) -> str:
    # Image Builder numbers by date and time (learn.microsoft.com image-builder-json, SharedImage).
    taken = {r.id.name for r in subscription.of_type(VERSIONS.type) if r.id.parent.key == image.key}
    day, second = time.strftime("%y%j", time.gmtime()), int(time.time()) % 86400
    while f"0.{day}.{second}" in taken:
        second += 1
    return f"0.{day}.{second}"


ENTRIES = ((_TEMPLATES, _TemplateHooks),)
