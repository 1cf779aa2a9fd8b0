"""Lines of figures that tests print in the end; for a conftest to import."""

from __future__ import annotations

import pytest

__all__ = ["figures", "pytest_terminal_summary"]

_FIGURES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, a line each, once however many conftests import this."""
    lines, config.stash[_FIGURES] = config.stash.get(_FIGURES, []), []
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines to print in the end."""
    return request.config.stash.setdefault(_FIGURES, [])
