"""Wheels that tests make, and the one of uv, which a head gets from a folder where no index is in reach."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.remote.environment.uv import VERSION, WHEELS

__all__ = ["make_wheel", "uv_wheel"]

_CACHE = Path.home() / ".cache" / "ranklift" / "wheels"


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()
) -> Path:
    """A wheel in ``folder`` with these files."""
    about = f"{name}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {one}" for one in requires]
    texts = {
        **files,
        f"{about}/METADATA": "\n".join([*metadata, ""]).encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in texts.items()]
    texts[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in texts.items():
            archive.writestr(inner, text)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def uv_wheel() -> Path:
    """The pinned wheel of uv, downloaded once."""
    name, _ = WHEELS["x86_64"]
    if not (_CACHE / name).exists():
        words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(_CACHE)]
        subprocess.run([sys.executable, "-m", "pip", *words, f"uv=={VERSION}"], check=True)
    return _CACHE / name
