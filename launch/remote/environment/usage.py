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
from launch.remote.base.files import read_regular
from launch.remote.base.processes import IMAGES
from launch.remote.environment.request import EnvironmentListing, EnvironmentRemoval, StoredEnvironment
from launch.remote.store.locks import locks_of, try_lock
from launch.remote.store.removal import removal_argv, remove_file, unfinished_jobs
from launch.remote.store.store import ENVIRONMENTS, Store

__all__ = [
    "REQUEST_DIGITS",
    "clear",
    "clear_debris",
    "keep_downloads",
    "list_environments",
    "remove_environments",
]

_MANIFEST = ".manifest"
REQUEST_DIGITS = 16
"""Digits of an environment's id that stand for its request, which has the lock."""


def list_environments() -> EnvironmentListing:
    """Return the environments of this node that were whole once."""
    store = Store(kind=ENVIRONMENTS)
    jobs = unfinished_jobs(store.root)
    entries = sorted(os.listdir(store.folder))
    names = [entry[: -len(_MANIFEST)] for entry in entries if entry.endswith(_MANIFEST) and entry[0] != "."]
    listed: list[StoredEnvironment] = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if os.path.isdir(store.path(name)):
                listed.append(_describe(store, name, jobs))
    return {"environments": listed}


def _describe(store: Store, name: str, jobs: dict[str, str]) -> StoredEnvironment:
    manifest, title = store.manifest(name), _title(store.path(name) + ".made")
    return {
        "id": name,
        "title": title or "",
        "is_damaged": manifest is None or title is None,
        "bytes": sum(size for _, _, size, _ in manifest.files) if manifest is not None else 0,
        "used": os.lstat(store.path(name) + _MANIFEST).st_mtime,
        "jobs": [job for job, plan in jobs.items() if name in plan],
        "is_held": store.is_held(name),
    }


def _title(path: str) -> str | None:
    """Return what an environment is made of; "" where another node made it, None for a damaged record."""
    try:
        title = json.loads(read_regular(path))["title"]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return title if isinstance(title, str) else None


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
    for suffix in (_MANIFEST, ".made"):
        remove_file(store.path(name) + suffix)
    if os.path.lexists(store.path(name)):
        subprocess.run(removal_argv([store.path(name)]), check=False, capture_output=True)
