"""``${{inputs.x}}`` and ``${{outputs.x}}``: replaced as text, without quoting, as Azure ML does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from launch.errors import InputError
from launch.job.spec import LONGEST
from launch.jobfile.schema import Data, JobFile
from launch.jobfile.values import nearest
from launch.jobfile.yaml_source import Place

__all__ = ["check", "filled", "values_of"]

_BEGIN, _END = "${{", "}}"
_WORD = re.compile(r"\$\{\{\s*\S*")
_OPTIONAL = "$[["
_DEEPEST = 100
"""Longest chain of inputs that refer to one another."""


def check(job: JobFile) -> None:
    """Raise :class:`~launch.errors.InputError` for undefined names and for circles."""
    known = values_of(job, dict.fromkeys(job.inputs, ""), "")
    for key, text in (
        ("command", job.command),
        *((f"environment_variables.{k}", v) for k, v in job.env.items()),
    ):
        if key in job.places:
            filled(text, known, job.places[key])


def values_of(job: JobFile, paths: Mapping[str, str], outputs: str) -> dict[str, str]:
    """Return the value of every ``inputs.x`` and ``outputs.x``.

    ``paths`` are the paths of data inputs on the nodes, ``outputs`` is the folder of the job's outputs.
    Raise :class:`~launch.errors.InputError` as :func:`check` does.
    """
    known = {f"outputs.{name}": f"{outputs}/{name}" for name in job.outputs}
    known |= {f"inputs.{name}": paths[name] for name, value in job.inputs.items() if isinstance(value, Data)}
    plain = {f"inputs.{name}": value for name, value in job.inputs.items() if isinstance(value, str)}

    def resolve(key: str, way: tuple[str, ...]) -> str:
        if key in known:
            return known[key]
        place = job.places[key]
        if key in way:
            circle = " -> ".join((*way[way.index(key) :], key))
            raise place.wrong(f"refers to itself: {circle}", "remove one of the references")
        if len(way) == _DEEPEST:
            raise place.wrong(
                f"ends a chain of {_DEEPEST} inputs that refer to one another", "name it directly"
            )
        for binding in _bindings(plain[key])[0]:
            if binding.name in plain:
                resolve(binding.name, (*way, key))
        known[key] = filled(plain[key], known, place)
        return known[key]

    for key in plain:
        resolve(key, ())
    return known


def filled(text: str, known: Mapping[str, str], place: Place) -> str:
    """Return ``text`` with every name replaced; inserted values are not searched for names.

    Raise :class:`~launch.errors.InputError` with the line of an undefined name.
    """

    if _OPTIONAL in text:
        raise place.wrong(
            "optional parts are for components", "write the part without $[[ and ]]", at=_OPTIONAL
        )
    found, begun = _bindings(text)
    if begun is not None:
        raise place.wrong(
            "${{ is not closed", "close it with }}, as in ${{inputs.name}}", at=_one_line(begun)
        )
    size = len(text)
    for one in found:
        if one.name not in known:
            raise _undefined(one, text, known, place)
        size += len(known[one.name]) - (one.end - one.begin)
    # The length is computed before the text is built, as inputs that contain one another grow without bound.
    if size > LONGEST:
        problem = f"would be {size} characters long with its inputs; Linux's limit is {LONGEST} bytes"
        raise place.wrong(problem, "put them into a file")
    parts, last = [], 0
    for one in found:
        parts += [text[last : one.begin], known[one.name]]
        last = one.end
    return "".join([*parts, text[last:]])


@dataclass(frozen=True, slots=True)
class _Binding:
    """One ``${{name}}`` in a text."""

    begin: int
    end: int
    name: str


def _bindings(text: str) -> tuple[list[_Binding], str | None]:
    """Return all bindings in order, and the beginning of one not closed before the next or the end."""
    found: list[_Binding] = []
    begin = text.find(_BEGIN)
    while begin >= 0:
        inside = begin + len(_BEGIN)
        end, following = text.find(_END, inside), text.find(_BEGIN, inside)
        if end < 0 or 0 <= following < end:
            word = _WORD.match(text, begin)
            return found, word[0] if word else _BEGIN
        found.append(_Binding(begin, end + len(_END), text[inside:end].strip()))
        begin = following
    return found, None


def _undefined(one: _Binding, text: str, known: Mapping[str, str], place: Place) -> InputError:
    group, _, short = one.name.partition(".")
    defined = sorted(other.partition(".")[2] for other in known if other.startswith(f"{group}."))
    at = _one_line(text[one.begin : one.end])
    if group not in ("inputs", "outputs") or not short:
        return place.wrong("names neither an input nor an output", "write ${{inputs.name}}", at=at)
    close = nearest(short, defined)
    remedy = f"did you mean {group}.{close}?" if close else f"add {short} under {group}:"
    return place.wrong(f"the file has no {group[:-1]} {short}", remedy, at=at)


def _one_line(text: str) -> str:
    return text if "\n" not in text else ""
