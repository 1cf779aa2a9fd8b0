"""Microsoft's own models, read once: what a body may hold, and where Pulumi's flattened names belong.

The management SDKs declare each model as annotated ``rest_field`` attributes: the annotation is the type,
``_rest_name`` the JSON name, a ``_visibility`` of ``["read"]`` marks what only Azure sets, and
``__flattened_items`` marks models whose ``properties`` the SDKs (and Pulumi) show on the outer level.
One description of all that, :func:`shape`, serves checking and both directions of conversion.
"""

from __future__ import annotations

import importlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from infra.rehearsal.arm.errors import ArmError

__all__ = ["Field", "Shape", "check", "flatten", "model", "nest", "shape"]

_NAMESPACES = {
    "compute": "azure.mgmt.compute.models",
    "network": "azure.mgmt.network.models",
    "resources": "azure.mgmt.resource.resources.models",
}
_ANY = "any"


@dataclass(frozen=True, slots=True)
class Field:
    """One property. ``kind`` is ``any``, ``string``, ``integer``, ``number``, ``boolean``, ``list``,
    ``map`` or ``model``; the element of the last three stands in ``item``.
    """

    kind: str
    item: Field | None = None
    model: type | None = None
    values: tuple[str, ...] = ()
    read_only: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """One model: its properties by JSON name; ``flattened`` when ``properties`` is shown on its level."""

    name: str
    fields: Mapping[str, Field]
    flattened: bool


@cache
def model(name: str) -> type:
    """The class for ``namespace.Name``, e.g. ``compute.Sku``; imported when first asked for."""
    namespace, _, cls = name.partition(".")
    found: type = getattr(importlib.import_module(_NAMESPACES[namespace]), cls)
    return found


@cache
def shape(cls: type) -> Shape:
    """What a body of this model looks like.

    >>> shape(model("compute.VirtualMachineScaleSet")).fields["sku"].kind
    'model'
    """
    module = importlib.import_module(cls.__module__.removesuffix("._models"))
    hints = typing.get_type_hints(cls, localns={"_models": module})
    described = cls()
    fields = {}
    for attribute, rest in described._attr_to_rest_field.items():
        only_read = rest._visibility == ["read"]
        fields[rest._rest_name] = _field(hints[attribute], only_read)
    return Shape(cls.__name__, fields, hasattr(cls, f"_{cls.__name__.lstrip('_')}__flattened_items"))


def _field(hint: Any, read_only: bool) -> Field:
    arms = list(typing.get_args(hint)) if _is_union(hint) else [hint]
    needed = type(None) not in arms and not read_only
    arms = [a for a in arms if a is not type(None)]
    values = tuple(m.value for a in arms if isinstance(a, type) and issubclass(a, Enum) for m in a)
    arms = [a for a in arms if not (isinstance(a, type) and issubclass(a, Enum))] or [str]
    if len(arms) > 1:
        return Field(_ANY, read_only=read_only, required=needed)
    (only,) = arms
    origin, args = typing.get_origin(only), typing.get_args(only)
    if origin is list:
        return Field("list", _field(args[0], False), read_only=read_only, required=needed)
    if origin is dict:
        return Field("map", _field(args[1], False), read_only=read_only, required=needed)
    if isinstance(only, type) and hasattr(only, "_is_model"):
        return Field("model", model=only, read_only=read_only, required=needed)
    kind = {bool: "boolean", int: "integer", float: "number"}.get(only, "string")
    if only is Any or only is object:
        kind = _ANY
    return Field(kind, values=values, read_only=read_only, required=needed)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def check(cls: type, body: Any) -> dict[str, Any]:
    """``body`` less what only Azure sets.

    Raises :class:`ArmError` (400) for a property the model lacks, a value of another type, a value that
    an enumeration lacks and a required property that is missing, in the words of the model's service.
    """
    service = next((s for s, m in _NAMESPACES.items() if cls.__module__.startswith(m)), "resources")
    checked = _check(Field("model", model=cls), body, "", service)
    return typing.cast(dict[str, Any], checked)


_CODES = {"compute": "BadRequest", "network": "InvalidRequestFormat", "resources": "InvalidRequestContent"}


def _refuse(service: str, problem: str, path: str) -> ArmError:
    text = f"{problem} Path '{path}'."
    if service == "network":
        text = f"Cannot parse the request. {text}"
    if service == "resources":
        text = f"The request content was invalid and could not be deserialized: '{text}'."
    return ArmError(400, _CODES[service], text, path or None)


def _check(field: Field, value: Any, path: str, service: str) -> Any:
    if value is None or field.kind == _ANY:
        return value
    if field.kind == "model" and field.model is not None:
        if not isinstance(value, dict):
            raise _mistyped(value, field.model.__name__, path, service)
        return _check_model(shape(field.model), value, path, service)
    if field.kind in ("list", "map") and field.item is not None:
        if not isinstance(value, list if field.kind == "list" else dict):
            raise _mistyped(value, field.kind, path, service)
        if isinstance(value, list):
            return [_check(field.item, v, f"{path}[{i}]", service) for i, v in enumerate(value)]
        return {k: _check(field.item, v, _join(path, k), service) for k, v in value.items()}
    return _check_scalar(field, value, path, service)


def _check_model(known: Shape, value: dict[str, Any], path: str, service: str) -> dict[str, Any]:
    checked = {}
    for name, inner in value.items():
        field = known.fields.get(name)
        if field is None:
            problem = f"Could not find member '{name}' on object of type '{known.name}'."
            raise _refuse(service, problem, _join(path, name))
        # ARM ignores read-only properties in requests, so that a GET can be sent back as it came; ids inside
        # bodies are references and stay.
        if (not field.read_only or name == "id") and inner is not None:
            checked[name] = _check(field, inner, _join(path, name), service)
    for name, field in known.fields.items():
        if field.required and name not in checked:
            if service == "compute":
                missing = _join(path, name).removeprefix("properties.")
                problem = f"Required parameter '{missing}' is missing (null)."
                raise ArmError(400, "InvalidParameter", problem, missing)
            if (service, name) == ("resources", "location"):
                problem = "The location property is required for this definition."
                raise ArmError(400, "LocationRequired", problem)
            raise _refuse(service, f"Required property '{name}' not found in JSON.", path)
    return checked


_SCALARS = {"string": (str,), "integer": (int,), "boolean": (bool,), "number": (int, float)}


def _check_scalar(field: Field, value: Any, path: str, service: str) -> Any:
    wanted: tuple[type, ...] = _SCALARS[field.kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and field.kind != "boolean"):
        raise _mistyped(value, field.kind, path, service)
    if field.values and str(value).lower() not in {v.lower() for v in field.values}:
        raise _mistyped(value, "one of " + ", ".join(field.values), path, service)
    return value


def _mistyped(value: Any, wanted: str, path: str, service: str) -> ArmError:
    shown = f'"{value}"' if isinstance(value, str) else value
    return _refuse(service, f"Error converting value {shown} to type '{wanted}'.", path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def nest(cls: type, value: Any) -> Any:
    """Pulumi's flattened inputs as the ARM body: what the model keeps under ``properties`` moves there.

    >>> nest(model("network.Subnet"), {"name": "s", "addressPrefix": "10.0.0.0/20"})
    {'name': 's', 'properties': {'addressPrefix': '10.0.0.0/20'}}
    """
    return _nest(Field("model", model=cls), value, root=True)


def _nest(field: Field, value: Any, root: bool = False) -> Any:
    if field.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list) and field.item is not None:
        return [_nest(field.item, v) for v in value]
    if not isinstance(value, dict):
        return value
    if field.kind == "map" and field.item is not None:
        return {k: _nest(field.item, v) for k, v in value.items()}
    if field.model is None:
        return value
    outer, inner = _levels(shape(field.model), root)
    result: dict[str, Any] = {}
    for name, v in value.items():
        own = outer.get(name)
        below = inner.get(name)
        if below is not None and (own is None or own.read_only):
            result.setdefault("properties", {})[name] = _nest(below, v)
        else:
            result[name] = v if own is None else _nest(own, v)
    return result


def flatten(cls: type, body: Any) -> Any:
    """An ARM body as Pulumi's outputs: the reverse of :func:`nest`."""
    return _flatten(Field("model", model=cls), body, root=True)


def _flatten(field: Field, value: Any, root: bool = False) -> Any:
    if isinstance(value, list) and field.item is not None:
        return [_flatten(field.item, v) for v in value]
    if not isinstance(value, dict):
        return value
    if field.kind == "map" and field.item is not None:
        return {k: _flatten(field.item, v) for k, v in value.items()}
    if field.model is None:
        return value
    outer, inner = _levels(shape(field.model), root)
    shown = [n for n in value if n in outer and (n != "properties" or not inner)]
    result = {n: _flatten(outer[n], value[n]) for n in shown}
    for name, v in value.get("properties", {}).items() if inner else ():
        if name in inner:
            result[name] = _flatten(inner[name], v)
    return result


def _levels(known: Shape, root: bool) -> tuple[Mapping[str, Field], Mapping[str, Field]]:
    """The fields of the level itself and of its flattened ``properties``; a resource's are always so."""
    properties = known.fields.get("properties")
    if properties is None or properties.model is None or not (known.flattened or root):
        return known.fields, {}
    return known.fields, shape(properties.model).fields
