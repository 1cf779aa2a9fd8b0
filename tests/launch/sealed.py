"""A folder as a pushed snapshot: with its manifest, under the name that the manifest's digest gives."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

__all__ = ["manifest_of", "seal", "snapshot_id"]


def manifest_of(folder: Path) -> bytes:
    """The manifest of a folder, empty folders among its entries."""
    entries: list[list[object]] = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            entries.append(["l", name, str(path.readlink())])
        elif path.is_dir():
            entries += [["d", name]] if not any(path.iterdir()) else []
        else:
            content = path.read_bytes()
            executable = int(bool(path.stat().st_mode & 0o100))
            entries.append(["f", name, hashlib.sha256(content).hexdigest(), len(content), executable])
    return json.dumps(entries).encode()


def snapshot_id(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()[:16]


def seal(folder: Path) -> Path:
    """Write the folder's manifest and give the folder its name; return its new path."""
    manifest = manifest_of(folder)
    named = folder.with_name(snapshot_id(manifest))
    folder.rename(named)
    named.with_name(f"{named.name}.manifest").write_bytes(manifest)
    return named
