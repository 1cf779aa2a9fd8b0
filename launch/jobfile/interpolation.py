"""Where a job file's ``${{…}}`` are replaced: as text, without quoting, as Azure ML does it.

``inputs.x`` and ``outputs.x`` are, in the command, in variables and in plain inputs; in the path of an output
the job's id, the output's name and the default datastore are. :func:`launch.jobfile.values.text` refuses any
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from launch.data.data_address import read_address, without_query
from launch.data.data_spec import BlobAddress, DatastorePath
from launch.data.data_stores import DEFAULT_DATASTORE, refuse_sas
from launch.errors import InputError
from launch.expressions import Expression, expressions, remedy_of, replaced, unclosed
from launch.job.spec import LONGEST
from launch.jobfile import values
from launch.jobfile.schema import Data, JobFile
from launch.jobfile.yaml_source import Place

__all__ = ["check", "destination", "filled", "values_of"]

_STRAY = re.compile(r"\{\{.*?\}\}|\{\{|\}\}", re.DOTALL)
_OPTIONAL = "$[["
_ALL = 4 << 20
"""Characters of all inputs together, and of all variables, references replaced; Linux starts no program with
half of it."""
_DEEPEST = 100
"""Longest chain of inputs that refer to one another."""


def check(job: JobFile) -> None:
    """Raise :class:`~launch.errors.InputError` for undefined names and for circles."""
    known = values_of(job, dict.fromkeys(job.inputs, ""), "")
    total = 0
    for key, text in (
        ("command", job.command),
        *((f"environment_variables.{k}", v) for k, v in job.env.items()),
    ):
        if key in job.places:
            total += len(filled(text, known, job.places[key]))
            if total > _ALL:
                problem = f"makes the variables longer than {_ALL >> 20} MiB in all"
                raise job.places[key].wrong(problem, "put them into files")


def values_of(job: JobFile, paths: Mapping[str, str], outputs: str) -> dict[str, str]:
    """Return the value of every ``inputs.x`` and ``outputs.x``.

    ``paths`` are the paths of data inputs on the nodes, ``outputs`` is the folder of the job's outputs.
    Raise :class:`~launch.errors.InputError` as :func:`check` does.
    """
    known = {f"outputs.{name}": f"{outputs}/{name}" for name in job.outputs}
    known |= {f"inputs.{name}": paths[name] for name, value in job.inputs.items() if isinstance(value, Data)}
    plain = {f"inputs.{name}": value for name, value in job.inputs.items() if isinstance(value, str)}

    total = 0

    def resolve(key: str, way: tuple[str, ...]) -> str:
        nonlocal total
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
        for one in expressions(plain[key]):
            if one.name in plain:
                resolve(one.name, (*way, key))
        known[key] = filled(plain[key], known, place)
        total += len(known[key])
        if total > _ALL:
            raise place.wrong(f"makes the inputs longer than {_ALL >> 20} MiB in all", "put them into files")
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
    found = _found(text, place)
    for one in found:
        if one.name not in known:
            raise _undefined(one, known, place)
    size = len(text) + sum(len(known[one.name]) - len(one.text) for one in found)
    # The length is computed before the text is built, as inputs that contain one another grow without bound.
    if size > LONGEST:
        problem = f"would be {size} characters long with its inputs; Linux's limit is {LONGEST} bytes"
        raise place.wrong(problem, "put them into a file")
    return replaced(text, known)


def destination(place: Place, job: str) -> DatastorePath | BlobAddress:
    """Return where an output of the job of this id goes; ``place`` is that of the output's path.

    The id may be part of a path, and of nothing that has to be there already. Raise
    :class:`~launch.errors.InputError`.
    """
    address = _destination(place, job)
    if replace(address, path="") != replace(_destination(place, f"{job}0"), path=""):
        problem = "has the job's id where a datastore, an account or a container is named"
        raise place.wrong(problem, "write ${{name}} in the path behind it")
    return address


def _destination(place: Place, job: str) -> DatastorePath | BlobAddress:
    key, text = f"{place.where}: {place.key}", values.text(place, replaced=True)
    known = {"default_datastore": DEFAULT_DATASTORE, "name": job, "output_name": place.key.split(".")[1]}
    for one in _found(text, place):
        if one.name not in known:
            problem, _ = remedy_of(one.name) or ("is not replaced in the path of an output", "")
            remedy = (
                "write the value itself, or ${{name}} for the job's id, ${{output_name}} for its own name"
            )
            raise place.wrong(problem, remedy, at=_one_line(one.text))
    text = replaced(text, known)
    if stray := _STRAY.search(text):
        problem = "has braces that are no expression"
        raise place.wrong(problem, "write it like ${{name}} or ${{output_name}}", at=_one_line(stray[0]))
    address = read_address(key, text)
    refuse_sas(key, address)
    if not isinstance(address, DatastorePath | BlobAddress):
        remedy = "write azureml://datastores/workspaceblobstore/paths/PATH, which is the container data"
        raise InputError(key, without_query(text), "is not a place in storage to write to", remedy)
    return address


def _found(text: str, place: Place) -> list[Expression]:
    if begun := unclosed(text):
        raise place.wrong(
            "${{ is not closed", "close it with }}, as in ${{inputs.name}}", at=_one_line(begun)
        )
    return expressions(text)


def _undefined(one: Expression, known: Mapping[str, str], place: Place) -> InputError:
    group, _, short = one.name.partition(".")
    defined = sorted(other.partition(".")[2] for other in known if other.startswith(f"{group}."))
    at = _one_line(one.text)
    if group not in ("inputs", "outputs") or not short:
        of, _, variable = place.key.partition(".")
        why = remedy_of(one.name, variable if of == "environment_variables" else "")
        return place.wrong(
            *(why or ("names neither an input nor an output", "write ${{inputs.name}}")), at=at
        )
    close = values.nearest(short, defined)
    remedy = f"did you mean {group}.{close}?" if close else f"add {short} under {group}:"
    return place.wrong(f"the file has no {group[:-1]} {short}", remedy, at=at)


def _one_line(text: str) -> str:
    return text if "\n" not in text else ""
