"""The typed manifest of a stored folder: files, links, empty folders (:mod:`launch.remote.store.store`)."""

from __future__ import annotations

import json
import os

from launch.remote.base.files import MANIFEST_BYTES

__all__ = ["ID_DIGITS", "Manifest"]

ID_DIGITS = 16
_ENTRIES: dict[tuple[type, ...], str] = {
    (str, str, str, int, int): "f",
    (str, str, str): "l",
    (str, str): "d",
}


class Manifest:
    """Contents of a snapshot, read from its JSON text. Raise ValueError where that is no manifest."""

    def __init__(self, text: bytes, name: str = "") -> None:
        """``name`` is the id where that is not the hash of the text."""
        from hashlib import sha256  # loads OpenSSL: a launch checks only which snapshots are here

        self.text = text
        self.id = name or sha256(text).hexdigest()[:ID_DIGITS]
        self.files: list[tuple[bytes, str, int, bool]] = []
        self.links: list[tuple[bytes, bytes]] = []
        self.empty: list[bytes] = []
        self.blobs: list[tuple[str, int]] = []
        self.places: dict[str, list[tuple[bytes, bool]]] = {}
        if len(text) > MANIFEST_BYTES:
            raise ValueError(
                f"the manifest of {self.id} has {len(text)} bytes, at most {MANIFEST_BYTES} are taken"
            )
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the manifest of {self.id} is no JSON: {error}") from error
        if not isinstance(entries, list):
            raise ValueError(f"the manifest of {self.id} is no list")  # noqa: TRY004  (of data, not of a caller)
        for number, entry in enumerate(entries):
            if not _is_entry(entry):
                raise ValueError(f"entry {number} of the manifest of {self.id} is no file, link or folder")
            path = _safe(entry[1])
            if entry[0] == "l":
                self.links.append((path, entry[2].encode("utf-8", "surrogateescape")))
                continue
            if entry[0] == "d":
                self.empty.append(path)
                continue
            _, _, sha, size, executable = entry
            self.files.append((path, sha, size, bool(executable)))
            if sha not in self.places:
                self.places[sha] = []
                if size:
                    self.blobs.append((sha, size))
            self.places[sha].append((path, bool(executable)))

    def folders(self) -> list[bytes]:
        """Return every folder that must exist, parents first."""
        wanted: set[bytes] = set()
        inside = [entry[0] for entry in self.files] + [link[0] for link in self.links]
        for path in [*map(os.path.dirname, inside), *self.empty]:
            folder = path
            while folder and folder not in wanted:
                wanted.add(folder)
                folder = os.path.dirname(folder)
        return sorted(wanted)


def _is_entry(entry: object) -> bool:
    kind = _ENTRIES.get(tuple(map(type, entry))) if isinstance(entry, list) else None
    return (
        isinstance(entry, list) and kind is not None and entry[0] == kind and (kind != "f" or entry[3] >= 0)
    )


def _safe(path: str) -> bytes:
    parts = path.split("/")
    if ".." in parts or "" in parts or "." in parts or "\0" in path:
        raise ValueError(f"the manifest names a path outside the snapshot: {path!r}")
    return path.encode("utf-8", "surrogateescape")
