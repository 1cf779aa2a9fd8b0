"""Plain Ubuntu images: the drivers that a node with one installs at its first boot.

>>> from images.os_images import parse_image
>>> release(parse_image("Canonical:ubuntu-24_04-lts:server:24.04.202609040"))
'24.04'
>>> release(parse_image("microsoft-dsvm:ubuntu-hpc:2204:22.04.2026080501")) is None
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from images.os_images import Image, MarketplaceImage, parse_image
from infra.config.cluster_config import ClusterConfig
from infra.config.collector import Settings
from infra.config.readers import KEY
from launch.errors import InputError

if TYPE_CHECKING:
    from images.recipe import Ubuntu
    from images.steps import Step

__all__ = ["boot_steps", "is_plain", "mismatches", "names_plain", "release"]

_PUBLISHER = "canonical"


def is_plain(image: Image) -> bool:
    """Whether the image is Canonical's Ubuntu, which has neither OFED nor a GPU driver."""
    return isinstance(image, MarketplaceImage) and image.publisher.lower() == _PUBLISHER


def names_plain(text: str) -> bool:
    """Whether a setting names such an image; raise :class:`~launch.errors.InputError` for one that is none.

    >>> names_plain("Canonical:ubuntu-24_04-lts:server:24.04.202609040")
    True
    """
    return is_plain(parse_image(text, f"{KEY}image"))


def release(image: Image) -> Ubuntu | None:
    """Return the image's Ubuntu release; ``None`` for other images and for releases without a recipe."""
    return image.ubuntu if isinstance(image, MarketplaceImage) and is_plain(image) else None


def boot_steps(config: ClusterConfig) -> tuple[Step, ...]:
    """Return the recipe steps of the first boot; none unless the image is plain Ubuntu."""
    ubuntu = release(config.image)
    return _steps(config.size.name, ubuntu) if ubuntu is not None else ()


def mismatches(config: ClusterConfig, _settings: Settings) -> Iterator[InputError]:
    """Yield an error if no recipe fits a plain image and its size."""
    image = config.image
    if not isinstance(image, MarketplaceImage) or not is_plain(image):
        return
    ubuntu = release(image)
    if ubuntu is None:
        problem = "is an Ubuntu release without a recipe"
        yield InputError(f"{KEY}image", image.urn, problem, "use 22.04 or 24.04, or an HPC image")
        return
    try:
        _steps(config.size.name, ubuntu)
    except InputError as error:
        other: Ubuntu = "22.04" if ubuntu == "24.04" else "24.04"
        problem = f"has no drivers, and no recipe installs them: {error.problem}"
        remedy = f"use Ubuntu {other}, or an HPC image" if _fits(config.size.name, other) else error.remedy
        yield InputError(f"{KEY}image", image.urn, problem, remedy)


def _steps(size: str, ubuntu: Ubuntu) -> tuple[Step, ...]:
    from images.recipe import recipe_for
    from images.steps import steps

    return steps(recipe_for(size, ubuntu=ubuntu))


def _fits(size: str, ubuntu: Ubuntu) -> bool:
    try:
        return bool(_steps(size, ubuntu))
    except InputError:
        return False
