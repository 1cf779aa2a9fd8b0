"""What a script uses of Azure ML that Ranklift lacks, found before the script runs."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from launch.azureml.missing import StandIn

__all__ = ["Use", "lacking_uses"]

_MAYBE = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While),
    *(ast.Try, ast.Match, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""What may run none of its parts."""


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a class in a line of the script."""

    line: int
    text: str
    """Which class, and what to use instead."""
    is_certain: bool
    """Whether the script cannot run to its end without it."""


def lacking_uses(tree: ast.Module) -> list[Use]:
    """Return the uses of classes that Ranklift lacks, one of each class in a line, sorted.

    The modules ``azureml…`` that the script imports must be served.
    """
    names = _imported(tree)
    found = {}
    for node, is_certain in _walk(tree, is_certain=True):
        for one in _used(node):
            cls = _value(one, names)
            if isinstance(cls, StandIn):
                use = Use(one.lineno, str(cls.refusal()), is_certain)
                found[use.line, use.text] = use
    return [found[key] for key in sorted(found)]


def _imported(tree: ast.Module) -> dict[str, Any]:
    """Return what the script's names stand for; without those that it also defines itself."""
    names: dict[str, Any] = {}
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_served(alias.name):
                    module = importlib.import_module(alias.name)
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = module if alias.asname else importlib.import_module(top)
        elif isinstance(node, ast.ImportFrom) and not node.level and _is_served(node.module or ""):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if alias.name != "*":
                    names[alias.asname or alias.name] = getattr(module, alias.name, None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            own.add(node.id)
    return {name: value for name, value in names.items() if name not in own}


def _is_served(module: str) -> bool:
    if module.partition(".")[0] != "azureml":
        return False
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def _walk(node: ast.AST, *, is_certain: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        certain = is_certain and (not isinstance(child, _MAYBE) or _is_main(child))
        yield child, certain
        yield from _walk(child, is_certain=certain)


def _is_main(node: ast.AST) -> bool:
    """Return whether a node is ``if __name__ == "__main__":``, without an else."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _used(node: ast.AST) -> list[Any]:
    """Return the expressions that a node calls, derives from, or takes an attribute of."""
    if isinstance(node, ast.Call):
        return [node.func]
    if isinstance(node, ast.Attribute):
        return [node.value]
    return list(node.bases) if isinstance(node, ast.ClassDef) else []


def _value(node: Any, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        module = _value(node.value, names)
        return getattr(module, node.attr, None) if isinstance(module, ModuleType) else None
    return None
