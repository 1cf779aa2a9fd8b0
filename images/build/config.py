"""What image is to be made, checked as a whole before anything is created.

>>> config = parse({"ranklift-images:size": "Standard_ND40rs_v2",
...                 "ranklift-images:location": "southcentralus",
...                 "ranklift-images:base": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.1",
...                 "ranklift-images:version": "1.0.0"})
>>> config.recipe.cuda, config.definition
('12.9', 'ND40rs.v2.ubuntu22.04')
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from images.os_images import MarketplaceImage, parse_image
from images.recipe import Mpi, Ofed, Recipe, Ubuntu, recipe_for
from launch.errors import InputError
from launch.numbers import bounded

__all__ = ["KEY", "ImageConfig", "parse"]

T = TypeVar("T")

KEY = "ranklift-images:"
"""The namespace of the settings."""

_SETTINGS: dict[str, str] = {
    "size": "the size of the nodes, like Standard_ND40rs_v2",
    "location": "an Azure region, like southcentralus",
    "base": "Canonical:<offer>:<sku>:<version>, one that az vm image list --publisher Canonical --all has",
    "version": "the image's own version, like 1.0.0, a new one for every change",
    "ubuntu": "22.04 or 24.04",
    "ofed": "doca or mlnx",
    "mpi": "hpcx or openmpi",
    "buildSize": "the size of the machine that builds, like Standard_D8s_v5",
    "diskGib": "a whole number of GiB from 64 to 1024",
    "minutes": "a whole number from 30 to 960",
    "tags": "a mapping of names to strings",
}
_DISK_GIB, _MINUTES = 128, 240
"""OFED, driver, CUDA and an MPI need some 40 GiB; a build with Open MPI's sources an hour or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """One image, as asked for and found sound."""

    recipe: Recipe
    location: str
    base: MarketplaceImage
    """Where it starts from: an Ubuntu of generation 2, as every InfiniBand size since NDv2 wants."""
    version: str
    """``major.minor.patch`` in the gallery."""
    build_size: str
    disk_gib: int
    minutes: int
    tags: Mapping[str, str]

    @property
    def definition(self) -> str:
        """Name of the image definition, one for each size and Ubuntu: letters, digits and periods alone."""
        size = self.recipe.size.removeprefix("Standard_").replace("_", ".")
        return f"{size}.ubuntu{self.recipe.ubuntu}"


def parse(settings: Mapping[str, object]) -> ImageConfig:
    """The image that ``settings`` describe (keys like ``ranklift-images:size``; others are ignored).

    Raises :class:`~launch.errors.InputError` naming key, value and remedy.
    """
    given = {key.removeprefix(KEY): value for key, value in settings.items() if key.startswith(KEY)}
    for key, value in given.items():
        if key not in _SETTINGS:
            raise InputError(KEY + key, value, "unknown setting", "known settings: " + ", ".join(_SETTINGS))

    def required(key: str, pattern: str) -> str:
        value = given.get(key)
        if value in (None, ""):
            raise InputError(KEY + key, None, "is not set", f"set it to {_SETTINGS[key]}")
        if not re.fullmatch(pattern, str(value)):
            raise InputError(KEY + key, value, "is not valid", f"set it to {_SETTINGS[key]}")
        return str(value)

    def optional(key: str, pattern: str, read: Callable[[str], T], default: T) -> T:
        return read(required(key, pattern)) if given.get(key) not in (None, "") else default

    def number(key: str, default: int, least: int, most: int) -> int:
        remedy = f"set it to {_SETTINGS[key]}"
        return optional(key, ".*", lambda text: bounded(KEY + key, text, least, most, remedy=remedy), default)

    try:
        recipe = recipe_for(
            required("size", r"Standard_\w+"),
            ubuntu=cast(Ubuntu | None, optional("ubuntu", r"22\.04|24\.04", str, None)),
            ofed=cast(Ofed | None, optional("ofed", "doca|mlnx", str, None)),
            mpi=cast(Mpi | None, optional("mpi", "hpcx|openmpi", str, None)),
        )
    except InputError as error:
        if error.key.startswith(KEY):
            raise
        raise InputError(KEY + error.key, error.value, error.problem, error.remedy) from None
    arm = recipe.cpu_arch == "Arm64"
    return ImageConfig(
        recipe=recipe,
        location=required("location", r"[a-z]+[a-z0-9]*"),
        base=_base(required("base", ".+"), recipe),
        version=required("version", r"(0|[1-9]\d{0,8})(\.(0|[1-9]\d{0,8})){2}"),
        build_size=optional(
            "buildSize", r"Standard_\w+", str, "Standard_D8ps_v5" if arm else "Standard_D8s_v5"
        ),
        disk_gib=number("diskGib", _DISK_GIB, 64, 1024),
        minutes=number("minutes", _MINUTES, 30, 960),
        tags=_tags(given.get("tags")),
    )


def _base(text: str, recipe: Recipe) -> MarketplaceImage:
    key = f"{KEY}base"
    image = parse_image(text, key)
    if not isinstance(image, MarketplaceImage):
        raise InputError(key, text, "is not a marketplace image", f"set it to {_SETTINGS['base']}")
    if image.publisher.lower() != "canonical":
        return image  # whoever takes another one knows what it is
    name = f"{image.offer}:{image.sku}".lower()
    if image.ubuntu != recipe.ubuntu:
        problem = f"is not the Ubuntu {recipe.ubuntu} of the recipe"
        raise InputError(key, text, problem, f"use one, or set {KEY}ubuntu")
    if ("arm64" in name) != (recipe.cpu_arch == "Arm64"):
        raise InputError(
            key, text, f"is not for {recipe.cpu_arch}, which {recipe.size} has", "use one that is"
        )
    if recipe.cpu_arch == "x64" and ("gen1" in name or ("jammy" in name and "gen2" not in name)):
        raise InputError(key, text, "is of generation 1, and the nodes boot generation 2", "use its gen2 sku")
    return image


def _tags(value: object) -> dict[str, str]:
    try:
        found: Any = json.loads(value) if isinstance(value, str) and value else value or {}
    except ValueError:
        found = None
    if not isinstance(found, Mapping) or not all(isinstance(part, str) for part in found.values()):
        raise InputError(
            f"{KEY}tags", value, "is not a mapping of names to strings", "write it like {team: vision}"
        )
    return dict(found)
