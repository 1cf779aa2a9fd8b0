"""The lock of one entry of a node's store, held by who makes it; others wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from launch.remote.store.store import Store

__all__ = ["locked", "open_lock"]

_AGAIN_S = 0.2


def open_lock(store: Store, name: str) -> int:
    """Return a descriptor of the file that who makes an environment locks."""
    return os.open(os.path.join(store.folder, f".lock-{name}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def locked(store: Store, name: str, on_wait: Callable[[], object]) -> Iterator[int]:
    """Hold an entry's lock, whose descriptor is returned; call ``on_wait`` once if another holds it."""
    lock = open_lock(store, name)
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
