"""A Python environment: a virtual environment of the node's own Python, or conda's packages; filled by uv."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launch.remote.base.files import file_in_memory, which
from launch.remote.environment import build
from launch.remote.environment.build import Failed, Report
from launch.remote.environment.conda.conda_packages import (
    compile_modules,
    cuda_version,
    finish_conda,
    install_conda,
)
from launch.remote.environment.conda.conda_tools import find_rattler
from launch.remote.environment.index import Index, read_index
from launch.remote.environment.request import EnvironmentRequest
from launch.remote.environment.uv import find_uv
from launch.remote.store.store import Store

__all__ = ["fits", "identity", "make"]

_DESCRIBE = """\
import sys, os
libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
version = "%d.%d.%d" % sys.version_info[:3]
print(sys.implementation.name, version, sys.executable, os.uname().machine, libc or "-")
"""
_STEPS = ("Resolved", "Downloading", "Building", "Prepared", "Installed", "Bytecode")
"""Beginnings of uv's lines that are worth showing."""
_NO_INDEX = "UV_NO_INDEX"
_NOTHING: tuple[str, ...] = ()
_BUNDLED = """\
import ensurepip, os, sysconfig
own = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
print(sysconfig.get_config_var("WHEEL_PKG_DIR") or own)
"""
"""https://docs.python.org/3/using/configure.html#cmdoption-with-wheel-pkg-dir"""
_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
_LIMIT_S = 20
_CLAUSE = re.compile(r"(==|!=|~=|>=|<=|>|<|=|)\s*([0-9]{1,9}(?:\.[0-9]{1,9})*(?:\.\*)?)")
_OLDEST, _NEWEST = 8, 20
"""Minor versions of Python 3 that are searched on PATH."""
_CALLED = {"-r": "the requirements", "-c": "the constraints"}
"""What users call what uv is given by these options, whose files have no names."""
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that would mix another environment into this one."""


class _Interpreter(NamedTuple):
    """A Python of this node, or one that uv has to download: then only its version is known."""

    implementation: str
    version: str
    path: str
    machine: str
    libc: str


def identity(request: EnvironmentRequest, _report: Report) -> str:
    """Return what makes one environment of packages another one: the request, Python, the platform."""
    if request["conda"]:
        python = _describe(sys.executable)._replace(implementation="conda", version=request["python"])
        more = [cuda_version(), *request["channels"]]
    else:
        python, more = _interpreter(request["python"]), []
    parts = [*python._replace(path=""), request["requirements"], request["constraints"], request["conda"]]
    return "\n".join(["python", *parts, *request["find_links"], *more])


def make(request: EnvironmentRequest, folder: str, lock: int, report: Report) -> None:
    """Make the environment in ``folder``, its final path. Raise :class:`Failed`."""
    store = Store()
    tools = os.path.join(store.root, "tools")
    sent = [store.path(snapshot) for snapshot in request["find_links"]]
    index = read_index(request["requirements"], os.environ)
    # An index that the requirements name, such as PyTorch's, may have nothing but some packages.
    indexes = [read_index("", os.environ), index] if index.url else []
    env = _environment(store.root, folder, index, sent)

    def uv() -> str:
        return find_uv(tools, indexes, sent, report)

    if request["conda"]:

        def rattler() -> str:
            return find_rattler(tools, uv(), env, indexes, sent, [lock], report)

        channels = [store.path(snapshot) for snapshot in request["channels"]]
        install_conda(request, folder, channels, store.root, rattler, index.certificates, [lock], report)
    else:
        _make_venv(uv(), request["python"], folder, env, lock, report)
    if request["requirements"]:
        _install_packages(uv(), request, folder, env, lock, report)
    if not request["conda"] or request["requirements"]:  # else there may be no uv, which is not needed
        _add_pip(uv(), folder, env, lock, report)
    if request["conda"]:
        finish_conda(folder, [lock], report)


def _make_venv(uv: str, wanted: str, folder: str, env: Mapping[str, str], lock: int, report: Report) -> None:
    python = _interpreter(wanted)
    what = "making the virtual environment"
    argv = [uv, "venv", "--quiet", "--no-project", "--python", python.path or python.version, folder]
    argv.append("--allow-existing")  # a Python that uv downloads is in the folder before
    try:
        build.run(what, argv, env, report, keep_open=[lock])
    except Failed as error:
        if python.path:
            raise
        there = ", ".join(found.version for found in _present())
        reason = (
            f"Python {python.version} is not on this node and cannot be downloaded; this node has {there}"
        )
        raise Failed(reason, error.lines) from error
    if not python.path:
        compile_modules(f"{folder}/bin/python", f"{folder}/python", [lock], report)


def _install_packages(
    uv: str,
    request: EnvironmentRequest,
    folder: str,
    env: Mapping[str, str],
    lock: int,
    report: Report,
) -> None:
    texts = {"-r": request["requirements"], "-c": request["constraints"]}
    # In memory: an index's password may be among the lines.
    files = {option: file_in_memory(text.encode() + b"\n") for option, text in texts.items() if text}
    # Compiled with the rest of conda's modules, else here.
    options = ["--break-system-packages"] if request["conda"] else ["--compile-bytecode"]
    try:
        build.run(
            "installing packages",
            [
                *(uv, "pip", "install", "--python", f"{folder}/bin/python", *options, *_closed(env)),
                *(word for option, file in files.items() for word in (option, f"/proc/self/fd/{file}")),
            ],
            env,
            report,
            steps=_STEPS,
            keep_open=[lock, *files.values()],
        )
    except Failed as error:
        lines = error.lines
        for option, file in files.items():
            lines = [line.replace(f"/proc/self/fd/{file}", _CALLED[option]) for line in lines]
        raise Failed(error.reason, lines) from error
    finally:
        for file in files.values():
            os.close(file)


def _add_pip(uv: str, folder: str, env: Mapping[str, str], lock: int, report: Report) -> None:
    """Install pip where it was not asked for: conda brings it with Python, and jobs run it.

    The wheel is the interpreter's own, which ``ensurepip`` has and needs no index, else one of the index.
    Without either the environment has none, which a note says.
    """
    python = f"{folder}/bin/python"
    if glob.glob(f"{glob.escape(folder)}/lib/python*/site-packages/pip/__init__.py"):
        return
    argv = [uv, "pip", "install", "--python", python, "--break-system-packages", "--compile-bytecode", "pip"]
    own = {name: value for name, value in env.items() if name not in _INDEXES}
    bundled = _bundled(python)
    offline = {**own, _NO_INDEX: "1", "UV_FIND_LINKS": bundled}
    for where in (*([offline] if bundled else []), env):
        with contextlib.suppress(Failed):
            build.run(
                "installing pip", [*argv, *_closed(where)], where, report, steps=_NOTHING, keep_open=[lock]
            )
            return
    report("note: the environment has no pip: neither its Python nor the index has a wheel of it")


def _closed(env: Mapping[str, str]) -> list[str]:
    """Return the option for :data:`_NO_INDEX`, which uv does not read from its variables."""
    return ["--no-index"] if _NO_INDEX in env else []


def _bundled(python: str) -> str:
    """Return the folder of the wheels that ``python -m ensurepip`` would install; "" without one."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _BUNDLED], capture_output=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = os.fsdecode(done.stdout).strip()
    return found if done.returncode == 0 and os.path.isdir(found) else ""


def _environment(root: str, folder: str, index: Index, sent: Sequence[str]) -> dict[str, str]:
    """Return the variables of uv, with the folders of wheels that were ``sent`` along and the node's own."""
    env = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    env.update(
        {
            "UV_CACHE_DIR": os.path.join(root, "cache", "uv"),
            "UV_LINK_MODE": "hardlink",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_INSTALL_DIR": os.path.join(folder, "python"),
            # Other nodes' copies have other times of change, by which Python would compile each module again.
            "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
        }
    )
    if index.url:
        env["UV_DEFAULT_INDEX"] = index.url
    else:
        env[_NO_INDEX] = "1"
    if index.extra:
        env["UV_INDEX"] = " ".join(index.extra)
    if sent or index.find_links:  # an option would displace the variable, in which there may be a login
        env["UV_FIND_LINKS"] = ",".join([*sent, *index.find_links])
    if index.certificates:
        env["SSL_CERT_FILE"] = index.certificates
    return env


def _interpreter(wanted: str) -> _Interpreter:
    """Return this node's first Python of the wanted version, else the one that uv has to download."""
    own = _describe(sys.executable)
    if fits(own.version, wanted):
        return own
    fitting = (python for python in _present() if fits(python.version, wanted))
    return next(fitting, own._replace(version=wanted, path=""))


def _present() -> list[_Interpreter]:
    """Return this node's Pythons, the newest first."""
    path = os.environ.get("PATH", os.defpath)
    named = (which(f"python3.{minor}", path) for minor in range(_NEWEST, _OLDEST - 1, -1))
    found = []
    for python in filter(None, named):
        with contextlib.suppress(Failed):  # pyenv's launcher of a version that is not there
            found.append(_describe(python))
    return found


def fits(version: str, wanted: str) -> bool:
    """Return whether a version of Python is the wanted one, or in the wanted range.

    >>> fits("3.10.12", "3.10"), fits("3.1.0", "3.10"), fits("3.11.2", ">=3.9,<3.12")
    (True, False, True)
    """
    numbers = _numbers(version)
    for part in filter(None, wanted.split(",")):
        found = _CLAUSE.fullmatch(part.strip())
        if found is None:
            raise Failed(
                f"python = {wanted!r} is not a version such as 3.10, nor a range such as >=3.9,<3.12"
            )
        sign, text = found.groups()
        limit = _numbers(text)
        is_within = numbers[: len(limit)] == limit
        is_held = {
            "": is_within,
            "=": is_within,
            "==": is_within,
            "!=": not is_within,
            "~=": numbers >= limit and numbers[: len(limit) - 1] == limit[:-1],
            ">=": numbers >= limit,
            "<=": numbers <= limit,
            ">": numbers > limit,
            "<": numbers < limit,
        }
        if not is_held[sign]:
            return False
    return True


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".") if number.isdecimal()]


def _describe(path: str) -> _Interpreter:
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _DESCRIBE], capture_output=True, timeout=_LIMIT_S, check=True
        )
        implementation, version, own, machine, *libc = done.stdout.decode().split()
        return _Interpreter(implementation, version, own, machine, " ".join(libc))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Failed(f"{path} cannot be used: {error}") from error
