"""Pulumi's state of a stack, as ``pulumi stack export`` prints it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SCALE_SET", "begun_in", "resource_name", "resources"]

SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
"""Pulumi's type of the nodes' scale set."""


def resources(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the resources in the state; none of a stack that was never up.

    >>> resources({"deployment": {"resources": [{"id": "/s"}]}}), resources({"deployment": None})
    ([{'id': '/s'}], ())
    """
    return (state.get("deployment") or {}).get("resources") or ()


def begun_in(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the operations that Pulumi had begun and not ended when it last wrote the state."""
    return (state.get("deployment") or {}).get("pending_operations") or ()


def resource_name(urn: str) -> str:
    """Return a resource's type and its name in the program.

    >>> resource_name("urn:pulumi:dev::ranklift::a$azure-native:network:Subnet::nodes")
    'Subnet nodes'
    """
    kind, _, name = urn.rpartition("::")
    return f"{re.split('[:/$]', kind)[-1]} {name}"
