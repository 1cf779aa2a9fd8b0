"""The stack's outputs as its last complete update left them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pulumi

__all__ = ["former_outputs"]


_UNREADABLE = "failed to load checkpoint"
"""Part of the error where the state is read while the engine writes it: of a folder as backend, the file was
seen empty (``failed to load checkpoint: EOF``)."""
_LIMIT_S, _PAUSE_S = 20.0, 0.1


def former_outputs() -> Mapping[str, object]:
    """Return what the running program's stack exported last; nothing of a stack that was never complete.

    Pulumi answers by the function behind its ``StackReference`` (``readStackOutputs`` in
    pkg/resource/deploy/builtins.go of pulumi/pulumi 3.232.0), from any backend, also during an update. A
    state that is being written is read again, for up to 20 s; Pulumi's error is raised then.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    until = time.monotonic() + _LIMIT_S
    while True:
        try:
            answer = pulumi.runtime.invoke("pulumi:pulumi:readStackOutputs", {"name": name}).value or {}
        except Exception as error:
            if time.monotonic() > until or _UNREADABLE not in str(error):
                raise
            time.sleep(_PAUSE_S)
            continue
        found = answer.get("outputs")
        return found if isinstance(found, Mapping) else {}
