"""Pulumi's record of a stack, as ``pulumi stack export`` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SCALE_SET", "begun_in", "resources"]

SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
"""Pulumi's type of what the nodes are in."""


def resources(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What Pulumi remembers to have made, and made of what; nothing of a stack that was never up.

    >>> resources({"deployment": {"resources": [{"id": "/s"}]}}), resources({"deployment": None})
    ([{'id': '/s'}], ())
    """
    return (state.get("deployment") or {}).get("resources") or ()


def begun_in(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The operations that Pulumi had begun and not ended when it was last heard of."""
    return (state.get("deployment") or {}).get("pending_operations") or ()
