"""Images: managed images, and galleries with their definitions and versions."""

from __future__ import annotations

import re

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.hooks import Body, Hooks
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.records import Record
from rehearsal.arm.core.resource_type import ResourceType
from rehearsal.arm.services import Services

__all__ = ["DEFINITIONS", "ENTRIES", "VERSIONS"]

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_GALLERY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.]{0,78}[A-Za-z0-9])?")
_IMAGES = ResourceType(
    "Microsoft.Compute/images",
    "compute.Image",
    ("imageName",),
    patch_model="compute.ImageUpdate",
    immutable=("storageProfile", "sourceVirtualMachine", "hyperVGeneration"),
)
_GALLERIES = ResourceType(
    "Microsoft.Compute/galleries",
    "compute.Gallery",
    ("galleryName",),
    patch_model="compute.GalleryUpdate",
    version="2024-03-03",
)
DEFINITIONS = ResourceType(
    f"{_GALLERIES.type}/images",
    "compute.GalleryImage",
    ("galleryName", "galleryImageName"),
    patch_model="compute.GalleryImageUpdate",
    immutable=("identifier", "osType", "osState", "hyperVGeneration", "architecture"),
    version="2024-03-03",
    before_parent=True,
)
VERSIONS = ResourceType(
    f"{DEFINITIONS.type}/versions",
    "compute.GalleryImageVersion",
    ("galleryName", "galleryImageName", "galleryImageVersionName"),
    patch_model="compute.GalleryImageVersionUpdate",
    immutable=("storageProfile",),
    version="2024-03-03",
    before_parent=True,
)


class _GalleryHooks(Hooks[Services]):
    """Names of galleries and of their definitions."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a malformed name."""
        if not _GALLERY.fullmatch(rid.name):
            problem = "is invalid: letters, digits, underscores and periods, at most 80."
            raise ArmError(400, "InvalidParameter", f"The entity name '{rid.name}' {problem}", "galleryName")
        return body


class _VersionHooks(Hooks[Services]):
    """Versions exist by name; no image is copied."""

    def accept(self, rid: ResourceId, body: Body, old: Body | None) -> Body:
        """Refuse a malformed name."""
        if not _VERSION.fullmatch(rid.name):
            problem = f"The entity name '{rid.name}' is invalid: a version is <number>.<number>.<number>."
            raise ArmError(400, "InvalidParameter", problem, "galleryImageVersion.name")
        return body

    def show(self, record: Record, shown: Body) -> None:
        profile = shown["properties"].setdefault("publishingProfile", {})
        profile.setdefault("publishedDate", record.created)


ENTRIES = (
    (_IMAGES, Hooks),
    (_GALLERIES, _GalleryHooks),
    (DEFINITIONS, _GalleryHooks),
    (VERSIONS, _VersionHooks),
)
