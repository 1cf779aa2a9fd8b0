"""Between Pulumi's inputs and outputs and ARM's ids and bodies."""

from __future__ import annotations

from typing import Any

from infra.rehearsal.arm.ids import ResourceId
from infra.rehearsal.arm.kinds import GROUP, Kind
from infra.rehearsal.arm.models import Field, flatten, nest, shape
from infra.rehearsal.arm.records import place
from infra.rehearsal.provider.values import UNKNOWN, Unknown, plain, weave

__all__ = ["API_VERSIONS", "body", "inputs_of", "outputs", "path_names", "predicted", "resource_id"]

API_VERSIONS = {
    "Microsoft.Compute": "2024-11-01",
    "Microsoft.Network": "2024-05-01",
    "Microsoft.Resources": "2024-03-01",
}
"""Default API version of each provider in pulumi-azure-native 3.29.0."""


def resource_id(kind: Kind, subscription: str, inputs: dict[str, Any]) -> ResourceId:
    """The id that the names in ``inputs`` make."""
    known = plain(inputs)
    if kind is GROUP:
        return ResourceId(subscription, str(known["resourceGroupName"]))
    namespace, *collections = kind.type.split("/")
    parts = [p for c, n in zip(collections, kind.names, strict=True) for p in (c, str(known[n]))]
    return ResourceId(subscription, str(known["resourceGroupName"]), namespace, tuple(parts))


def path_names(kind: Kind) -> tuple[str, ...]:
    """The inputs that stand in the id and not in the body."""
    return kind.names if kind is GROUP else ("resourceGroupName", *kind.names)


def body(kind: Kind, rid: ResourceId, inputs: dict[str, Any]) -> dict[str, Any]:
    """The ARM body for inputs without unknowns; ``$self/`` in ids stands for the resource's own id."""
    names = path_names(kind)
    known = {n: v for n, v in plain(inputs).items() if n not in names and v is not None}
    made: dict[str, Any] = _own_ids(nest(kind.model, known), str(rid))
    return made


def _own_ids(value: Any, own: str) -> Any:
    if isinstance(value, dict):
        return {n: _own_ids(v, own) for n, v in value.items()}
    if isinstance(value, list):
        return [_own_ids(v, own) for v in value]
    if isinstance(value, str) and value.startswith("$self/"):
        return own + value.removeprefix("$self")
    return value


def outputs(kind: Kind, inputs: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Pulumi's outputs for a resource that ARM has answered with; secrets in the inputs stay secret."""
    shown = flatten(kind.model, answer)
    shown["azureApiVersion"] = API_VERSIONS[kind.type.split("/", maxsplit=1)[0]]
    woven: dict[str, Any] = weave({n: v for n, v in inputs.items() if n not in path_names(kind)}, shown)
    return woven


def predicted(kind: Kind, inputs: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The outputs a preview can tell: the inputs, and unknowns for what Azure computes.

    ``before`` are the outputs of the resource that exists: what only Azure sets stays as it is.
    """
    given = {n: v for n, v in plain(inputs).items() if n not in path_names(kind)}
    guessed = _predict(Field("model", model=kind.model), nest(kind.model, given))
    shown = flatten(kind.model, guessed)
    name = plain(inputs).get(path_names(kind)[-1], UNKNOWN)
    shown.update(name=name, azureApiVersion=API_VERSIONS[kind.type.split("/", maxsplit=1)[0]])
    if before is not None:
        shown = _remembered(shown, plain(before))
    woven: dict[str, Any] = weave({n: v for n, v in inputs.items() if n in shown}, shown)
    return woven


def _predict(field: Field, value: Any) -> Any:
    if isinstance(value, list) and field.item is not None:
        return [_predict(field.item, v) for v in value]
    if not isinstance(value, dict) or field.model is None:
        return value
    fields = shape(field.model).fields
    result = {n: _predict(fields[n], v) if n in fields else v for n, v in value.items()}
    for name, own in fields.items():
        # A part with a name is a resource of its own, whose id Azure makes; references carry their id.
        computed = own.read_only or (name == "id" and "name" in fields and "etag" in fields)
        if computed and name not in result and "id" not in value:
            result[name] = UNKNOWN
    if "properties" in fields and "id" not in value and (inner := fields["properties"]).model is not None:
        result["properties"] = _predict(inner, result.get("properties") or {})
    return result


def _remembered(shown: Any, before: Any) -> Any:
    if isinstance(shown, Unknown) and before is not None:
        return before
    if isinstance(shown, dict) and isinstance(before, dict):
        return {n: _remembered(v, before.get(n)) for n, v in shown.items()}
    if isinstance(shown, list) and isinstance(before, list):
        return [_remembered(v, before[i] if i < len(before) else None) for i, v in enumerate(shown)]
    return shown


def inputs_of(kind: Kind, rid: ResourceId, before: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """The inputs that describe a resource as it is now: the old ones, with what drifted.

    Without old inputs (an import) they are everything that Azure lets one set.
    """
    if before:
        drifted: dict[str, Any] = _drift(before, shown)
        return drifted
    fields = dict(shape(kind.model).fields)
    properties = fields.get("properties")
    if properties is not None and properties.model is not None:
        fields = {**shape(properties.model).fields, **fields}
    made = {n: v for n, v in plain(shown).items() if n in fields and not fields[n].read_only and n != "id"}
    names = dict(zip(kind.names, rid.parts[1::2], strict=False))
    return {**made, **names, "resourceGroupName": rid.group}


def _drift(before: Any, now: Any) -> Any:
    known, actual = plain(before), plain(now)
    if actual is None or known == actual:
        return before
    if isinstance(known, str) and isinstance(actual, str) and place(known) == place(actual):
        return before
    if isinstance(before, dict) and isinstance(actual, dict):
        return {n: _drift(v, actual.get(n)) for n, v in before.items()}
    if isinstance(before, list) and isinstance(actual, list):
        if len(before) != len(actual):
            return actual
        return [_drift(b, a) for b, a in zip(before, actual, strict=True)]
    return actual
