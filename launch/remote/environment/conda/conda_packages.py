"""Packages of conda's channels: which are wanted, and how they come into an environment's folder."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from launch.remote.base.files import replace_file
from launch.remote.environment import build
from launch.remote.environment.build import Failed, Report
from launch.remote.environment.conda import rattler_install
from launch.remote.environment.conda.conda_activation import write_activation
from launch.remote.environment.conda.conda_channels import resolve, searched
from launch.remote.environment.conda.conda_tools import create_argv, find_conda
from launch.remote.environment.conda.condarc import read_condarc
from launch.remote.environment.index import without_login
from launch.remote.environment.request import EnvironmentRequest

__all__ = [
    "COMPILE",
    "PROGRAM",
    "compile_modules",
    "cuda_version",
    "finish_conda",
    "install_conda",
    "rattler_request",
    "specs_of",
]

PROGRAM = os.path.abspath(rattler_install.__file__)
COMPILE = (
    "import compileall, ctypes, os, py_compile, sys; own, c = os.getpid(), ctypes.CDLL(None); "
    "os.register_at_fork(after_in_child=lambda: c.prctl(1, 9) or os.getppid() == own or os._exit(1)); "
    "compileall.compile_dir(sys.argv[1], quiet=2, force=True, workers=0, "
    "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
)
"""Program of the environment's Python. Packages bring files compiled for their own times of change, which
copies on other nodes do not have. What does not compile, such as templates, is left to who imports it. Its
workers end with it (PR_SET_PDEATHSIG): those of a killed one would wait for work for ever."""
_PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
_STEPS = ("Solving", "Resolved", "Installed", "Downloading", "Linking", "Preparing", "Executing")
"""Beginnings of the tools' lines that are worth showing."""
_PYTHON = re.compile(r"(?:.*::)?python(?![\w.-])")
_EXPLICIT = "conda-meta/explicit.txt"


def specs_of(request: Mapping[str, object]) -> list[str]:
    """Return the specifications of packages, Python's among them: ranks run it, and pip's part goes into it.

    >>> conda = '{"channels": ["defaults"], "dependencies": ["numpy"]}'
    >>> specs_of({"conda": conda, "python": "3.10"}), specs_of({"conda": conda, "python": ">=3.9,<3.12"})
    (['numpy', 'python=3.10'], ['numpy', 'python>=3.9,<3.12'])
    """
    wanted, python = json.loads(str(request["conda"]))["dependencies"], str(request["python"])
    if python or not any(_PYTHON.match(spec) for spec in wanted):
        sign = "=" if python[:1].isdigit() else ""
        return [*wanted, f"python{sign}{python}"]
    return list(wanted)


def cuda_version() -> str:
    """Return the newest CUDA that this node's driver runs, conda's ``__cuda``; "" without a driver.

    https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-virtual.html
    """
    if "CONDA_OVERRIDE_CUDA" in os.environ:
        return os.environ["CONDA_OVERRIDE_CUDA"]
    version = ctypes.c_int()
    with contextlib.suppress(OSError):
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            return f"{version.value // 1000}.{version.value % 1000 // 10}"
    return ""


def rattler_request(request: EnvironmentRequest, folders: list[str], prefix: str, cache: str) -> bytes:
    """Return what :mod:`~launch.remote.environment.conda.rattler_install` reads. Raise :class:`Failed`."""
    machine = os.uname().machine
    if machine not in _PLATFORMS:
        raise Failed(f"conda's packages are for {' and '.join(_PLATFORMS)} here, and this node is {machine}")
    settings = read_condarc(os.environ)
    channels = searched(json.loads(request["conda"])["channels"], settings, folders)
    found = resolve(channels, specs_of(request), settings)
    wanted = {
        "channels": found.channels,
        "specs": found.specs,
        "priority": settings.channel_priority,
        "platform": _PLATFORMS[machine],
        "prefix": prefix,
        "cache": cache,
    }
    return json.dumps(wanted).encode()


def install_conda(
    request: EnvironmentRequest,
    folder: str,
    folders: list[str],
    root: str,
    find_python: Callable[[], str],
    certificates: str,
    keep_open: Iterable[int],
    report: Report,
) -> None:
    """Install the packages into ``folder``; ``folders`` are the channels that were sent along,
    ``find_python`` returns a Python with py-rattler, ``certificates`` is a file, if the node's settings name
    one. Raise :class:`Failed`."""
    env = {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")
        },
        "CONDA_OVERRIDE_CUDA": cuda_version(),
        # A cache of its own: the environment's files, some of them the cache's, become read-only.
        "CONDA_PKGS_DIRS": os.path.join(root, "cache", "conda", "packages"),
        "MAMBA_ROOT_PREFIX": os.path.join(root, "cache", "conda", "micromamba"),
        "CONDA_REGISTER_ENVS": "false",
        **({"SSL_CERT_FILE": certificates} if certificates else {}),
    }
    program = find_conda(os.environ)
    stdin = b""
    if program:
        home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
        settings = read_condarc(os.environ, home)
        channels = searched(json.loads(request["conda"])["channels"], settings, folders)
        argv = create_argv(program, folder, channels, specs_of(request))
    else:
        stdin = rattler_request(request, folders, folder, os.path.join(root, "cache", "conda"))
        argv = [find_python(), "-I", PROGRAM]
    what = f"installing conda's packages by {os.path.basename(program) or 'py-rattler'}"
    build.run(what, argv, env, report, steps=_STEPS, stdin=stdin, keep_open=list(keep_open))
    if not os.access(os.path.join(folder, "bin", "python"), os.X_OK):
        raise Failed(f"{what} left no bin/python: its package python is not a Python for Linux")


def compile_modules(python: str, folder: str, keep_open: Sequence[int], report: Report) -> None:
    """Compile all modules below ``folder`` by the Python at ``python``, which inherits ``keep_open``. Raise
    :class:`Failed`."""
    what = "compiling modules"
    report(what)
    argv = [python, "-I", "-c", COMPILE, folder]
    build.run(what, argv, os.environ, report, steps=("note:",), keep_open=keep_open)


def finish_conda(folder: str, keep_open: Sequence[int], report: Report) -> None:
    """Compile all modules, and write what activation sets and which packages were installed; tools inherit
    ``keep_open``. Raise :class:`Failed`."""
    compile_modules(os.path.join(folder, "bin", "python"), os.path.join(folder, "lib"), keep_open, report)
    write_activation(folder, keep_open, report)
    replace_file(os.path.join(folder, _EXPLICIT), _explicit(folder).encode(), mode=0o644)


def _explicit(folder: str) -> str:
    """Return the packages of an environment as ``conda create --file`` takes them."""
    lines = []
    meta = os.path.join(folder, "conda-meta")
    for name in sorted(os.listdir(meta)):
        if name.endswith(".json"):
            with open(os.path.join(meta, name), encoding="utf-8") as stream:
                record = json.load(stream)
            if "url" in record:
                digest = f"#{record['md5']}" if record.get("md5") else ""
                lines.append(without_login(record["url"]) + digest)
    return "\n".join(["@EXPLICIT", *lines, ""])
