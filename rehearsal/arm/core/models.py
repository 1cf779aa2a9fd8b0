"""Checks of bodies against Microsoft's own models, and conversion from and to Pulumi's flattened names.

One description, :func:`~rehearsal.arm.core.shapes.shape`, serves checking and both directions of
conversion.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.shapes import Field, Shape, levels, model, service_of, shape, variant

__all__ = ["Field", "Shape", "check", "flatten", "model", "nest", "shape"]

_ANY = "any"


def check(cls: type, body: Any) -> dict[str, Any]:
    """Return ``body`` without what only Azure sets.

    Raises :class:`ArmError` (400) for a property the model lacks, a value of another type, a value that
    an enumeration lacks and a required property that is missing, in the text of the model's service.
    """
    checked = _check(Field("model", model=cls), body, "", service_of(cls))
    return typing.cast(dict[str, Any], checked)


_CODES = {"compute": "BadRequest", "network": "InvalidRequestFormat"}


def _refuse(service: str, problem: str, path: str) -> ArmError:
    text = f"{problem} Path '{path}'."
    if service == "network":
        text = f"Cannot parse the request. {text}"
    elif service != "compute":
        text = f"The request content was invalid and could not be deserialized: '{text}'."
    return ArmError(400, _CODES.get(service, "InvalidRequestContent"), text, path or None)


def _check(field: Field, value: Any, path: str, service: str) -> Any:
    if value is None or field.kind == _ANY:
        return value
    if field.kind == "model" and field.model is not None:
        if not isinstance(value, dict):
            raise _mistyped(value, field.model.__name__, path, service)
        return _check_model(shape(variant(field.model, value)), value, path, service)
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
            if name == "location" and service not in ("compute", "network"):
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
    """Return the ARM body of Pulumi's flattened inputs: what the model has under ``properties`` moves there.

    >>> nest(model("network.Subnet"), {"name": "s", "addressPrefix": "10.0.0.0/20"})
    {'name': 's', 'properties': {'addressPrefix': '10.0.0.0/20'}}
    """
    return _converted(Field("model", model=cls), value, _nest, root=True)


def flatten(cls: type, body: Any) -> Any:
    """Return an ARM body as Pulumi's outputs: the reverse of :func:`nest`."""
    return _converted(Field("model", model=cls), body, _flatten, root=True)


_Convert = Callable[[Shape, dict[str, Any], bool], dict[str, Any]]
"""Converts an object of a model; whether it is the resource itself."""


def _converted(field: Field, value: Any, convert: _Convert, *, root: bool = False) -> Any:
    """Return ``value`` with the objects in it converted."""
    if field.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list) and field.item is not None:
        return [_converted(field.item, v, convert) for v in value]
    if isinstance(value, dict) and field.kind == "map" and field.item is not None:
        return {k: _converted(field.item, v, convert) for k, v in value.items()}
    if isinstance(value, dict) and field.model is not None:
        return convert(shape(variant(field.model, value)), value, root)
    return value


def _nest(known: Shape, value: dict[str, Any], root: bool) -> dict[str, Any]:
    outer, inner = levels(known, root)
    result: dict[str, Any] = {}
    for name, v in value.items():
        own, below = _named(known, outer, name), _named(_inner(known), inner, name)
        if below is not None and (own is None or outer[own].read_only):
            result.setdefault("properties", {})[below] = _converted(inner[below], v, _nest)
        else:
            result[own or name] = v if own is None else _converted(outer[own], v, _nest)
    return result


def _flatten(known: Shape, value: dict[str, Any], root: bool) -> dict[str, Any]:
    outer, inner = levels(known, root)
    shown = [n for n in value if n in outer and (n != "properties" or not inner)]
    result = {known.renamed.get(n, n): _converted(outer[n], value[n], _flatten) for n in shown}
    below = _inner(known)
    renamed = below.renamed if below is not None else {}
    for name, v in value.get("properties", {}).items() if inner else ():
        if name in inner:
            result[renamed.get(name, name)] = _converted(inner[name], v, _flatten)
    return result


def _inner(known: Shape) -> Shape | None:
    properties = known.fields.get("properties")
    return shape(properties.model) if properties is not None and properties.model is not None else None


def _named(known: Shape | None, fields: Mapping[str, Field], shown: str) -> str | None:
    # The JSON name of what Pulumi shows as ``shown``.
    for name, other in (known.renamed if known is not None else {}).items():
        if other == shown and name in fields:
            return name
        if name == shown and name in fields:
            return None
    return shown if shown in fields else None
