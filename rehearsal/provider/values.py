"""Property values in the engine's encoding, in which secrets and unknowns have signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import struct_pb2

__all__ = ["UNKNOWN", "Secret", "Unknown", "decode", "encode", "has_secret", "has_unknown", "plain", "weave"]

_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  (a signature, in Pulumi's public SDK)
_UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
# The engine has one such text for each type of value (sdk/go/common/resource/plugin/rpc.go).
_UNKNOWN_TEXTS = {
    _UNKNOWN_TEXT,
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}


class Unknown:
    """A value that only the real run will know; :data:`UNKNOWN` is the one instance."""

    def __repr__(self) -> str:
        """Return its form in messages."""
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that Pulumi keeps encrypted."""

    value: Any = field(repr=False)


def decode(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a message's properties as Python values."""
    return {name: _decode(value) for name, value in struct.fields.items()}


def _decode(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        fields = value.struct_value.fields
        if _SIGNATURE in fields and fields[_SIGNATURE].string_value == _SECRET:
            return Secret(_decode(fields["value"]))
        return decode(value.struct_value)
    if kind == "list_value":
        return [_decode(v) for v in value.list_value.values]
    if kind == "string_value":
        return UNKNOWN if value.string_value in _UNKNOWN_TEXTS else value.string_value
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return value.bool_value if kind == "bool_value" else None


def encode(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return the message of Python values: the reverse of :func:`decode`.

    >>> decode(encode({"a": Secret("s"), "b": [1, UNKNOWN]}))["b"]
    [1, UNKNOWN]
    """
    struct = struct_pb2.Struct()
    struct.update(_signed(values))
    return struct


def _signed(value: Any) -> Any:
    if isinstance(value, Secret):
        return {_SIGNATURE: _SECRET, "value": _signed(value.value)}
    if isinstance(value, Unknown):
        return _UNKNOWN_TEXT
    if isinstance(value, Mapping):
        return {name: _signed(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_signed(v) for v in value]
    return value if isinstance(value, bool | int | float | None) else str(value)


def plain(value: Any) -> Any:
    """Return the value without the secrets' wrapping.

    >>> plain({"a": [Secret({"b": Secret(1)})]})
    {'a': [{'b': 1}]}
    """
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def has_secret(value: Any) -> bool:
    """Whether a secret is anywhere in it."""
    return _has(value, Secret)


def has_unknown(value: Any) -> bool:
    """Whether an unknown is anywhere in it."""
    return _has(plain(value), Unknown)


def _has(value: Any, wanted: type) -> bool:
    if isinstance(value, wanted):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has(v, wanted) for v in inner)


def weave(inputs: Any, outputs: Any) -> Any:
    """Return the outputs, secret where the inputs are; what Azure never shows is taken from the inputs.

    >>> weave({"a": Secret("x"), "b": 1}, {"b": 2})["b"]
    2
    """
    if isinstance(inputs, Secret):
        return Secret(plain(inputs.value) if outputs is None else outputs)
    if not has_secret(inputs):
        return outputs
    if isinstance(inputs, dict) and isinstance(outputs, dict):
        return {**outputs, **{n: weave(v, outputs.get(n)) for n, v in inputs.items() if has_secret(v)}}
    if isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs):
        return [weave(i, o) for i, o in zip(inputs, outputs, strict=True)]
    return Secret(plain(inputs) if outputs is None else outputs)
