"""The stack's configuration, checked as a whole before anything is created.

>>> config = parse({"ranklift:vmSize": "Standard_ND40rs_v2", "ranklift:nodeCount": "4",
...                 "ranklift:location": "South Central US", "ranklift:sshFrom": "203.0.113.7"})
>>> config.size.name, config.node_count, config.location, config.ssh_from, config.slots
('Standard_ND40rs_v2', 4, 'southcentralus', ('203.0.113.7/32',), 8)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar

from images.catalogue import Image
from infra import values
from infra.network_config import VNET_PREFIX, private_prefix, ssh_sources, subnet_of
from infra.sizes import Size
from infra.values import KEY, Access
from launch.errors import InputError

__all__ = ["ClusterConfig", "ConfigError", "parse"]

T = TypeVar("T")

_KEYS = (
    "access",
    "adminUser",
    "allowWithoutInfiniBand",
    "computerNamePrefix",
    "image",
    "largeScaleSet",
    "location",
    "nodeCount",
    "spot",
    "sshFrom",
    "tags",
    "vmSize",
    "vnetPrefix",
)


class ConfigError(InputError):
    """Several things in the configuration are wrong; ``errors`` has each, the text a line for each."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.problem, first.remedy)
        self.errors = tuple(errors)
        self.args = ("\n".join(map(str, errors)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster, as asked for and found sound."""

    size: Size
    node_count: int
    location: str
    """Azure's short name, e.g. ``southcentralus``."""
    access: Access = "public"
    """``private``: no public address; the operator reaches the nodes' own addresses."""
    ssh_from: tuple[str, ...] = ()
    """IPv4 networks that may open ssh connections; empty with ``access: private`` only."""
    image: Image
    spot: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    """The user's own; the stack's tag comes on top."""
    vnet_prefix: str = VNET_PREFIX
    admin_user: str = "azureuser"
    computer_name_prefix: str = "node"
    large_scale_set: bool = False
    """The subscription may put more than 100 nodes into one placement group (a support request)."""

    @property
    def subnet_prefix(self) -> str:
        """The nodes' subnet: the first /20 of the network, or all of a smaller one."""
        return subnet_of(self.vnet_prefix)

    @property
    def slots(self) -> int:
        """Processes a node can take."""
        assert self.size.slots is not None, "sizes without slots are refused"  # noqa: S101 - parse() saw to it
        return self.size.slots


def parse(settings: Mapping[str, object], *, today: date | None = None) -> ClusterConfig:
    """The cluster that ``settings`` (keys like ``ranklift:vmSize``; other namespaces are ignored) describe.

    Values may be strings, as Pulumi hands them over, or what they stand for. ``today`` decides which sizes
    are retired. Raises :class:`~launch.errors.InputError` naming key, value and remedy, or
    :class:`ConfigError` with all of them when there are several.
    """
    given = {key.removeprefix(KEY): value for key, value in settings.items() if key.startswith(KEY)}
    errors: list[InputError] = [_unknown_key(key, value) for key, value in given.items() if key not in _KEYS]

    def required(key: str, reader: Callable[[str, object], T]) -> T | None:
        if given.get(key) in (None, ""):
            errors.append(InputError(KEY + key, None, "is not set", values.remedy(key)))
            return None
        try:
            return reader(KEY + key, given[key])
        except InputError as error:
            errors.append(error)
            return None

    def optional(key: str, reader: Callable[[str, object], T], default: T) -> T:
        value = None if given.get(key) in (None, "") else required(key, reader)
        return default if value is None else value

    without_infiniband = optional("allowWithoutInfiniBand", values.boolean, False)
    large = optional("largeScaleSet", values.boolean, False)
    public: Access = "public"
    access = optional("access", values.access, public)
    on = today or date.today()
    size = required("vmSize", lambda key, value: values.fit_size(key, value, without_infiniband, on))
    count = required("nodeCount", lambda key, value: values.node_count(key, value, large))
    location = required("location", values.location)
    nowhere: tuple[str, ...] = ()
    if access == "public":
        ssh_from = required("sshFrom", ssh_sources)
    else:
        ssh_from = optional("sshFrom", ssh_sources, nowhere)
    image: Image | None = values.image_of(size) if size else None
    if given.get("image") or (size and not image):
        image = required("image", values.image)
    vnet = optional("vnetPrefix", lambda key, value: private_prefix(key, value, count or 1), VNET_PREFIX)
    spot = optional("spot", values.boolean, False)
    no_tags: dict[str, str] = {}
    tags = optional("tags", values.tags, no_tags)
    user = optional("adminUser", values.admin_user, "azureuser")
    prefix = optional("computerNamePrefix", values.computer_name_prefix, "node")

    if errors:
        raise errors[0] if len(errors) == 1 else ConfigError(errors)
    # Whatever is None here has left an error above; the type checker cannot know.
    assert size and count and location and image and ssh_from is not None  # noqa: S101
    return ClusterConfig(
        size=size,
        node_count=count,
        location=location,
        access=access,
        ssh_from=ssh_from,
        image=image,
        spot=spot,
        tags=tags,
        vnet_prefix=vnet,
        admin_user=user,
        computer_name_prefix=prefix,
        large_scale_set=large,
    )


def _unknown_key(key: str, value: object) -> InputError:
    lowered = {known.lower(): known for known in _KEYS}
    plain = re.sub("[^a-z]", "", key.lower())
    close = difflib.get_close_matches(plain, lowered, n=1, cutoff=0.6)
    remedy = f"did you mean {KEY}{lowered[close[0]]}?" if close else "the keys are " + ", ".join(_KEYS)
    return InputError(KEY + key, value, "is no setting", remedy)
