"""Shapes of Microsoft's own models: what a body may hold.

The management SDKs come in two generations. The newer declare each model as annotated ``rest_field``
attributes: the annotation is the type, ``_rest_name`` the JSON name, a ``_visibility`` of ``["read"]``
marks what only Azure sets, and ``__flattened_items`` marks models whose ``properties`` the SDKs (and
Pulumi) show on the outer level. The older (authorization, msi) have an ``_attribute_map`` from
attributes to dotted JSON names and types, and a ``_validation``. :func:`shape` reads both.
"""

from __future__ import annotations

import importlib
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any

__all__ = ["Field", "Shape", "levels", "model", "service_of", "shape", "variant"]

_MODELS = {
    "authorization": "azure.mgmt.authorization.v2022_04_01.models",
    "compute": "azure.mgmt.compute.models",
    "imagebuilder": "azure.mgmt.imagebuilder.models",
    "monitor": "azure.mgmt.monitor.models",
    "msi": "azure.mgmt.msi.models",
    "network": "azure.mgmt.network.models",
    "privatedns": "azure.mgmt.privatedns.models",
    "resources": "azure.mgmt.resource.resources.models",
    "storage": "azure.mgmt.storage.models",
}
_ACCOUNT = {
    "supportsHttpsTrafficOnly": "enableHttpsTrafficOnly",
    "isNfsV3Enabled": "enableNfsV3",
    "networkAcls": "networkRuleSet",
}
_RENAMED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("storage", "StorageAccountPropertiesCreateParameters"): _ACCOUNT,
    ("storage", "StorageAccountProperties"): _ACCOUNT,
    ("storage", "Encryption"): {"identity": "encryptionIdentity", "keyvaultproperties": "keyVaultProperties"},
    ("storage", "VirtualNetworkRule"): {"id": "virtualNetworkResourceId"},
    ("storage", "IPRule"): {"value": "iPAddressOrRange"},
    ("authorization", "RoleDefinitionProperties"): {"type": "roleType"},
}
"""Pulumi's names (Azure's x-ms-client-name) that are not the JSON names; compared with the SDK 3.29.0."""
_OPEN = frozenset({"VirtualMachineSizeTypes"})
"""Enumerations that Azure no longer adds to: it takes sizes that are not in them (its own description)."""
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
    renamed: Mapping[str, str] = field(default_factory=dict)
    """JSON name to Pulumi's name, where they differ."""


@cache
def model(name: str) -> type:
    """Return the class for ``namespace.Name``, e.g. ``compute.Sku``; imported on first use."""
    namespace, _, cls = name.partition(".")
    found: type = getattr(importlib.import_module(_MODELS[namespace]), cls)
    return found


def service_of(cls: type) -> str:
    """Return the service of a model: ``compute``, ``storage`` ..."""
    other = cls.__module__.split(".")[2] if cls.__module__.startswith("azure.mgmt.") else "resources"
    return next((s for s, m in _MODELS.items() if cls.__module__.startswith(m)), other)


@cache
def shape(cls: type) -> Shape:
    """Return the shape of a model's bodies.

    >>> shape(model("compute.VirtualMachineScaleSet")).fields["sku"].kind
    'model'
    >>> sorted(shape(model("msi.Identity")).fields)
    ['id', 'location', 'name', 'properties', 'systemData', 'tags', 'type']
    """
    renamed = _RENAMED.get((service_of(cls), cls.__name__), {})
    if hasattr(cls, "_attribute_map"):
        return Shape(cls.__name__, _described(cls), True, renamed)
    module = importlib.import_module(cls.__module__.removesuffix("._models"))
    hints = typing.get_type_hints(cls, localns={"_models": module})
    described = cls()
    fields = {}
    for attribute, rest in described._attr_to_rest_field.items():
        only_read = rest._visibility == ["read"]
        fields[rest._rest_name] = _field(hints[attribute], only_read)
    flattened = hasattr(cls, f"_{cls.__name__.lstrip('_')}__flattened_items")
    return Shape(cls.__name__, fields, flattened, renamed)


def variant(cls: type, value: Mapping[str, Any]) -> type:
    """Return the subclass that ``value`` names in the discriminator property, else ``cls`` itself."""
    known: Mapping[str, type] = getattr(cls, "__mapping__", {})
    for name in ("type", "kind", "name"):
        found = known.get(str(value.get(name)))
        if found is not None and issubclass(found, cls):
            return found
    return cls


def levels(known: Shape, root: bool) -> tuple[Mapping[str, Field], Mapping[str, Field]]:
    """Return the fields of a level and of its flattened ``properties``; a resource's are always flattened."""
    properties = known.fields.get("properties")
    if properties is None or properties.model is None or not (known.flattened or root):
        return known.fields, {}
    return known.fields, shape(properties.model).fields


def _field(hint: Any, read_only: bool) -> Field:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    arms = list(typing.get_args(hint)) if is_union else [hint]
    known = _field_of([a for a in arms if a is not type(None)])
    return replace(known, read_only=read_only, required=type(None) not in arms and not read_only)


def _field_of(arms: list[Any]) -> Field:
    enums = [a for a in arms if isinstance(a, type) and issubclass(a, Enum) and a.__name__ not in _OPEN]
    values = tuple(m.value for a in enums for m in a)
    values += tuple(v for a in arms if typing.get_origin(a) is typing.Literal for v in typing.get_args(a))
    arms = [a for a in arms if not _is_word(a)] or [str]
    if len(arms) > 1:
        return Field(_ANY)
    (only,) = arms
    origin, args = typing.get_origin(only), typing.get_args(only)
    if origin is list:
        return Field("list", _field(args[0], False))
    if origin is dict:
        return Field("map", _field(args[1], False))
    if isinstance(only, type) and hasattr(only, "_is_model"):
        return Field("model", model=only)
    kinds = {bool: "boolean", int: "integer", float: "number", object: _ANY, Any: _ANY}
    return Field(kinds.get(only, "string"), values=values)


def _is_word(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return all(isinstance(v, str) for v in typing.get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Enum)


# -- the older generation ---------------------------------------------------------------------------------

_SIMPLE = {"int": "integer", "long": "integer", "float": "number", "bool": "boolean", "object": _ANY}


def _described(cls: Any) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    below: dict[str, tuple[dict[str, str], dict[str, bool]]] = {}
    for attribute, how in cls._attribute_map.items():
        rules = cls._validation.get(attribute, {})
        outer, dot, inner = how["key"].partition(".")
        if dot:
            below[inner] = {"key": inner, "type": how["type"]}, rules
            continue
        fields[outer] = _old_field(cls, how["type"], rules)
    if below:
        # Made as a class, so that it is described (and remembered) like any other.
        inside = type(
            f"{cls.__name__}Properties",
            (),
            {
                "__module__": cls.__module__,
                "_attribute_map": {name: how for name, (how, _) in below.items()},
                "_validation": {name: rules for name, (_, rules) in below.items()},
            },
        )
        needed = any(f.required for f in shape(inside).fields.values())
        fields["properties"] = Field("model", model=inside, required=needed)
    return fields


def _old_field(cls: type, text: str, rules: Mapping[str, Any]) -> Field:
    known = _old_type(cls, text)
    return replace(known, read_only=bool(rules.get("readonly")), required=bool(rules.get("required")))


def _old_type(cls: type, text: str) -> Field:
    if listed := re.fullmatch(r"\[(.+)\]", text):
        return Field("list", _old_type(cls, listed[1]))
    if mapped := re.fullmatch(r"\{(.+)\}", text):
        return Field("map", _old_type(cls, mapped[1]))
    found = getattr(importlib.import_module(cls.__module__.rpartition(".")[0]), text, None)
    if isinstance(found, type) and hasattr(found, "_attribute_map"):
        return Field("model", model=found)
    return Field(_SIMPLE.get(text, "string"))
