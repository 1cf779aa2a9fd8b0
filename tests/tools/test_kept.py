"""What the set-up keeps in ``~/.cache`` is used as long as it is what was fetched or built."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def command(path: Path, script: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def script(checkout: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in ``checkout``, whose ``.venv`` a test has made."""
    (checkout / "tools").mkdir(exist_ok=True)
    shutil.copy(ROOT / "tools" / name, checkout / "tools")
    env = {**os.environ, "HOME": str(checkout / "home")}
    env.pop("HOROVOD_CACHE", None)
    return subprocess.run(
        [checkout / "tools" / name], env=env, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def mpi4py(tmp_path: Path) -> Path:
    """A checkout whose lock names a source package, and a pip that serves it and counts."""
    tests = tmp_path / "mpi4py-4.1/test"
    tests.mkdir(parents=True)
    (tests / "main.py").write_text("the package's own\n")
    served = tmp_path / "served.tar.gz"
    with tarfile.open(served, "w:gz") as archive:
        archive.add(tests, "mpi4py-4.1/test")
    digest = hashlib.sha256(served.read_bytes()).hexdigest()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/mpich.txt").write_text(f"mpi4py==4.1 \\\n    --hash=sha256:{digest}\n")
    fetch = f'while [ "$1" != --dest ]; do shift; done; mkdir -p "$2"; echo >>{tmp_path}/fetched'
    command(tmp_path / ".venv/bin/python", f'{fetch}\ncp {served} "$2/mpi4py-4.1.tar.gz"')
    return tmp_path


def fetches(checkout: Path) -> int:
    return len((checkout / "fetched").read_text().splitlines())


def test_mpi4pys_tests_are_fetched_once(mpi4py: Path) -> None:
    for _ in range(2):
        assert script(mpi4py, "mpi4py-tests").returncode == 0
        assert (mpi4py / ".venv-mpich/share/mpi4py-tests/main.py").read_text() == "the package's own\n"
    assert fetches(mpi4py) == 1


def test_a_kept_archive_that_was_changed_is_fetched_again(mpi4py: Path) -> None:
    script(mpi4py, "mpi4py-tests")
    kept = mpi4py / "home/.cache/ranklift/mpi4py/mpi4py-4.1.tar.gz"
    right = kept.read_bytes()
    kept.write_bytes(b"other")
    done = script(mpi4py, "mpi4py-tests")
    assert done.returncode == 0
    assert "mpi4py-4.1.tar.gz is not what requirements/mpich.txt names: fetching it again" in done.stderr
    assert (kept.read_bytes(), fetches(mpi4py)) == (right, 2)


def test_an_archive_that_the_lock_does_not_name_is_not_unpacked(mpi4py: Path) -> None:
    (mpi4py / "served.tar.gz").write_bytes(b"other")
    done = script(mpi4py, "mpi4py-tests")
    assert done.returncode == 1
    assert "has no digest of requirements/mpich.txt" in done.stderr
    assert not (mpi4py / ".venv-mpich").exists()


@pytest.fixture
def horovod(tmp_path: Path) -> Path:
    """A checkout whose pip writes a wheel and counts its builds, and whose uv notes what it installs."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/horovod.txt").write_text("horovod==0.28 \\\n    --hash=sha256:0\nwheel==1\n")
    build = f'while [ "$1" != --wheel-dir ]; do shift; done; mkdir -p "$2"; echo >>{tmp_path}/built'
    command(tmp_path / ".venv/bin/python", f'{build}\necho right >"$2/horovod-0.28.whl"')
    command(tmp_path / ".venv/bin/uv", f'case "$*" in *.whl) cat "${{@: -1}}" >{tmp_path}/installed ;; esac')
    command(tmp_path / ".venv-horovod/bin/python")
    return tmp_path


@pytest.mark.parametrize("kept", ["unchanged", "changed", "without a record"])
def test_a_kept_horovod_is_installed_while_it_is_what_was_built(horovod: Path, kept: str) -> None:
    assert script(horovod, "horovod").returncode == 0
    (wheel,) = (horovod / "home/.cache/ranklift/horovod").glob("*/horovod-0.28.whl")
    if kept == "changed":
        wheel.write_text("other")
    if kept == "without a record":
        (wheel.parent / "SHA256SUMS").unlink()
    done = script(horovod, "horovod")
    assert done.returncode == 0, done.stderr
    assert "command not found" not in done.stderr
    assert (horovod / "installed").read_text() == "right\n"
    assert len((horovod / "built").read_text().splitlines()) == (1 if kept == "unchanged" else 2)
    assert ("is not what was built: building it again" in done.stderr) == (kept != "unchanged")
