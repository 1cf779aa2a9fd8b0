"""An image from its registry, in the form that a runtime starts ranks from.

============  ==============  ==========================================================
runtime       form            made of the registry's layers
============  ==============  ==========================================================
docker        ``image.tar``   an archive for ``docker load``; layers stay compressed
enroot        ``image.sqsh``  unpacked, as a squashfs with the files that enroot expects
charliecloud  ``root/``       unpacked
============  ==============  ==========================================================

One client of registries for all runtimes: credentials stay in memory, contents are verified by digest.

The layers of the last image stay on the head as hard links, for a launch after one that was ended, and for
the next image, which often differs in its uppermost layers alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launch.remote.base.files import replace_file
from launch.remote.base.messages import size
from launch.remote.base.processes import IMAGES
from launch.remote.environment import build
from launch.remote.environment.azure_registry import identity_secret
from launch.remote.environment.build import Report
from launch.remote.environment.download.web_client import load_object
from launch.remote.environment.image_layers import Root
from launch.remote.environment.image_reference import ImageError, Reference
from launch.remote.environment.image_registry import Blob, Registry, architecture
from launch.remote.environment.request import FORMS
from launch.remote.store.store import Store
from launch.remote.store.stored_file import digest_of

if TYPE_CHECKING:
    from launch.remote.environment.request import EnvironmentRequest

__all__ = [
    "Pulled",
    "open_registry",
    "pull",
    "tag_of",
    "unpack",
    "write_archive",
    "write_config",
    "write_form",
]

_CONFIG = "config.json"
_KEPT = os.path.join("cache", "layers")
"""Folder of layers, below the node's own: `fab environment.prune` removes it with all that was downloaded."""
_REPORT_S = 1.0
_RC = b'#!/bin/sh\nexec "$@"\n'
"""enroot's command script: it gets the rank's command line (enroot's doc/image-format.md)."""


@dataclass(frozen=True)
class Pulled:
    """An image on this node's disk."""

    reference: Reference
    config: bytes
    config_digest: str
    layers: tuple[str, ...]
    """Paths, the lowest first; the same one may be there twice."""


def tag_of(folder: str) -> str:
    """Return the name that Docker knows the image of an environment's folder by.

    >>> tag_of("/home/azureuser/.ranklift/environments/0123456789abcdef")
    'ranklift/0123456789abcdef'
    """
    return f"{IMAGES}/{os.path.basename(folder)}"


def open_registry(request: EnvironmentRequest, reference: Reference) -> Registry:
    """Return the client of an image's registry, with the request's credential, else the nodes' own one.

    Raise :class:`ImageError`.
    """
    given = request["registries"].get(reference.registry)
    return Registry(reference, given or identity_secret(reference.registry))


def pull(registry: Registry, folder: str, report: Report) -> Pulled:
    """Download the image for this node's architecture to ``folder``. Raise :class:`ImageError` or OSError."""
    reference = registry.reference
    manifest = registry.resolve(architecture())
    config = registry.config(manifest)
    _check_config(reference, config)
    paths = [os.path.join(folder, _hex(layer)) for layer in manifest.layers]
    wanted = dict(zip(paths, manifest.layers))  # noqa: B905  (Python 3.8 has no strict)
    kept = os.path.join(Store().root, _KEPT)
    lacking = _take_kept(kept, wanted, report)
    total = sum(layer.bytes for layer in wanted.values())
    missing = sum(layer.bytes for layer in lacking.values())
    free = shutil.disk_usage(folder).free
    if free < missing + total:  # what is downloaded, and what is made of all layers
        raise ImageError(
            f"{reference} has {size(total)} of compressed layers, and needs at least {size(missing + total)} "
            f"more: the disk of {folder} on {os.uname().nodename} has {size(free)} free; remove environments "
            "that are not needed (`fab environment.prune`), or take a size with a larger disk"
        )

    def keep(path: str, blob: Blob) -> None:
        with contextlib.suppress(OSError):  # another launch has kept it, or it is on another file system
            os.link(path, os.path.join(kept, _hex(blob)))

    registry.fetch(lacking, _Progress(missing, report), keep)
    return Pulled(reference, config, _hex(manifest.config), tuple(paths))


def _hex(blob: Blob) -> str:
    return blob.digest[len("sha256:") :]


def _take_kept(kept: str, wanted: Mapping[str, Blob], report: Report) -> dict[str, Blob]:
    """Link the kept layers that are wanted to their paths, and remove the others; return what is lacking."""
    os.makedirs(kept, exist_ok=True)
    names = {_hex(layer) for layer in wanted.values()}
    there = set(os.listdir(kept))
    for name in there - names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(kept, name))
    if there & names:
        report("checking layers that this node has downloaded before")

    def take(path: str, blob: Blob) -> bool:
        source = os.path.join(kept, _hex(blob))
        if digest_of(os.fsencode(source), blob.bytes) == _hex(blob):
            with contextlib.suppress(OSError):  # gone in between, or on another file system
                os.link(source, path)
                return True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(source)
        return False

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        taken = dict(zip(wanted, pool.map(take, wanted, wanted.values())))  # noqa: B905  (Python 3.8)
    return {path: blob for path, blob in wanted.items() if not taken[path]}


def _check_config(reference: Reference, config: bytes) -> None:
    """Refuse a configuration that the nodes' runtimes cannot read, and an image of another machine: only in a
    list of several was the right one chosen."""
    try:
        document = load_object(config)
    except ValueError as error:
        raise ImageError(f"{reference}: its configuration cannot be read: {str(error)[:80]}") from None
    names = document.get("os"), document.get("architecture")
    if not all(isinstance(name, str) for name in names):
        raise ImageError(f"{reference}: its configuration does not name os and architecture")
    settings = document.get("config") or {}
    env = settings.get("Env") or [] if isinstance(settings, dict) else None
    if not isinstance(env, list) or not all(isinstance(one, str) and "\0" not in one for one in env):
        raise ImageError(f"{reference}: the variables in its configuration are not texts")
    found = "/".join(str(name)[:20] for name in names)
    if found != f"linux/{architecture()}":
        raise ImageError(
            f"{reference} is for {found}, and the nodes are linux/{architecture()}: build it with "
            f"--platform linux/{architecture()}"
        )


def write_form(runtime: str, pulled: Pulled, folder: str, lock: int, report: Report) -> None:
    """Write the runtime's form to ``folder``. Raise :class:`~launch.remote.environment.build.Failed`."""
    form = os.path.join(folder, FORMS[runtime])
    if runtime == "docker":
        report("writing the image's archive")
        write_archive(pulled, f"{tag_of(folder)}:latest", form)
        return
    root = unpack(pulled, os.path.join(folder, "root"), report)
    if runtime == "enroot":
        _write_squashfs(root, form, lock, report)


def unpack(pulled: Pulled, path: str, report: Report) -> Root:
    """Make and return the image's root folder. Raise :class:`ImageError` or OSError."""
    root = Root(path)
    for number, layer in enumerate(pulled.layers, 1):
        report(f"unpacking layer {number} of {len(pulled.layers)}")
        root.apply(layer)
    return root


def _write_squashfs(root: Root, path: str, lock: int, report: Report) -> None:
    """Write the root folder as enroot's image, and remove the folder."""
    etc = root.folder("etc")
    for name, data, mode in (("rc", _RC, 0o755), ("fstab", b"", 0o644), ("environment", b"", 0o644)):
        replace_file(os.path.join(etc, name), data, mode=mode)
    # Data uncompressed and lzo for the rest, as `enroot import` does: gzip would take minutes.
    argv = ["mksquashfs", root.path, path, "-all-root", "-no-progress", "-noappend", "-comp", "lzo", "-noD"]
    build.run("writing the image's squashfs", argv, os.environ, report, keep_open=[lock])
    shutil.rmtree(root.path)


def write_archive(pulled: Pulled, tag: str, path: str) -> None:
    """Write what ``docker load`` reads, which insists on a whole NAME:TAG and decompresses layers itself.

    Raise OSError.
    """
    config = pulled.config_digest + ".json"
    names = [f"{os.path.basename(layer)}/layer.tar" for layer in pulled.layers]
    index = json.dumps([{"Config": config, "RepoTags": [tag], "Layers": names}]).encode()
    with tarfile.open(path, "w") as archive:
        for name, data in (("manifest.json", index), (config, pulled.config)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for layer, name in dict(zip(pulled.layers, names)).items():  # noqa: B905  (Python 3.8 has no strict)
            archive.add(layer, name)


def write_config(folder: str, config: bytes) -> None:
    """Write the image's configuration document, which the runtime reads. Raise OSError."""
    replace_file(os.path.join(folder, _CONFIG), config)


class _Progress:
    """The bytes received by all threads, reported about once a second."""

    def __init__(self, total: int, report: Report) -> None:
        self._total, self._report = total, report
        self._done, self._next = 0, 0.0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now >= self._next or self._done == self._total:
                self._next = now + _REPORT_S
                self._report("pulling the image", self._done, self._total)
