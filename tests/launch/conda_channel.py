"""Channels in a folder, which tests make: packages of both forms, and this machine's Python.

The forms are those of https://docs.conda.io/projects/conda-build/en/stable/resources/package-spec.html.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.remote.environment.conda.conda_tools import RATTLER, WHEELS

__all__ = ["PREFIX", "Channel", "example_channel", "make_tar", "python_files", "rattler_wheel"]

PREFIX = (
    "/opt/build_placehold_placehold_placehold_placehold_placehold_placehold_placehold_placehold_placehold"
)
"""Where a package's files say that they are; installing replaces it."""
_CACHE = Path.home() / ".cache" / "ranklift" / "wheels"
_BLOCK = 128 << 10
_SYSTEM = Path("/usr/bin/python3")
_SITE = b"""\
import os, site
site.addsitedir(os.path.join(os.path.dirname(__file__), "site-packages"))
"""


class Channel:
    """A channel in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for subdir in ("noarch", "linux-64"):
            (folder / subdir).mkdir(parents=True)
        self._write()

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, bytes | str],
        *,
        depends: Sequence[str] = (),
        noarch: bool = True,
        form: str = ".conda",
        mode: Mapping[str, int] | None = None,
        links: Mapping[str, str] | None = None,
        **index: Any,
    ) -> Path:
        """A package with these files, of Python where it is for any machine; ``PREFIX`` becomes its place."""
        subdir = "noarch" if noarch else "linux-64"
        about = {
            **{"name": name, "version": version, "build": "0", "build_number": 0, "depends": list(depends)},
            **({"noarch": "python"} if noarch else {}),
            "subdir": subdir,
            **index,
        }
        texts = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        paths = [_path(path, text) for path, text in texts.items()]
        paths += [{"_path": path, "path_type": "softlink"} for path in links or {}]
        info: dict[str, Any] = {
            "info/index.json": about,
            "info/paths.json": {"paths": paths, "paths_version": 1},
            "info/files": "".join(f"{path}\n" for path in [*texts, *(links or {})]),
            "info/about.json": {},
        }
        if noarch:
            info["info/link.json"] = {"noarch": {"type": "python"}, "package_metadata_version": 1}
        described = {
            path: (text if isinstance(text, str) else json.dumps(text)).encode()
            for path, text in info.items()
        }
        path = self.folder / subdir / f"{name}-{version}-0{form}"
        if form == ".tar.bz2":
            path.write_bytes(make_tar({**described, **texts}, mode or {}, links or {}, "w:bz2"))
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
                for part, inside in (("pkg", texts), ("info", described)):
                    more = links or {} if part == "pkg" else {}
                    packed = _zstd(make_tar(inside, mode or {}, more, "w"))
                    archive.writestr(f"{part}-{name}-{version}-0.tar.zst", packed)
        self._write({path.name: {**about, **_digests(path)}}, subdir)
        return path

    def add_python(self) -> None:
        """This machine's own Python, with packages in ``site-packages``, unlike Debian's."""
        binary = _SYSTEM.resolve()
        files = {
            path: text for path, text in python_files().items() if not path.endswith("EXTERNALLY-MANAGED")
        }
        self.add(
            "python",
            binary.name.removeprefix("python"),
            files,
            noarch=False,
            mode={f"bin/{binary.name}": 0o755},
            links={"bin/python": binary.name, "bin/python3": binary.name},
        )

    def _write(self, more: Mapping[str, dict[str, Any]] | None = None, into: str = "") -> None:
        for subdir in ("noarch", "linux-64"):
            file = self.folder / subdir / "repodata.json"
            empty = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": {}, "repodata_version": 1}
            data: dict[str, Any] = json.loads(file.read_text()) if file.exists() else empty
            for name, entry in (more or {}).items() if subdir == into else ():
                data["packages.conda" if name.endswith(".conda") else "packages"][name] = entry
            file.write_text(json.dumps(data))


def example_channel(folder: Path) -> Channel:
    """A channel with Python, packages for any machine and for this one, and some that cannot be installed."""
    made = Channel(folder)
    made.add_python()
    module = {"site-packages/toolkit/__init__.py": "ANSWER = 42\n"}
    made.add("toolkit", "1.2", module, depends=["python", "native"], form=".tar.bz2")
    made.add(
        "native",
        "3.0",
        {
            "bin/native": f"#!/bin/sh\necho {PREFIX}/share\n",
            "etc/conda/activate.d/native.sh": 'export NATIVE_HOME="$CONDA_PREFIX/share"\n',
        },
        noarch=False,
        mode={"bin/native": 0o755},
        links={"bin/native-3": "native"},
    )
    made.add("cuda-only", "1", {}, depends=["__cuda >=12"], noarch=False)
    made.add("broken", "1", {"bin/x": ""}, depends=["nosuchthing >=7"], noarch=False)
    return made


def _path(path: str, text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {
        **{"_path": path, "path_type": "hardlink"},
        **{"sha256": hashlib.sha256(text).hexdigest(), "size_in_bytes": len(text)},
    }
    if PREFIX.encode() in text:
        found |= {"file_mode": "text", "prefix_placeholder": PREFIX}
    return found


def python_files() -> dict[str, bytes]:
    """This machine's Python by path below its prefix, with packages in ``site-packages``, unlike Debian's."""
    binary = _SYSTEM.resolve()
    library = Path(f"/usr/lib/{binary.name}")
    files = {f"bin/{binary.name}": binary.read_bytes()}
    left_out = ("test", "tests", "idlelib", "lib2to3", "ensurepip", "__pycache__", "dist-packages")
    for path in sorted(library.rglob("*")):
        parts = path.relative_to(library).parts
        if path.is_file() and not any(one in left_out or one.startswith("config-") for one in parts):
            files[f"lib/{binary.name}/{path.relative_to(library)}"] = path.read_bytes()
    scheme = f"lib/{binary.name}/sysconfig"
    (scheme,) = {f"{scheme}.py", f"{scheme}/__init__.py"} & files.keys()  # a package since Python 3.13
    files[scheme] = files[scheme].replace(b"= 'posix_local'", b"= 'posix_prefix'")
    files[f"lib/{binary.name}/sitecustomize.py"] = _SITE  # site itself is part of the binary
    return files


def make_tar(
    files: Mapping[str, bytes], modes: Mapping[str, int], links: Mapping[str, str], how: Any
) -> bytes:
    """An archive, opened in mode ``how``, with files, their modes where not 0644, and symbolic links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=how) as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text), modes.get(path, 0o644)
            archive.addfile(member, io.BytesIO(text))
        for path, target in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    """A Zstandard frame of blocks that are not compressed: RFC 8878, sections 3.1.1.1 and 3.1.1.2."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)] or [b""]
    heads = [
        (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little")
        for number, block in enumerate(blocks)
    ]
    return b"\x28\xb5\x2f\xfd\x00\x50" + b"".join(
        head + block for head, block in zip(heads, blocks, strict=True)
    )


def _digests(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "md5": md5}


def rattler_wheel() -> Path:
    """The pinned wheel of py-rattler, downloaded once."""
    name, _ = WHEELS["x86_64"]
    if not (_CACHE / name).exists():
        words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(_CACHE)]
        subprocess.run([sys.executable, "-m", "pip", *words, f"py-rattler=={RATTLER}"], check=True)
    return _CACHE / name
