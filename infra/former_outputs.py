"""The stack's outputs as its last complete update left them."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

__all__ = ["former_outputs"]


def former_outputs() -> Mapping[str, object]:
    """Return what the running program's stack exported last; nothing of a stack that was never complete.

    Pulumi answers by the function behind its ``StackReference`` (``readStackOutputs`` in
    pkg/resource/deploy/builtins.go of pulumi/pulumi 3.232.0), from any backend, also during an update.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    answer = pulumi.runtime.invoke("pulumi:pulumi:readStackOutputs", {"name": name}).value or {}
    found = answer.get("outputs")
    return found if isinstance(found, Mapping) else {}
