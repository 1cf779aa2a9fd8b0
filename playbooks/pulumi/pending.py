"""Changes of the configuration that wait for the next update: those that would replace every node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.arm.pulumi_state import SCALE_SET
from infra.config.readers import is_encrypted
from infra.config.replacing import settings_of
from launch.errors import InputError
from playbooks.cli import output
from playbooks.cli.signals import report_half_done
from playbooks.project import Stack
from playbooks.pulumi.partial import COUNT

__all__ = ["Replacement", "find_replacement", "refuse_replacement"]

_REMOVING = ("replace", "create-replacement", "delete-replaced", "delete")
"""Steps of a preview, in Pulumi's words, that remove a resource."""
_UNSET, _SECRET = "not set", "a secret"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Why the next update replaces the scale set, and so all nodes."""

    settings: tuple[str, ...]
    """Settings that force it, changed since the last update, with both values."""
    properties: tuple[str, ...] = ()
    """Properties of the scale set that force it and that no changed setting explains."""

    def __str__(self) -> str:
        """Return the settings, then the properties.

        >>> str(Replacement((), ("virtualMachineProfile",)))
        'virtualMachineProfile'
        """
        return ", ".join((*self.settings, *self.properties)) or "its definition"


def find_replacement(stack: Stack, options: Sequence[str] = ()) -> Replacement | None:
    """Ask Pulumi for a preview of the update with ``options``; return why it replaces all nodes, if it does.

    Raises as :meth:`~playbooks.project.Stack.outputs`.
    """
    output.command(["pulumi", "preview", "--stack", stack.name, *options])
    with report_half_done("no resource was changed: this was only a preview"):
        found = stack.preview(options)
    for step in found.get("steps", ()):
        if f"{SCALE_SET}::" in step["urn"] and step["op"] in _REMOVING:
            paths = [
                path
                for path, change in (step.get("detailedDiff") or {}).items()
                if change.get("kind", "").endswith("replace")
            ]
            properties = tuple(paths or step.get("replaceReasons") or step.get("diffReasons") or ())
            return _explained(properties, _changed(stack))
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


def _explained(properties: Sequence[str], changed: Mapping[str, str]) -> Replacement:
    """Return the replacement that these properties force, by those of the changed settings behind them."""
    causes = settings_of(properties)
    return Replacement(
        tuple(text for key, text in changed.items() if key in causes),
        tuple(one for one in properties if settings_of([one]).isdisjoint(changed)),
    )


def _changed(stack: Stack) -> dict[str, str]:
    """Return the settings that differ from those of the last update that succeeded, with both values.

    A secret's value is not shown; nor is its change known, since the history has no value.
    """
    updates = stack.history()
    last = next((one for one in updates if (one["kind"], one["result"]) == ("update", "succeeded")), None)
    if last is None:
        return {}
    before = {
        key: _SECRET if one.get("secret") else f"'{one.get('value')}'" for key, one in last["config"].items()
    }
    now = {key: _shown(value) for key, value in stack.settings().items()}
    return {
        key: f"{key} = {now.get(key, _UNSET)}, was {before.get(key, _UNSET)}"
        for key in dict.fromkeys((*now, *before))
        if key != COUNT and now.get(key) != before.get(key)
    }


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return _SECRET if is_encrypted(value) else f"'{text}'"
