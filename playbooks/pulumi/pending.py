"""Changes of the configuration that wait for the next update: those that would replace every node."""

from __future__ import annotations

from infra.arm.pulumi_state import SCALE_SET
from launch.errors import InputError
from playbooks.project import Stack

__all__ = ["refuse_replacement"]

_REMOVING = ("replace", "create-replacement", "delete-replaced", "delete")
"""Steps of a preview, in Pulumi's words, that remove a resource."""


def refuse_replacement(stack: Stack) -> None:
    """Ask Pulumi for a preview; refuse if the update would replace the scale set, and so all nodes.

    Commands that promise to leave other nodes alone update the stack, and an update applies every setting
    that was changed since the last one. Raises :class:`~launch.errors.InputError`.
    """
    for step in stack.preview().get("steps", ()):
        if f"{SCALE_SET}::" not in step["urn"] or step["op"] not in _REMOVING:
            continue
        changed = ", ".join(step.get("replaceReasons") or step.get("diffReasons") or ("its definition",))
        raise InputError(
            "stack",
            stack.name,
            f"settings changed since the last update replace all nodes ({changed}); nothing was changed",
            f"set them back, or apply them with `fab up --stack {stack.name}`, which deletes all nodes with "
            f"what is on them; `pulumi preview --diff --stack {stack.name}` shows the changes",
        )
