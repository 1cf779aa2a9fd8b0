"""Which operating system image a node boots.

An image is pinned to one version: ``latest`` moves, and nodes that join a cluster later would then differ
from those that are there.

>>> default_image("ubuntu-v100").urn
'microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2025082501'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from launch.errors import InputError

__all__ = ["GalleryImage", "Image", "MarketplaceImage", "Plan", "default_image", "parse_image"]

_PLAN_PUBLISHERS = frozenset({"almalinux", "azhpc", "azurecyclecloud", "erocky"})
"""Publishers whose images Azure boots only with a purchase plan (github.com/Azure/azurehpc does the same)."""

_URN = re.compile(r"[A-Za-z0-9][\w.-]*(:[\w.-]+){3}")
_RESOURCE = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/"
    r"(?:images/[^/]+|galleries/[^/]+/images/[^/]+(?P<versions>/versions/(?P<version>[^/]+))?)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The purchase plan some marketplace images need; its terms are accepted once per subscription."""

    name: str
    product: str
    publisher: str


@dataclass(frozen=True, slots=True)
class MarketplaceImage:
    """One version of an image of the Azure marketplace."""

    publisher: str
    offer: str
    sku: str
    version: str

    @property
    def urn(self) -> str:
        """``publisher:offer:sku:version``, as the ``az`` command takes it."""
        return f"{self.publisher}:{self.offer}:{self.sku}:{self.version}"

    @property
    def plan(self) -> Plan | None:
        """What has to be stated beside the image, if its publisher is one that asks for it.

        >>> parse_image("almalinux:almalinux-hpc:8_10-hpc-gen2:8.10.2025061201").plan
        Plan(name='8_10-hpc-gen2', product='almalinux-hpc', publisher='almalinux')
        """
        if self.publisher.lower() not in _PLAN_PUBLISHERS:
            return None
        return Plan(name=self.sku, product=self.offer, publisher=self.publisher)


@dataclass(frozen=True, slots=True)
class GalleryImage:
    """An image of the user's own: a version in a gallery, or a managed image."""

    id: str
    """Azure resource id."""

    @property
    def plan(self) -> Plan | None:
        """Nothing: an own image is no purchase."""
        return None


Image = MarketplaceImage | GalleryImage

_DEFAULTS = {
    # Version seen in `az vm image list` by the middle of August 2026.
    "ubuntu": MarketplaceImage("microsoft-dsvm", "ubuntu-hpc", "2204", "22.04.2026080501"),
    # CUDA 12 and NVIDIA's proprietary kernel modules, without which a V100 shows no GPU. The version follows
    # from the release tag ubuntu-hpc-v100-2204-20250825 of github.com/Azure/azhpc-images, by the rule that
    # all versions of the offer keep to; no listing of the marketplace was at hand.
    "ubuntu-v100": MarketplaceImage("microsoft-dsvm", "ubuntu-hpc", "2204-v100", "22.04.2025082501"),
    # Version that Microsoft's own articles on the MI300X deploy.
    "ubuntu-rocm": MarketplaceImage("microsoft-dsvm", "ubuntu-hpc", "2204-rocm", "22.04.2025030701"),
}


def default_image(rule: str) -> MarketplaceImage:
    """The image of a size's ``image`` rule: ``ubuntu``, ``ubuntu-v100`` or ``ubuntu-rocm``."""
    return _DEFAULTS[rule]


def parse_image(text: str, key: str = "image") -> Image:
    """The image that ``text`` names: ``publisher:offer:sku:version``, or the resource id of an own image.

    Raises :class:`~launch.errors.InputError` naming ``key`` for anything else and for ``latest``.

    >>> parse_image("microsoft-dsvm:ubuntu-hpc:2204:latest")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: image = 'microsoft-dsvm:ubuntu-hpc:2204:latest': latest moves, so that nodes \
added later would differ from the others; pin a version that \
`az vm image list --publisher microsoft-dsvm --offer ubuntu-hpc --sku 2204 --all` lists
    """
    if _URN.fullmatch(text):
        image = MarketplaceImage(*text.split(":"))
        if image.version.lower() == "latest":
            raise InputError(
                key,
                text,
                "latest moves, so that nodes added later would differ from the others",
                f"pin a version that `az vm image list --publisher {image.publisher} --offer {image.offer} "
                f"--sku {image.sku} --all` lists",
            )
        return image
    match = _RESOURCE.fullmatch(text)
    if match is None:
        raise InputError(
            key,
            text,
            "is neither publisher:offer:sku:version nor the resource id of an image",
            "write it like microsoft-dsvm:ubuntu-hpc:2204:22.04.2026080501 or "
            "/subscriptions/…/galleries/<gallery>/images/<image>/versions/<version>",
        )
    if "/galleries/" in text.lower() and (match["version"] or "latest").lower() == "latest":
        raise InputError(
            key,
            text,
            "names no version, so that nodes added later could differ from the others",
            "end it with /versions/<version>",
        )
    return GalleryImage(text)
