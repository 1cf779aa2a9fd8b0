"""Changes of the configuration that wait for the next update: those that would replace every node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.arm.pulumi_state import SCALE_SET
from launch.errors import InputError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.pulumi.partial import COUNT

__all__ = ["Replacement", "find_replacement", "refuse_replacement"]

_REMOVING = ("replace", "create-replacement", "delete-replaced", "delete")
"""Steps of a preview, in Pulumi's words, that remove a resource."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Why the next update replaces the scale set, and so all nodes."""

    settings: tuple[str, ...]
    """Settings changed since the last update, with both values."""
    properties: tuple[str, ...]
    """Changed properties of the scale set."""

    def __str__(self) -> str:
        """Return the settings; where none was changed, the properties.

        >>> str(Replacement((), ("virtualMachineProfile",)))
        'virtualMachineProfile'
        """
        return ", ".join(self.settings or self.properties or ("its definition",))


def find_replacement(stack: Stack, options: Sequence[str] = ()) -> Replacement | None:
    """Ask Pulumi for a preview of the update with ``options``; return why it replaces all nodes, if it does.

    Raises as :meth:`~playbooks.project.Stack.outputs`.
    """
    output.command(["pulumi", "preview", "--stack", stack.name, *options])
    for step in stack.preview(options).get("steps", ()):
        if f"{SCALE_SET}::" in step["urn"] and step["op"] in _REMOVING:
            paths = [
                path
                for path, change in (step.get("detailedDiff") or {}).items()
                if change.get("kind", "").endswith("replace")
            ]
            properties = tuple(paths or step.get("replaceReasons") or step.get("diffReasons") or ())
            return Replacement(tuple(_changed(stack)), properties)
    return None


def refuse_replacement(stack: Stack) -> None:
    """Refuse if the next update would replace all nodes.

    Commands that promise to leave other nodes alone update the stack, and an update applies every setting
    that was changed since the last one. Raises :class:`~launch.errors.InputError`.
    """
    found = find_replacement(stack)
    if found is not None:
        raise InputError(
            "stack",
            stack.name,
            f"settings changed since the last update replace all nodes ({found}); nothing was changed",
            f"set them back, or apply them with `fab up --stack {stack.name}`, which deletes all nodes with "
            f"what is on them; `pulumi preview --diff --stack {stack.name}` shows the changes",
        )


def _changed(stack: Stack) -> Iterator[str]:
    """Yield the settings that differ from those of the last update that succeeded.

    The number of nodes replaces none, and of secrets the history has no value.
    """
    updates = stack.history()
    last = next((one for one in updates if (one["kind"], one["result"]) == ("update", "succeeded")), None)
    if last is None:
        return
    skipped = {COUNT, *(key for key, one in last["config"].items() if one.get("secret"))}
    before = {key: one.get("value") for key, one in last["config"].items() if key not in skipped}
    now = {key: _text(value) for key, value in stack.settings().items() if key not in skipped}
    for key in dict.fromkeys((*now, *before)):
        if now.get(key) != before.get(key):
            yield f"{key} = {_shown(now, key)}, was {_shown(before, key)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _shown(values: Mapping[str, Any], key: str) -> str:
    return f"'{values[key]}'" if key in values else "not set"
