"""The lock of one entry of a node's store, held by who makes it; others wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from launch.remote.node.slots import ASIDE, open_lock
from launch.remote.store.store import Store, try_flock

__all__ = ["locked", "locks_of", "try_lock"]

_AGAIN_S = 0.2
_PREFIX = ".lock-"


def _open_lock(store: Store, name: str) -> int:
    """Return a descriptor of the file that who makes an environment locks."""
    return open_lock(os.path.join(store.folder, _PREFIX + name))


def locks_of(store: Store) -> list[str]:
    """Return the entries that have a lock, held or not."""
    return [
        entry[len(_PREFIX) :]
        for entry in os.listdir(store.folder)
        if entry.startswith(_PREFIX) and ASIDE not in entry
    ]


@contextlib.contextmanager
def try_lock(store: Store, name: str) -> Iterator[bool]:
    """Hold an entry's lock unless another process does; yield whether this one holds it now."""
    with try_flock(_open_lock(store, name)) as is_held:
        yield is_held


@contextlib.contextmanager
def locked(store: Store, name: str, on_wait: Callable[[], object]) -> Iterator[int]:
    """Hold an entry's lock, whose descriptor is returned; call ``on_wait`` once if another holds it."""
    lock = _open_lock(store, name)
    try:
        is_reported = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_reported:
                    on_wait()
                is_reported = True
                time.sleep(_AGAIN_S)
        yield lock
    finally:
        os.close(lock)
