"""The tools that install conda's packages are made once a node."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launch.remote.environment.conda import conda_tools
from launch.remote.environment.conda.conda_tools import find_rattler
from tests.launch.remote.environment.image_requests import unreported

UV = """#!/bin/sh
echo "$1" >>"$CALLS"
[ "$1" = venv ] || exit 0
for made; do :; done
mkdir -p "$made/bin"
printf '#!/bin/sh\\n' >"$made/bin/python"
chmod +x "$made/bin/python"
sleep 0.3
"""


def test_launches_that_need_py_rattler_at_once_do_not_replace_what_one_of_them_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conda_tools, "rattler_wheel", lambda *_: ("py_rattler.whl", b""))
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    env = {**os.environ, "CALLS": str(tmp_path / "calls")}

    def find(_: int) -> str:
        return find_rattler(str(tmp_path / "tools"), str(tmp_path / "uv"), env, [], [], [], unreported)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(find, range(2))
    assert first == second
    assert os.access(first, os.X_OK)
    assert (tmp_path / "calls").read_text().split() == ["venv", "pip"]


def test_its_tools_hold_the_locks_and_what_a_killed_build_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conda_tools, "rattler_wheel", lambda *_: ("py_rattler.whl", b""))
    (tmp_path / "uv").write_text(UV + 'ls -l "/proc/$$/fd" | sed "s/.*-> //" >>"$CALLS"\n')
    (tmp_path / "uv").chmod(0o755)
    (tmp_path / "tools" / ".new-x1" / "made").mkdir(parents=True)
    env = {**os.environ, "CALLS": str(tmp_path / "calls")}
    with (tmp_path / "request.lock").open("w") as lock:
        python = find_rattler(
            str(tmp_path / "tools"), str(tmp_path / "uv"), env, [], [], [lock.fileno()], unreported
        )
    held = (tmp_path / "calls").read_text().splitlines()
    own = Path(python).parents[1]
    assert {str(tmp_path / "request.lock"), f"{own}.lock"} <= set(held)
    assert sorted(path.name for path in (tmp_path / "tools").iterdir()) == [own.name, f"{own.name}.lock"]
