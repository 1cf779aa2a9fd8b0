"""Docstrings and messages use an engineer's words: report, print, again, hit."""

from __future__ import annotations

import ast
import re

import pytest

from tests.test_architecture import PROJECT, Module, names

WORDS = re.compile(r"\b(tells?|told|telling|anew|befalls?|befell|befallen)\b", re.IGNORECASE)
QUOTED = re.compile(r'``.*?``|`[^`]*`|"[^"]*"', re.DOTALL)


def found(source: str) -> list[str]:
    """The words in docstrings and in texts of several words, quotations left out."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
    ]
    return [word for text in texts for word in WORDS.findall(QUOTED.sub("", text))]


@pytest.mark.parametrize("module", PROJECT, ids=names)
def test_words_that_no_engineer_uses_are_not_used(module: Module) -> None:
    assert found(module.path.read_text()) == []


def test_such_words_are_found() -> None:
    assert found('def f():\n    """Tells it."""\n    raise ValueError("it was told anew")\n') == [
        "Tells",
        "told",
        "anew",
    ]
    assert found('"""Up go ``told`` and "tell"."""\nkind = "told"\n') == []
