"""What is printed of an update that shows no more: its changes, all diagnostics, its counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.arm.pulumi_state import resource_name
from infra.arm.update_errors import plain_diagnostic

__all__ = ["UpdateLines"]

_DONE = {
    "create": "created",
    "update": "updated",
    "replace": "replaced",
    "delete": "deleted",
    "import": "imported",
    "same": "unchanged",
}
"""Operations in words, in the order of the counts. A replacement's own creation and deletion are left out."""
_UNNAMED = ("same",)


class UpdateLines:
    """The lines of one update, each once: Pulumi repeats in the update what it printed in its preview."""

    def __init__(self) -> None:
        self.has_error = False
        self._printed: set[object] = set()

    def take(self, events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Yield kind (``change``, ``error``, ``warning``, ``info`` or ``counts``) and text of what is new in
        the next events; changes of one operation in one line."""
        changed: dict[str, list[str]] = {}
        rest: list[tuple[str, str]] = []
        for event in events:
            ended = event.get("resOutputsEvent")
            if ended is not None and not ended.get("planning"):
                metadata = ended["metadata"]
                word = _DONE.get(metadata["op"])
                if word and metadata["op"] not in _UNNAMED and self._is_new((word, metadata["urn"])):
                    # Components, the stack and the providers are nothing in Azure.
                    state = metadata.get("new") or metadata.get("old") or {}
                    if state.get("custom") and "pulumi:providers:" not in metadata["urn"]:
                        changed.setdefault(word, []).append(resource_name(metadata["urn"]))
            rest += self._diagnosed(event)
            counts = _counts(event.get("summaryEvent") or {})
            if counts and self._is_new(counts):
                rest.append(("counts", counts))
        for word, names in changed.items():
            yield "change", f"{word} {', '.join(names)}"
        yield from rest

    def _diagnosed(self, event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        found = event.get("diagnosticEvent") or {}
        severity = str(found.get("severity"))
        if found and severity != "debug" and not found.get("ephemeral"):
            name, text = plain_diagnostic(found)
            if text and self._is_new((severity, name, text)):
                self.has_error |= severity == "error"
                kind = severity if severity in ("error", "warning") else "info"
                yield kind, f"{name}: {text}" if name else text
        policy = event.get("policyEvent") or {}
        if policy:
            name, text = plain_diagnostic({**policy, "urn": policy.get("resourceUrn")})
            text = f"policy {policy.get('policyName')} ({policy.get('enforcementLevel')}): {text}"
            if self._is_new((name, text)):
                kind = "error" if policy.get("enforcementLevel") == "mandatory" else "warning"
                yield kind, f"{name}: {text}" if name else text

    def _is_new(self, key: object) -> bool:
        is_new = key not in self._printed
        self._printed.add(key)
        return is_new


def _counts(summary: Mapping[str, Any]) -> str:
    changes = summary.get("resourceChanges") or {}
    if not changes or summary.get("isPreview"):
        return ""
    ordered = [op for op in _DONE if op in changes] + [op for op in changes if op not in _DONE]
    words = ", ".join(f"{changes[op]} {_DONE.get(op, op)}" for op in ordered)
    return f"Pulumi: {words}, in {summary.get('durationSeconds', 0)} s"
