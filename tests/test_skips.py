"""What may skip a test: what no set-up brings. What a set-up brings, a test requires: it fails without it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REASONS = {
    "only root can call as somebody else",
    "every other test here is one of an ordinary user already",
    "a Docker engine needs root",
    "another user cannot read this checkout",
    "this machine has RDMA devices",
    "this machine has no DNS",
    "this machine has no address but loopback's",
    # Azure's registries have this port alone, which is root's, and may be in use.
    "port {_HTTPS} of {address}, which registries of Azure's have: {error.strerror}",
    # A case that does not exist.
    "a DataLoader is torch's",
}
"""Who runs the tests, where the checkout lies, and what the machine is made of."""
SKIPS = {"skip", "skipif", "importorskip", "xfail", "skipTest", "SkipTest", "Skipped", "skipUnless", "skipIf"}


def reasons(source: str) -> Iterator[str]:
    """Yield the reason of everything in ``source`` that may skip a test."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in SKIPS:
            given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"] or call.args[:1]
            yield ast.unparse(given[0]).removeprefix("f").strip("'\"") if given else ""


def test_no_test_is_skipped_for_want_of_a_set_up() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {reason}"
        for path in (ROOT / "tests").rglob("*.py")
        for reason in reasons(path.read_text())
        if reason not in REASONS
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "pytest.mark.skipif(shutil.which('x') is None, reason='no x')",
        "pytest.skip('no x')",
        "skip(reason='no x')",
        "pytest.mark.xfail(reason='no x')",
        "self.skipTest('no x')",
    ],
)
def test_each_way_to_skip_is_seen(source: str) -> None:
    assert list(reasons(source)) == ["no x"]


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("test", ["", "--azure"]),
        ("test-azure", ["--azure"]),
        ("test-data", ["--azure"]),
        ("test-environments", ["--azure"]),
        ("test-setup", ["--azure"]),
        ("test-see", ["--see"]),
        ("test-frameworks", ["--frameworks"]),
    ],
)
def test_a_target_of_tests_sets_up_what_they_need_first(target: str, options: list[str]) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    before, tests, _ = shown.partition("pytest ")
    assert tests
    assert sorted(re.findall(r"^tools/setup *(.*)$", before, re.MULTILINE)) == options
