"""uv, which installs Python packages: the node's own, else a pinned wheel of the package index."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import zipfile
from collections.abc import Iterable, Mapping

from launch.remote.base.files import replace_file, which
from launch.remote.environment.build import Failed, Report
from launch.remote.environment.index import Index, download

__all__ = ["VERSION", "WHEELS", "find_uv", "find_wheel"]

VERSION = "0.13.9"
"""The pinned version, and the oldest of a node's own that is used."""
WHEELS = {
    "x86_64": (
        f"uv-{VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    ),
    "aarch64": (
        f"uv-{VERSION}-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
    ),
}
"""By machine, the wheel that holds the program, and its SHA-256: https://pypi.org/project/uv/#files."""
_LIMIT_S = 20


def find_uv(tools: str, indexes: Iterable[Index], folders: Iterable[str], report: Report) -> str:
    """Return the path of a uv of this node; fetch the wheel once, from ``folders`` or an index, to ``tools``.

    Raise :class:`Failed`.
    """
    own = which("uv", os.environ.get("PATH", os.defpath))
    if own and _version(own) >= _numbers(VERSION):
        return own
    program = os.path.join(tools, f"uv-{VERSION}", "uv")
    if os.access(program, os.X_OK):
        return program
    _, wheel = find_wheel("uv", VERSION, WHEELS, indexes, folders, report)
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        data = archive.read(f"uv-{VERSION}.data/scripts/uv")
    os.makedirs(os.path.dirname(program), mode=0o700, exist_ok=True)
    replace_file(program, data, mode=0o700)
    return program


def find_wheel(
    project: str,
    version: str,
    wheels: Mapping[str, tuple[str, str]],
    indexes: Iterable[Index],
    folders: Iterable[str],
    report: Report,
) -> tuple[str, bytes]:
    """Return name and content of a project's wheel for this machine, from ``folders`` or an index; ``wheels``
    has its name and SHA-256 by machine. Raise :class:`Failed`."""
    machine = os.uname().machine
    if machine not in wheels:
        pinned = " and ".join(wheels)
        raise Failed(f"{project} is not on this node, and its wheels are pinned for {pinned}, not {machine}")
    name, sha256 = wheels[machine]
    wheel = _sent(folders, name, sha256)
    if wheel is None:
        report(f"downloading {project} {version}")
        wheel = download(indexes, project, name, sha256)
    return name, wheel


def _sent(folders: Iterable[str], name: str, sha256: str) -> bytes | None:
    """Return the wheel from the folders of wheels; None where none has it. Raise :class:`Failed`."""
    for folder in folders:
        try:
            with open(os.path.join(folder, name), "rb") as stream:
                data = stream.read()
        except FileNotFoundError:
            continue
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Failed(f"--find-links: {name} has another SHA-256 than the pinned one; download it again")
        return data
    return None


def _version(program: str) -> list[int]:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return _numbers(done.stdout.decode("utf-8", "replace").partition(" ")[2])


def _numbers(version: str) -> list[int]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return [int(number) for number in found.groups()] if found else []
