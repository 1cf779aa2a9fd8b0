"""Scripts that import ``azureml``, run in the tests' own process, where the fake ``fab`` is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.azureml.scripts import run_v1

__all__ = ["imports_restored", "run_program"]


@contextmanager
def imports_restored() -> Iterator[None]:
    """Afterwards there is no module ``azureml``, and what a script changes of ``sys`` is as before."""
    path, finders, words, main = list(sys.path), list(sys.meta_path), list(sys.argv), sys.modules["__main__"]
    modules = set(sys.modules)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:], sys.argv[:], sys.modules["__main__"] = path, finders, words, main
        here = str(Path.cwd())
        for name in set(sys.modules) - modules:
            if name.startswith("azureml") or str(getattr(sys.modules[name], "__file__", "")).startswith(here):
                del sys.modules[name]


def run_program(words: Sequence[str], patch: pytest.MonkeyPatch) -> int:
    """Run ``ranklift`` with these words; return its exit status."""
    with imports_restored(), patch.context() as inner:
        inner.setattr(sys, "argv", ["ranklift", *words])
        try:
            run_v1.main()
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            raise
    return 0
