"""``${{inputs.x}}`` and ``${{outputs.x}}``: replaced as text, without quoting, as Azure ML does it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.jobfile.marks import Place
from launch.jobfile.model import Data, JobFile
from launch.jobfile.values import nearest

__all__ = ["check", "filled", "values_of"]

_BINDING = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_OPEN = re.compile(r"\$\{\{(?!(?:(?!\$\{\{).)*?\}\})\s*\S*", re.DOTALL)
"""One that another begins before it is closed, or that nothing closes."""
_OPTIONAL = "$[["


def check(job: JobFile) -> None:
    """Raises :class:`~launch.errors.InputError` for names that nothing defines, and for circles."""
    known = values_of(job, dict.fromkeys(job.inputs, ""), "")
    for key, text in (
        ("command", job.command),
        *((f"environment_variables.{k}", v) for k, v in job.env.items()),
    ):
        if key in job.places:
            filled(text, known, job.places[key])


def values_of(job: JobFile, paths: Mapping[str, str], outputs: str) -> dict[str, str]:
    """What every ``inputs.x`` and ``outputs.x`` stands for.

    ``paths`` are the places of data inputs on the nodes, ``outputs`` is the folder of the job's outputs.
    Raises :class:`~launch.errors.InputError` as :func:`check` does.
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
            raise place.wrong(f"refers to itself: {circle}", "break the circle")
        for name in _BINDING.findall(plain[key]):
            if name in plain:
                resolve(name, (*way, key))
        known[key] = filled(plain[key], known, place)
        return known[key]

    for key in plain:
        resolve(key, ())
    return known


def filled(text: str, known: Mapping[str, str], place: Place) -> str:
    """``text`` with every name replaced; what comes in is not looked at again.

    Raises :class:`~launch.errors.InputError` with the line of a name that nothing defines.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in known:
            return known[name]
        group, _, short = name.partition(".")
        defined = sorted(other.partition(".")[2] for other in known if other.startswith(f"{group}."))
        at = match[0] if "\n" not in match[0] else ""
        if group not in ("inputs", "outputs") or not short:
            raise place.wrong("names neither an input nor an output", "write ${{inputs.name}}", at=at)
        close = nearest(short, defined)
        remedy = f"did you mean {group}.{close}?" if close else f"add {short} under {group}:"
        raise place.wrong(f"the file has no {group[:-1]} {short}", remedy, at=at)

    if _OPTIONAL in text:
        raise place.wrong(
            "optional parts are for components", "write the part without $[[ and ]]", at=_OPTIONAL
        )
    if match := _OPEN.search(text):
        at = match[0] if "\n" not in match[0] else ""
        raise place.wrong("${{ is not closed", "close it with }}, as in ${{inputs.name}}", at=at)
    return _BINDING.sub(value, text)
