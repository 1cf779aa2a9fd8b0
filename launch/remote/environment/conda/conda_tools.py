"""What installs conda's packages: the node's own conda, else py-rattler in a Python of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from launch.remote.base.files import which
from launch.remote.environment import build
from launch.remote.environment.build import Report
from launch.remote.environment.index import Index
from launch.remote.environment.uv import find_wheel

__all__ = ["PYTHON", "RATTLER", "WHEELS", "create_argv", "find_conda", "find_rattler", "rattler_wheel"]

RATTLER = "0.28.0"
WHEELS = {
    "x86_64": (
        f"py_rattler-{RATTLER}-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "4f4ab1d34d5394e7ce130a86e59009c95ace4f5757d9c3af04de1351bcea47eb",
    ),
    "aarch64": (
        f"py_rattler-{RATTLER}-cp310-abi3-manylinux_2_28_aarch64.whl",
        "61b24202374188e72130f1b3dc63b455befaafc3e49e5481a38b6a6c8828c1e0",
    ),
}
"""By machine, the wheel of the pinned version and its SHA-256: https://pypi.org/project/py-rattler/#files."""
PYTHON = ">=3.10"
"""The Pythons that these wheels are for."""
_UNFINISHED = ".new-"
_PROGRAMS = ("mamba", "micromamba", "conda")


def find_conda(environ: Mapping[str, str]) -> str:
    """Return the path of the node's own conda, or of a faster program with its options; "" without one."""
    path = environ.get("PATH", os.defpath)
    return next(filter(None, (which(name, path) for name in _PROGRAMS)), "") or environ.get("CONDA_EXE", "")


def create_argv(program: str, folder: str, channels: Iterable[str], specs: Sequence[str]) -> list[str]:
    """Return the command line that makes an environment, the same for conda, mamba and micromamba.

    >>> create_argv("conda", "/env", ["conda-forge"], ["numpy=2"])
    ... # doctest: +NORMALIZE_WHITESPACE
    ['conda', 'create', '--yes', '--quiet', '--prefix', '/env', '--override-channels',
     '--channel', 'conda-forge', 'numpy=2']
    """
    named = (word for channel in channels for word in ("--channel", channel))
    return [program, "create", "--yes", "--quiet", "--prefix", folder, "--override-channels", *named, *specs]


def rattler_wheel(indexes: Iterable[Index], folders: Iterable[str], report: Report) -> tuple[str, bytes]:
    """Return name and content of py-rattler's wheel. Raise :class:`Failed`."""
    return find_wheel("py-rattler", RATTLER, WHEELS, indexes, folders, report)


def find_rattler(
    tools: str,
    uv: str,
    env: Mapping[str, str],
    indexes: Iterable[Index],
    folders: Iterable[str],
    keep_open: Sequence[int],
    report: Report,
) -> str:
    """Return the Python that has py-rattler; make it once below ``tools``, by tools that inherit
    ``keep_open``. Raise :class:`Failed`."""
    home = os.path.join(tools, f"py-rattler-{RATTLER}")
    python = os.path.join(home, "bin", "python")
    if os.access(python, os.X_OK):
        return python
    os.makedirs(tools, mode=0o700, exist_ok=True)
    with open(f"{home}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.access(python, os.X_OK):  # another launch has made it meanwhile, and runs it
            for name in os.listdir(tools):
                if name.startswith(_UNFINISHED):  # of a killed build, whose tools would hold the lock
                    shutil.rmtree(os.path.join(tools, name), ignore_errors=True)
            wheel = rattler_wheel(indexes, folders, report)
            _make_rattler(tools, home, uv, env, wheel, [*keep_open, lock.fileno()], report)
    return python


def _make_rattler(
    tools: str,
    home: str,
    uv: str,
    env: Mapping[str, str],
    wheel: tuple[str, bytes],
    keep_open: Sequence[int],
    report: Report,
) -> None:
    name, data = wheel
    with tempfile.TemporaryDirectory(dir=tools, prefix=_UNFINISHED) as work:
        file, made = os.path.join(work, name), os.path.join(work, "made")
        with open(file, "wb") as stream:
            stream.write(data)
        own = {**env, "UV_PYTHON_INSTALL_DIR": os.path.join(tools, "python")}
        what = "making py-rattler's own environment"
        argv = [uv, "venv", "--quiet", "--no-project", "--python", PYTHON, made]
        build.run(what, argv, own, report, steps=("Downloading",), keep_open=keep_open)
        argv = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--offline",
            "--no-deps",
            "--python",
            f"{made}/bin/python",
            file,
        ]
        build.run(what, argv, own, report, steps=("Downloading",), keep_open=keep_open)
        shutil.rmtree(home, ignore_errors=True)  # without a Python: what the system has removed since
        os.rename(made, home)
