"""Readers of single settings: key and raw value in, checked value out; wrong ones raise ``InputError``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import TypeVar

from catalogue.size import Size
from catalogue.sizes import lookup, refusal
from images.os_images import Image, default_image, parse_image, unfit
from infra.naming import OWN_TAGS
from launch.errors import InputError
from launch.numbers import shown, whole

__all__ = [
    "KEY",
    "admin_user",
    "boolean",
    "computer_name_prefix",
    "fit_size",
    "image",
    "image_of",
    "is_encrypted",
    "location",
    "node_count",
    "one_of",
    "public_only",
    "remedy",
    "string_list",
    "tags",
    "text",
    "whole_number",
    "zone",
]

W = TypeVar("W", bound=str)

KEY = "ranklift:"
"""The namespace of the settings."""

_ONE_GROUP, _ONE_GROUP_LARGE = 100, 300
"""Nodes in one placement group, by default and by support request (azure-docs sizes-hpc.md)."""

_PUBLIC_CLOUD = {"public", "azurecloud", "azurepubliccloud"}

_TAGS, _TAG_NAME, _TAG_VALUE = 50, 512, 256  # Azure's limits
_TAG_FORBIDDEN = frozenset("<>%&\\?/")
_PREFIX = 58  # a Linux computer name has 64 characters at most, six are the instance's
_RESERVED_USERS = re.compile(
    "1|123|a|actuser|adm|admin[12]?|administrator|aspnet|backup|console|david|guest|john|owner|root|server|sql|"
    "support|support_388945a0|sys|test[123]?|user[1-5]?"
)
"""What Azure refuses as adminUsername (description of osProfile in its compute API)."""

_REMEDIES = {
    "vmSize": "set it to an InfiniBand size like Standard_ND40rs_v2",
    "nodeCount": "set it to the number of nodes wanted",
    "location": "set it to an Azure region like southcentralus",
    "sshFrom": "set it to the network you connect from, like 203.0.113.7/32, or ranklift:access to private",
    "image": "this size has no default image: set it to publisher:offer:sku:version",
}


def is_encrypted(value: object) -> bool:
    """Return whether a value of a configuration file is, or contains, what Pulumi has encrypted.

    Pulumi writes it as a mapping of one key (isSecureValue in pulumi/pulumi, sdk/go/common/resource/config).

    >>> is_encrypted({"secure": "v1:a"}), is_encrypted([{"a": {"secure": "v1:a"}}])
    (True, True)
    >>> is_encrypted({"secure": "true", "team": "a"})
    False
    """
    if isinstance(value, Mapping):
        return value.keys() == {"secure"} or any(map(is_encrypted, value.values()))
    return isinstance(value, list) and any(map(is_encrypted, value))


def remedy(key: str) -> str:
    """Return what to do about a missing ``key``."""
    return f"{_REMEDIES.get(key, 'set it')} (fab config set {key} …)"


def text(key: str, value: object) -> str:
    """Read a string, without the spaces around it."""
    if not isinstance(value, str):
        raise InputError(key, value, "is not a string", "put quotes around it")
    return value.strip()


def boolean(key: str, value: object) -> bool:
    """Read ``true`` or ``false``."""
    lowered = str(value).lower()
    if lowered not in {"true", "false"}:
        raise InputError(key, value, "is neither true nor false", "set it to true or false")
    return lowered == "true"


def whole_number(key: str, value: object, remedy: str) -> int:
    """Read ASCII digits with an optional sign; Python alone would take other digits too.

    >>> whole_number("nodeCount", " 4 ", "set it"), whole_number("nodeCount", 4, "set it")
    (4, 4)
    """
    number = whole(value)
    if number is None:
        raise InputError(key, value, "is not a whole number", remedy)
    return number


def string_list(key: str, value: object) -> list[str]:
    """Read a list of strings, its JSON text, or strings with commas between."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        parts = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise InputError(key, value, "is not a list of strings", "write it like a, b")
    return [part.strip() for part in parts]


def one_of(*words: W) -> Callable[[str, object], W]:
    """Return the reader of one of ``words``.

    >>> one_of("none", "serviceEndpoint", "privateEndpoint")("storage", "blob")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: storage = 'blob': is none of none, serviceEndpoint, privateEndpoint; set it \
to none, serviceEndpoint or privateEndpoint
    """

    def read(key: str, value: object) -> W:
        for word in words:
            if value == word:
                return word
        *others, last = words
        listed = ", ".join(others)
        problem = f"is none of {listed}, {last}" if others[1:] else f"is neither {listed} nor {last}"
        raise InputError(key, value, problem, f"set it to {listed} or {last}")

    return read


def zone(key: str, value: object) -> str:
    """Read an availability zone of the region."""
    given = str(value).strip()
    if not re.fullmatch("[1-9]", given):
        remedy = "set it to 1, 2 or 3: all nodes of an InfiniBand network are in one zone"
        raise InputError(key, value, "is not an availability zone", remedy)
    return given


def fit_size(key: str, value: object, allow_without_infiniband: bool | None, today: date) -> Size:
    """Read the name of a size of which a cluster can be built on that day."""
    size = lookup(text(key, value), key)
    refused = refusal(size, today)
    if refused is None or (refused.waivable and allow_without_infiniband):
        return size
    waiver = f", or set {KEY}allowWithoutInfiniBand to true" if refused.waivable else ""
    raise InputError(key, str(value), refused.reason, f"the nearest fit is {refused.instead}{waiver}")


def node_count(key: str, value: object, large_scale_set: bool | None) -> int:
    """Read a number of nodes that fit into one placement group."""
    count = whole_number(key, value, _REMEDIES["nodeCount"])
    if count < 1:
        raise InputError(key, shown(value, count), "must be at least 1", _REMEDIES["nodeCount"])
    if count > _ONE_GROUP_LARGE:
        raise InputError(
            key,
            shown(value, count),
            f"is more than the {_ONE_GROUP_LARGE} nodes that share one InfiniBand network",
            f"set it to {_ONE_GROUP_LARGE} or less: two scale sets can never form one job",
        )
    if count > _ONE_GROUP and not large_scale_set:
        raise InputError(
            key,
            count,
            f"is more than the {_ONE_GROUP} nodes that Azure lets share one InfiniBand network by default",
            f"ask Azure's support for {_ONE_GROUP_LARGE}, then set {KEY}largeScaleSet to true",
        )
    return count


def location(key: str, value: object) -> str:
    """Read a region by its short or its display name, and return the short one.

    >>> location("location", "South Central US")
    'southcentralus'
    """
    short = text(key, value).lower().replace(" ", "")
    if not re.fullmatch(r"[a-z]+[a-z0-9]*", short):
        raise InputError(
            key,
            str(value),
            "is not an Azure region",
            "use a name that `az account list-locations --query '[].name'` lists, like southcentralus",
        )
    return short


def image(key: str, value: object, size: Size | None = None) -> Image:
    """Read an image that is not known to lack the drivers of ``size``."""
    named = parse_image(text(key, value), key)
    lacking = unfit(named, size) if size else None
    if lacking:
        raise InputError(key, str(value), *lacking.split(": ", 1))
    return named


def image_of(size: Size) -> Image | None:
    """Return the default image of ``size``, or ``None`` if none is known to fit."""
    return default_image(size.image) if size.image else None


def tags(key: str, value: object) -> dict[str, str]:
    """Read tags within Azure's limits, from a mapping or its JSON text."""
    try:
        given = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        given = None
    if not isinstance(given, Mapping):
        raise InputError(key, value, "is not a mapping of names to strings", "write it like {team: vision}")
    free = _TAGS - len(OWN_TAGS)
    if len(given) > free:
        kept = f"keep {free}: Azure allows {_TAGS}, and the stack sets the others"
        raise InputError(key, None, f"has {len(given)} tags", kept)
    result: dict[str, str] = {}
    for name, content in given.items():
        here = f"{key}.{name}"
        if not isinstance(content, str | int | float):
            raise InputError(here, content, "is not a string", "put quotes around it")
        if not str(name).strip() or len(str(name)) > _TAG_NAME or _TAG_FORBIDDEN & set(str(name)):
            allowed = rf"use 1 to {_TAG_NAME} characters, none of <>%&\?/"
            raise InputError(here, None, "is not a tag name", allowed)
        if len(str(content)) > _TAG_VALUE:
            raise InputError(here, None, f"has {len(str(content))} characters", f"use at most {_TAG_VALUE}")
        if str(name).lower() in {*OWN_TAGS, *(taken.lower() for taken in result)}:
            raise InputError(
                here, str(content), "is already in use (names are case-insensitive)", "rename one"
            )
        result[str(name)] = json.dumps(content) if isinstance(content, bool) else str(content)
    return result


def public_only(key: str, cloud: object) -> None:
    """Refuse clouds other than the public one: their addresses are not known here.

    Raises :class:`~launch.errors.InputError` naming ``key``; an unset cloud is the public one.

    >>> public_only("azure-native:environment", "public")
    """
    if str(cloud or "public").lower() not in _PUBLIC_CLOUD:
        problem = "is another of Azure's clouds; only the public one is supported"
        raise InputError(key, cloud, problem, "remove it, or set it to public")


def admin_user(key: str, value: object) -> str:
    """Read a user name that Linux and Azure both take."""
    name = text(key, value)
    if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", name):
        raise InputError(key, name, "is not a Linux user name", "use up to 32 of a-z, 0-9, _ and -")
    if _RESERVED_USERS.fullmatch(name):
        raise InputError(key, name, "is refused by Azure", "use another name, like azureuser")
    return name


def computer_name_prefix(key: str, value: object) -> str:
    """Read the prefix of the nodes' names."""
    prefix = text(key, value)
    if not re.fullmatch(rf"[a-z]([a-z0-9-]{{0,{_PREFIX - 2}}}[a-z0-9])?", prefix):
        raise InputError(
            key,
            prefix,
            "is not a computer name prefix",
            f"use lower-case letters, digits and -, {_PREFIX} at most, the first a letter, the last not -",
        )
    return prefix
