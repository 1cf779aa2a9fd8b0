"""The environments that a node holds, the jobs that use them, and their removal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Sequence

from launch.remote.base import timing
from launch.remote.environment.request import EnvironmentListing, RemovalAnswer, StoredEnvironment
from launch.remote.store.locks import open_lock
from launch.remote.store.store import ENVIRONMENTS, Store, unfinished_jobs

__all__ = ["clear", "clear_debris", "list_environments", "remove_environments"]


def list_environments() -> EnvironmentListing:
    """Return the whole environments of this node."""
    store = Store(kind=ENVIRONMENTS)
    jobs = unfinished_jobs(store.root)
    return {"environments": [_describe(store, name, jobs) for name in store.known() if store.has(name)]}


def _describe(store: Store, name: str, jobs: dict[str, str]) -> StoredEnvironment:
    size = sum(entry[3] for entry in json.loads(store.text(name)) if entry[0] == "f")
    try:
        with open(store.path(name) + ".made", encoding="utf-8") as stream:
            facts = json.load(stream)
    except (OSError, ValueError):
        facts = {}
    return {
        "id": name,
        "title": facts.get("title", ""),
        "bytes": size,
        "used": os.stat(store.path(name) + ".manifest").st_mtime,
        "jobs": [job for job, plan in jobs.items() if name in plan],
    }


def remove_environments(names: Sequence[str], *, cache: bool) -> RemovalAnswer:
    """Remove environments that no unfinished job of this head uses; with ``cache`` also all downloads."""
    store = Store(kind=ENVIRONMENTS)
    jobs = unfinished_jobs(store.root)
    kept = {name: [job for job, plan in jobs.items() if name in plan] for name in names}
    for name in names:
        if not kept[name]:
            clear(store, name)
            for entry in os.listdir(store.folder):
                if entry.startswith(f"{name}.of-"):
                    os.unlink(os.path.join(store.folder, entry))
    if cache:
        shutil.rmtree(os.path.join(store.root, "cache"), ignore_errors=True)
        clear_debris(store)
    _unload(store)
    return {"kept": {name: found for name, found in kept.items() if found}}


def clear_debris(store: Store) -> None:
    """Remove what killed builds have left; where one of their tools still works, it holds the lock."""
    for name in os.listdir(store.folder):
        if "." in name or store.has(name):
            continue
        lock = open_lock(store, name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not store.has(name):  # made in between
                clear(store, name)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _unload(store: Store) -> None:
    """Remove the images that Docker has loaded from environments that are gone; it keeps those in use."""
    images = _docker("image", "ls", "--format", "{{.Repository}}", "--filter", "reference=ranklift/*")
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
    for suffix in (".manifest", ".stamps", ".made"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(store.path(name) + suffix)
    if os.path.lexists(store.path(name)):
        # An unpacked image may have folders that its own modes protect.
        subprocess.run(["chmod", "-R", "u+rwX", store.path(name)], check=False, capture_output=True)
        shutil.rmtree(store.path(name), ignore_errors=True)
