"""Galleries with their images and versions, and Image Builder's templates, which make versions."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from rehearsal.arm.auth import roles
from rehearsal.arm.auth.identities import assigned
from rehearsal.arm.compute.compute_types import DEFINITIONS, GALLERIES, TEMPLATES, VERSIONS
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record, now
from rehearsal.arm.core.registry import kind_of

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["HOOKS", "run_outputs", "run_template"]

Body = dict[str, Any]
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_GALLERY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.]{0,78}[A-Za-z0-9])?")


def _accept_gallery(_: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    if not _GALLERY.fullmatch(rid.name):
        problem = "is invalid: letters, digits, underscores and periods, at most 80."
        raise ArmError(400, "InvalidParameter", f"The entity name '{rid.name}' {problem}", "galleryName")
    return body


def _accept_version(_: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    if not _VERSION.fullmatch(rid.name):
        problem = f"The entity name '{rid.name}' is invalid: a version is <number>.<number>.<number>."
        raise ArmError(400, "InvalidParameter", problem, "galleryImageVersion.name")
    return body


# -- templates --------------------------------------------------------------------------------------------


def _accept_template(subscription: Subscription, rid: ResourceId, body: Body, _old: Body | None) -> Body:
    given = list(assigned(body))
    if not given:
        raise _invalid(f"Image template {rid.name} needs a user-assigned identity.")
    for target in _targets(body):
        image = _image(target)
        for identity in given:
            principal = subscription.find(identity).guid
            if not roles.allows(subscription, principal, f"{VERSIONS}/write", image):
                raise _invalid(
                    f"Not authorized to access the resource: {target}. Please check the user assigned "
                    "identity has the correct permissions. For more details, go to https://aka.ms/azvmimagebuilderts."
                )
    return body


def _invalid(problem: str) -> ArmError:
    return ArmError(400, "ValidationFailed", f"Validation failed: {problem}")


def _targets(body: Body) -> list[ResourceId]:
    properties = body.get("properties") or {}
    found = [ResourceId.parse(d.get("galleryImageId", "")) for d in properties.get("distribute") or ()]
    return [f for f in found if f is not None]


def _image(target: ResourceId) -> ResourceId:
    return target.parent if target.type == VERSIONS else target


async def run_template(subscription: Subscription, record: Record) -> None:
    """Makes the versions that the template distributes; nothing is really built."""
    started = now()
    record.status = {"runState": "Running", "startTime": started, "message": ""}
    for target in _targets(record.body):
        kind = kind_of(VERSIONS)
        assert kind is not None  # noqa: S101
        if not subscription.exists(_image(target)):
            problem = f"The gallery image {_image(target)} was not found."
            record.status = {**record.status, "runState": "Failed", "endTime": now(), "message": problem}
            raise ArmError(404, "ResourceNotFound", problem)
        rid = (
            target
            if target.type == VERSIONS
            else target.child("versions", _next_version(subscription, target))
        )
        body = {
            "location": record.body["location"],
            "tags": dict(record.body.get("tags") or {}),
            "properties": {"storageProfile": {"source": {}}, "publishingProfile": {}},
        }
        made = Record(rid, kind, body, "Succeeded", owner=str(record.id))
        subscription.resources[rid.key] = made
    record.status = {**record.status, "runState": "Succeeded", "endTime": now()}


def _next_version(subscription: Subscription, image: ResourceId) -> str:
    # Image Builder numbers by date and time (learn.microsoft.com image-builder-json, SharedImage).
    taken = {r.id.name for r in subscription.of_type(VERSIONS) if r.id.parent.key == image.key}
    day, second = time.strftime("%y%j", time.gmtime()), int(time.time()) % 86400
    while f"0.{day}.{second}" in taken:
        second += 1
    return f"0.{day}.{second}"


def run_outputs(subscription: Subscription, record: Record) -> list[Body]:
    """What the last run has made, one entry a distribution."""
    made = [r for r in subscription.of_type(VERSIONS) if r.owner == str(record.id)]
    shown = []
    for distribution in (record.body.get("properties") or {}).get("distribute") or ():
        image = ResourceId.parse(distribution.get("galleryImageId", ""))
        of_it = [m for m in made if image is not None and m.id.parent.key == _image(image).key]
        if of_it:
            rid = record.id.child("runOutputs", distribution["runOutputName"])
            properties = {"artifactId": str(of_it[-1].id), "provisioningState": "Succeeded"}
            shown.append({"id": str(rid), "name": rid.name, "type": rid.type, "properties": properties})
    return shown


def _show_template(_: Subscription, record: Record, shown: Body) -> None:
    if record.status:
        shown["properties"]["lastRunStatus"] = dict(record.status)


def _show_version(_: Subscription, record: Record, shown: Body) -> None:
    profile = shown["properties"].setdefault("publishingProfile", {})
    profile.setdefault("publishedDate", record.created)


HOOKS = {
    GALLERIES: Hooks(accept=_accept_gallery),
    DEFINITIONS: Hooks(accept=_accept_gallery),
    VERSIONS: Hooks(accept=_accept_version, show=_show_version),
    TEMPLATES: Hooks(accept=_accept_template, show=_show_template),
}
