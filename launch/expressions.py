"""``${{NAME}}``: the expressions of Azure ML, found in a text and replaced as text.

Their names, and what each stands for, are those of "Expressions in Azure Machine Learning SDK and CLI v2"
(learn.microsoft.com/azure/machine-learning/concept-expressions). Who reads a text says which of them are
replaced in it; where none is, a text with one is refused, as it would be taken for a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MARK", "Expression", "expressions", "remedy_of", "replaced", "unclosed"]

MARK = "${{"
"""Begins an expression."""

_EXPRESSION = re.compile(r"\$\{\{((?:(?!\$\{\{|\}\}).)*)\}\}", re.DOTALL)
_UNCLOSED = re.compile(r"\$\{\{\s*\S*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_OUTPUT_PATHS = "is replaced in the path of an output alone"
_KNOWN = {
    "name": (_IN_OUTPUT_PATHS, "ranks see the job's id as AZUREML_RUN_ID"),
    "output_name": (_IN_OUTPUT_PATHS, "write the output's name"),
    "default_datastore": (_IN_OUTPUT_PATHS, "write workspaceblobstore"),
    "parent": ("is for the steps of a pipeline", "write the value itself"),
    "search_space": ("is for sweeps", "write one value"),
}
"""What is wrong with an expression where it is not replaced, and what to do, by its name's first part."""


class Expression(NamedTuple):
    """An expression in a text."""

    name: str
    """Without blanks around it."""
    text: str
    """All of it."""


def expressions(text: str) -> list[Expression]:
    """Return a text's expressions.

    >>> expressions("cat ${{ inputs.a }}")
    [Expression(name='inputs.a', text='${{ inputs.a }}')]
    """
    return [Expression(found[1].strip(), found[0]) for found in _EXPRESSION.finditer(text)]


def unclosed(text: str) -> str:
    """Return the beginning of an expression that has no end; empty where the text has none.

    >>> unclosed("ls ${{inputs.a ${{b}}"), unclosed("ls ${{a}}")
    ('${{inputs.a', '')
    """
    for between in _EXPRESSION.split(text)[::2]:
        if found := _UNCLOSED.search(between):
            return found[0]
    return ""


def replaced(text: str, known: Mapping[str, str]) -> str:
    """Return the text with each of its expressions, all of which are ``known`` by name, replaced; inserted
    values are not searched for expressions.

    >>> replaced("${{name}}/${{ output_name }}", {"name": "train-1", "output_name": "${{name}}"})
    'train-1/${{name}}'
    """
    return _EXPRESSION.sub(lambda found: known[found[1].strip()], text)


def remedy_of(name: str, variable: str = "") -> tuple[str, str] | None:
    """Return why an expression of this name is not replaced, and what to do; None for an unknown name.

    ``variable`` is the variable whose value it is, if it is one's.

    >>> remedy_of("secrets.TOKEN")[1]
    'leave it out, and launch with --env TOKEN: the script reads TOKEN, whose value your shell gives'
    """
    group, _, rest = name.partition(".")
    if group == "secrets":
        variable = variable or (rest if _VARIABLE.fullmatch(rest) else "NAME")
        return (
            "is for GitHub's workflows: nothing here has secrets by name",
            f"leave it out, and launch with --env {variable}: the script reads {variable}, whose value your "
            "shell gives",
        )
    return _KNOWN.get(group)
