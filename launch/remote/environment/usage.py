"""The environments that a node holds, the jobs that use them, and their removal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial

from launch.remote.base import timing
from launch.remote.base.processes import IMAGES
from launch.remote.environment.request import EnvironmentListing, EnvironmentRemoval, StoredEnvironment
from launch.remote.store.locks import locks_of, try_lock
from launch.remote.store.manifest import Manifest
from launch.remote.store.removal import removal_argv, unfinished_jobs
from launch.remote.store.store import ENVIRONMENTS, Store

__all__ = [
    "REQUEST_DIGITS",
    "clear",
    "clear_debris",
    "keep_downloads",
    "list_environments",
    "remove_environments",
]

REQUEST_DIGITS = 16
"""Digits of an environment's id that stand for its request, which has the lock."""


def list_environments() -> EnvironmentListing:
    """Return the whole environments of this node."""
    store = Store(kind=ENVIRONMENTS)
    jobs = unfinished_jobs(store.root)
    manifests = [store.manifest(name) for name in store.known()]
    return {"environments": [_describe(store, one, jobs) for one in manifests if one is not None]}


def _describe(store: Store, manifest: Manifest, jobs: dict[str, str]) -> StoredEnvironment:
    name = manifest.id
    try:
        with open(store.path(name) + ".made", encoding="utf-8") as stream:
            facts = json.load(stream)
    except (OSError, ValueError):
        facts = {}
    return {
        "id": name,
        "title": facts.get("title", ""),
        "bytes": sum(size for _, _, size, _ in manifest.files),
        "used": os.stat(store.path(name) + ".manifest").st_mtime,
        "jobs": [job for job, plan in jobs.items() if name in plan],
        "is_held": store.is_held(name),
    }


def remove_environments(names: Sequence[str], *, cache: bool) -> EnvironmentRemoval:
    """Remove environments that nothing on this node uses; with ``cache`` also all downloads."""
    store = Store(kind=ENVIRONMENTS)
    jobs = unfinished_jobs(store.root)
    kept = {}
    for name in names:
        users = [job for job, plan in jobs.items() if name in plan]
        if users or not _remove(store, name):
            kept[name] = users
    is_cache_kept = cache and not _remove_downloads(store)
    if cache:
        clear_debris(store)
    trash = store.trash()
    if trash:
        subprocess.run(removal_argv(trash), check=False, capture_output=True)
    _unload(store)
    return {"kept": kept, "is_cache_kept": is_cache_kept}


def _remove(store: Store, name: str) -> bool:
    """Remove an environment unless a launch makes or sends it, or ranks run in it; return whether it is gone.

    Whatever comes of it: this head asks the nodes again before it counts on them.
    """
    with try_lock(store, name[:REQUEST_DIGITS]) as is_held:
        if not is_held:
            return False
        store.forget([name])
        if store.has(name) and not store.discard(name):
            return False
        clear(store, name)
        for entry in os.listdir(store.folder):
            if entry.startswith(f"{name}.of-"):
                os.unlink(os.path.join(store.folder, entry))
        return True


@contextlib.contextmanager
def keep_downloads(store: Store) -> Iterator[None]:
    """Keep what builds have downloaded, for one that begins."""
    folder = os.open(store.folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)


def _remove_downloads(store: Store) -> bool:
    """Remove what builds have downloaded, unless one is under way; return whether it is gone."""
    folder = os.open(store.folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A tool that outlives its build holds the request's lock alone.
        is_free = all(map(partial(_is_unlocked, store), locks_of(store)))
        if is_free:
            shutil.rmtree(os.path.join(store.root, "cache"), ignore_errors=True)
    except BlockingIOError:
        is_free = False
    finally:
        os.close(folder)
    return is_free


def _is_unlocked(store: Store, name: str) -> bool:
    with try_lock(store, name) as is_held:
        return is_held


def clear_debris(store: Store, own: str = "") -> None:
    """Remove what killed builds have left; where one of their tools still works, it holds the lock.

    The caller holds the lock of request ``own``.
    """
    for name in os.listdir(store.folder):
        if "." in name or store.has(name):
            continue
        if own and name.startswith(own):
            clear(store, name)
            continue
        with try_lock(store, name[:REQUEST_DIGITS]) as is_held:
            if is_held and not store.has(name):  # made in between
                clear(store, name)


def _unload(store: Store) -> None:
    """Remove the images that Docker has loaded from environments that are gone; it keeps those in use."""
    images = _docker("image", "ls", "--format", "{{.Repository}}", "--filter", f"reference={IMAGES}/*")
    for image in images.split():
        if not os.path.isdir(store.path(image.partition("/")[2])):
            _docker("image", "rm", image)


def _docker(*words: str) -> str:
    """Return what Docker prints; nothing where there is no Docker."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["docker", *words], capture_output=True, check=False, timeout=timing.CONTAINER_S
        )
        return done.stdout.decode("utf-8", "replace")
    return ""


def clear(store: Store, name: str) -> None:
    """Remove what there is of an environment: the manifest first, without which the rest does not count."""
    store.forget([name])
    for suffix in (".manifest", ".made"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(store.path(name) + suffix)
    if os.path.lexists(store.path(name)):
        subprocess.run(removal_argv([store.path(name)]), check=False, capture_output=True)
