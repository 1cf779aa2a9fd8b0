"""Which operating system image a node boots, and what is in it.

An image is pinned to one version: ``latest`` moves, and nodes that join a cluster later would then differ
from those that are there. The images and what they hold are data, in ``catalogue.json``, each with its
source. For Arm64 (GB200, GB300) no source names a version: who wants such nodes names one.

>>> default_image("ubuntu-v100").urn
'microsoft-dsvm:ubuntu-hpc:2204-v100:22.04.2025082501'
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from catalogue.size import CpuArch, GpuDriver, Size
from launch.errors import InputError

__all__ = [
    "GalleryImage",
    "Image",
    "KnownImage",
    "MarketplaceImage",
    "Plan",
    "default_image",
    "known_images",
    "parse_image",
    "unfit",
]

_PLAN_PUBLISHERS = frozenset({"almalinux", "azhpc", "azurecyclecloud", "erocky"})
"""Publishers whose images Azure boots only with a purchase plan (github.com/Azure/azurehpc does the same)."""

_OLDEST = {
    "almalinux": 9,
    "debian": 11,
    "erocky": 9,
    "microsoft-dsvm": 20,
    "openlogic": 9,
    "oracle": 9,
    "redhat": 9,
    "resf": 9,
    "suse": 16,
}
"""By publisher, the oldest release whose Python and OpenSSH do for a node. The watch needs Python 3.8, sshd's
``Include`` came with OpenSSH 8.2: the Red Hat family's 8 has 3.6 and 8.0, Ubuntu 18.04 has 3.6 and 7.6, while
Debian 10 has 3.7 and 7.9, SUSE's 15 has 3.6."""

_RELEASE_IN_OFFER = {"debian", "suse"}
"""Publishers who number the versions of an image by itself: ``Debian:debian-12:12-gen2:0.20260801.2559``."""

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
    def ubuntu(self) -> Literal["22.04", "24.04"] | None:
        """Ubuntu's release by the image's names; ``None`` for another one, and where they do not show it."""
        named = f"{self.offer} {self.sku}".lower()
        if re.search("24[_.]?04|noble", named):
            return "24.04"
        return "22.04" if re.search("22[_.]?04|jammy", named) else None

    @property
    def plan(self) -> Plan | None:
        """What has to be stated beside the image, if its publisher is one that asks for it.

        >>> parse_image("almalinux:almalinux-hpc:9-hpc-gen2:9.6.2025061201").plan
        Plan(name='9-hpc-gen2', product='almalinux-hpc', publisher='almalinux')
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
        """Nothing: an own image is not a purchase."""
        return None


Image = MarketplaceImage | GalleryImage


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownImage:
    """A marketplace image of Azure's for HPC."""

    urn: str
    """Without a version where no source names one; who wants the image has to."""
    gpus: GpuDriver
    cpu_arch: CpuArch = "x64"
    rule: str | None = None
    """The ``image`` rule of sizes whose default it is."""
    release: str | None = None
    """The release of azhpc-images that made it; ``None`` where that was not looked up."""
    source: str


@cache
def known_images() -> tuple[KnownImage, ...]:
    """Return every known image, those with a version first."""
    data = json.loads(resources.files(__package__).joinpath("catalogue.json").read_text("utf-8"))
    return tuple(KnownImage(**row) for row in data["images"])


def unfit(image: Image, size: Size | None) -> str | None:
    """Return why ``image`` makes no node of ``size``: too old, or without a driver; ``None`` if not known to.

    >>> from catalogue.sizes import lookup
    >>> unfit(parse_image("microsoft-dsvm:ubuntu-hpc:2204:22.04.2026080501"), lookup("Standard_ND40rs_v2"))
    'has nvidia-open drivers, and a V100 needs nvidia-proprietary: use microsoft-dsvm:ubuntu-hpc:2204-v100, \
azure-hpc:azurelinux-hpc:3-v100 or azure-hpc:azurelinux-hpc:3-v100-fips'
    >>> unfit(parse_image("almalinux:almalinux-hpc:8_10-hpc-gen2:8.10.2025061201"), None)
    'is release 8 of almalinux, which is older than the Python 3.8 and OpenSSH 8.2 that nodes need: use \
release 9 or newer, or remove image for the default of the size'
    """
    if isinstance(image, GalleryImage):
        return None
    publisher = image.publisher.lower()
    oldest = _OLDEST.get(publisher, 0)
    release = _release(image)
    if release is not None and release < oldest:
        return (
            f"is release {release} of {image.publisher}, which is older than the Python 3.8 and OpenSSH "
            f"8.2 that nodes need: use release {oldest} or newer, or remove image for the default of the size"
        )
    if size is None or size.gpu_driver is None:
        return None
    wanted, arch = size.gpu_driver, size.cpu_arch
    named = {_unversioned(known.urn): known for known in known_images()}
    known = named.get(_unversioned(image.urn.lower()))
    held = known.gpus if known else None
    is_for = known.cpu_arch if known else arch
    # An older image with proprietary modules drives a newer GPU as well; what it lacks is seen on the nodes.
    drives = held in (None, wanted) or (held == "nvidia-proprietary" and wanted == "nvidia-open")
    if drives and is_for == arch:
        return None
    fitting = [urn for urn, one in named.items() if (one.gpus, one.cpu_arch) == (wanted, arch)]
    listed = " or ".join(filter(None, (", ".join(fitting[:-1]), *fitting[-1:])))
    if is_for != arch:
        return f"is for {is_for}, and {size.name} is {arch}: use {listed}"
    return f"has {held} drivers, and a {size.gpu} needs {wanted}: use {listed}"


def _unversioned(urn: str) -> str:
    return ":".join(urn.split(":")[:3])


def _release(image: MarketplaceImage) -> int | None:
    """Return the release of an image's operating system where its names show it, else None.

    >>> _release(parse_image("microsoft-dsvm:ubuntu-hpc:1804:18.04.2021120101"))
    18
    >>> _release(parse_image("microsoft-dsvm:ubuntu-2004:2004-gen2:19.01.21"))
    20
    >>> _release(parse_image("microsoft-dsvm:aks-hpc:ubuntu-2204:0.3.1")) is None
    True
    """
    publisher, offer = image.publisher.lower(), image.offer.lower()
    if publisher in _RELEASE_IN_OFFER:
        found = re.search(r"-([0-9]{1,4})", offer)
    elif publisher == "microsoft-dsvm" and offer != "ubuntu-hpc":
        # Its other offers count versions of their own: only an offer's name shows Ubuntu's release.
        found = re.match(r"ubuntu-([0-9]{2})[0-9]{2}", offer)
    else:
        found = re.match(r"([0-9]{1,4})\.[0-9]+\.[0-9]", image.version)
    return int(found[1]) if found else None


def default_image(rule: str) -> MarketplaceImage:
    """Return the image of a size's ``image`` rule: ``ubuntu``, ``ubuntu-v100`` or ``ubuntu-rocm``."""
    return MarketplaceImage(*next(known.urn for known in known_images() if known.rule == rule).split(":"))


def parse_image(text: str, key: str = "image") -> Image:
    """Return the image that ``text`` names: ``publisher:offer:sku:version``, or an own image's resource id.

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
