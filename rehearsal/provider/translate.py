"""Translation between Pulumi's inputs and outputs and ARM's ids and bodies."""

from __future__ import annotations

from typing import Any

from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.models import Field, flatten, nest, shape
from rehearsal.arm.core.records import place
from rehearsal.arm.core.resource_type import GROUP, ResourceType
from rehearsal.arm.core.shapes import levels, variant
from rehearsal.provider.values import UNKNOWN, Unknown, plain, weave

__all__ = ["body", "inputs_of", "outputs", "predicted", "resource_id"]


def resource_id(kind: ResourceType, subscription: str, inputs: dict[str, Any]) -> ResourceId:
    """Return the id that the names in ``inputs`` make; raise ValueError for a malformed scope."""
    known = plain(inputs)
    if kind is GROUP:
        return ResourceId(subscription, str(known["resourceGroupName"]))
    namespace, *collections = kind.type.split("/")
    names = [n[1:] if n.startswith("=") else str(known[n]) for n in kind.names]
    parts = tuple(p for pair in zip(collections, names, strict=True) for p in pair)
    if not kind.extends:
        return ResourceId(subscription, str(known["resourceGroupName"]), namespace, parts)
    scope = ResourceId.parse("/" + str(known["scope"]).strip("/"))
    if scope is None:
        raise ValueError(f"{known['scope']}: not the id of a subscription, a resource group or a resource")
    return scope.extended(namespace, parts)


def body(kind: ResourceType, rid: ResourceId, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the ARM body for inputs without unknowns; ``$self/`` in ids is the resource's own id."""
    known = {n: v for n, v in plain(inputs).items() if n not in kind.inputs and v is not None}
    made: dict[str, Any] = _own_ids(nest(kind.model, _identities(known)), str(rid))
    return made


def _identities(known: dict[str, Any]) -> dict[str, Any]:
    # Pulumi lists the ids of the identities that a resource is given; ARM has a map with them as keys.
    identity = known.get("identity")
    listed = identity.get("userAssignedIdentities") if isinstance(identity, dict) else None
    if identity is None or not isinstance(listed, list):
        return known
    given: Any = UNKNOWN if any(isinstance(i, Unknown) for i in listed) else {i: {} for i in listed}
    return {**known, "identity": {**identity, "userAssignedIdentities": given}}


def _own_ids(value: Any, own: str) -> Any:
    if isinstance(value, dict):
        return {n: _own_ids(v, own) for n, v in value.items()}
    if isinstance(value, list):
        return [_own_ids(v, own) for v in value]
    if isinstance(value, str) and value.startswith("$self/"):
        return own + value.removeprefix("$self")
    return value


def outputs(kind: ResourceType, inputs: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return Pulumi's outputs for ARM's answer; secrets in the inputs stay secret."""
    shown = flatten(kind.shown, answer)
    shown["azureApiVersion"] = kind.api_version
    woven: dict[str, Any] = weave({n: v for n, v in inputs.items() if n not in kind.inputs}, shown)
    return woven


def predicted(
    kind: ResourceType, inputs: dict[str, Any], before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the outputs of a preview: the inputs, and unknowns for what Azure computes.

    ``before`` are the outputs of the resource that exists: what only Azure sets stays as it is.
    """
    given = {n: v for n, v in plain(inputs).items() if n not in kind.inputs}
    guessed = _predict(Field("model", model=kind.shown), nest(kind.model, _identities(given)))
    shown = flatten(kind.shown, guessed)
    name = plain(inputs).get(kind.inputs[-1], UNKNOWN)
    shown.update(name=name, azureApiVersion=kind.api_version)
    if before is not None:
        shown = _remembered(shown, plain(before))
    woven: dict[str, Any] = weave({n: v for n, v in inputs.items() if n in shown}, shown)
    return woven


def _predict(field: Field, value: Any) -> Any:
    if isinstance(value, list) and field.item is not None:
        return [_predict(field.item, v) for v in value]
    if not isinstance(value, dict) or field.model is None:
        return value
    fields = shape(variant(field.model, value)).fields
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


def inputs_of(
    kind: ResourceType, rid: ResourceId, before: dict[str, Any], shown: dict[str, Any]
) -> dict[str, Any]:
    """Return the inputs that describe a resource as it is now: the old ones, with what drifted.

    Without old inputs (an import) they are everything that Azure lets one set.
    """
    if before:
        drifted: dict[str, Any] = _drift(before, shown)
        return drifted
    known = shape(kind.model)
    outer, inner = levels(known, root=True)
    below = shape(known.fields["properties"].model).renamed if inner else {}
    settable = {below.get(n, n) for n, f in inner.items() if not f.read_only}
    settable |= {known.renamed.get(n, n) for n, f in outer.items() if not f.read_only and n != "properties"}
    made = {n: v for n, v in plain(shown).items() if n in settable and n != "id"}
    named = zip(kind.names, rid.parts[1::2], strict=False)
    names = {n: v for n, v in named if not n.startswith("=")}
    own = {"scope": str(rid.base)} if kind.extends else {"resourceGroupName": rid.group}
    return {**_identities_listed(made), **names, **own}


def _identities_listed(made: dict[str, Any]) -> dict[str, Any]:
    identity = made.get("identity")
    given = identity.get("userAssignedIdentities") if isinstance(identity, dict) else None
    if identity is None or not isinstance(given, dict):
        return made
    return {**made, "identity": {**identity, "userAssignedIdentities": list(given)}}


def _drift(before: Any, now: Any) -> Any:
    known, actual = plain(before), plain(now)
    if actual is None or known == actual:
        return before
    if isinstance(known, str) and isinstance(actual, str) and place(known) == place(actual):
        return before
    if isinstance(before, dict) and isinstance(actual, dict):
        return {n: _drift(v, actual.get(n)) for n, v in before.items()}
    return _drifted_list(before, actual) if isinstance(before, list) else actual


def _drifted_list(before: list[Any], actual: Any) -> Any:
    if isinstance(actual, dict):
        # The identities: listed in inputs, a map in outputs; letters of ids count without case.
        same = {str(i).lower() for i in plain(before)} == {i.lower() for i in actual}
        return before if same else list(actual)
    if not isinstance(actual, list) or len(before) != len(actual):
        return actual
    return [_drift(b, a) for b, a in zip(before, actual, strict=True)]
