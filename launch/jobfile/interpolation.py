"""``${{inputs.x}}`` and ``${{outputs.x}}``: replaced as text, without quoting, as Azure ML does it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.errors import InputError
from launch.job.spec import LONGEST
from launch.jobfile.schema import Data, JobFile
from launch.jobfile.values import nearest
from launch.jobfile.yaml_source import Place

__all__ = ["check", "filled", "values_of"]

_BINDING = re.compile(r"\$\{\{((?:(?!\$\{\{|\}\}).)*)\}\}", re.DOTALL)
_UNCLOSED = re.compile(r"\$\{\{\s*\S*")
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
        for name in map(str.strip, _BINDING.findall(plain[key])):
            if name in plain:
                resolve(name, (*way, key))
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
    for between in _BINDING.split(text)[::2]:
        if begun := _UNCLOSED.search(between):
            raise place.wrong(
                "${{ is not closed", "close it with }}, as in ${{inputs.name}}", at=_one_line(begun[0])
            )
    found = list(_BINDING.finditer(text))
    for one in found:
        if one[1].strip() not in known:
            raise _undefined(one, known, place)
    size = len(text) + sum(len(known[one[1].strip()]) - len(one[0]) for one in found)
    # The length is computed before the text is built, as inputs that contain one another grow without bound.
    if size > LONGEST:
        problem = f"would be {size} characters long with its inputs; Linux's limit is {LONGEST} bytes"
        raise place.wrong(problem, "put them into a file")
    return _BINDING.sub(lambda one: known[one[1].strip()], text)


def _undefined(one: re.Match[str], known: Mapping[str, str], place: Place) -> InputError:
    group, _, short = one[1].strip().partition(".")
    defined = sorted(other.partition(".")[2] for other in known if other.startswith(f"{group}."))
    at = _one_line(one[0])
    if group not in ("inputs", "outputs") or not short:
        return place.wrong("names neither an input nor an output", "write ${{inputs.name}}", at=at)
    close = nearest(short, defined)
    remedy = f"did you mean {group}.{close}?" if close else f"add {short} under {group}:"
    return place.wrong(f"the file has no {group[:-1]} {short}", remedy, at=at)


def _one_line(text: str) -> str:
    return text if "\n" not in text else ""
