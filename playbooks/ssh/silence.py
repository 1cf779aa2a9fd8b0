"""Nodes that do not answer: named after two seconds, and remembered for a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.nodeset import fold
from launch.remote.base import timing
from playbooks.ssh.fanout import in_background

__all__ = ["KEPT_S", "NAMED_S", "SHORT_S", "Silence"]

NAMED_S = 2.0
"""Seconds without an answer until a node is named."""
KEPT_S = 60.0
"""Seconds for which a node that gave no answer is remembered, over commands."""
SHORT_S = 5.0
"""Limit of the next connection to such a node."""


class Silence:
    """Which nodes of a stack are being connected, and which gave no answer a moment ago.

    ``tell`` gets one line for all nodes that let a command wait; ``folder`` has a file for each node to
    remember.
    """

    def __init__(self, folder: Path, tell: Callable[[str], object]) -> None:
        self._folder, self._tell = folder, tell
        self._since: dict[str, float] = {}
        self._named: set[str] = set()
        self._is_watched = False
        self._lock = threading.Lock()

    @contextmanager
    def connecting(self, node: str) -> Iterator[float]:
        """While the block connects to the node, name it if that takes long; give the limit in seconds.

        A block that fails and took that long has the node remembered, one that succeeds has it forgotten.
        """
        mark, began = self._folder / node, time.monotonic()
        limit = SHORT_S if _is_fresh(mark) else float(timing.OPERATOR_CONNECT_S)
        with self._lock:
            self._since[node] = began
            starts, self._is_watched = not self._is_watched, True
        if starts:
            in_background(self._watch)
        try:
            yield limit
        except Exception:
            if time.monotonic() - began >= limit:
                with suppress(OSError):
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    mark.touch()
            raise
        else:
            with suppress(OSError):
                mark.unlink()
        finally:
            with self._lock:
                self._since.pop(node, None)

    def _watch(self) -> None:
        while True:
            time.sleep(NAMED_S / 4)
            with self._lock:
                if not self._since:
                    self._is_watched = False
                    return
                before = time.monotonic() - NAMED_S
                late = [node for node, began in self._since.items() if began < before]
                fresh = [node for node in late if node not in self._named]
                self._named.update(fresh)
            if fresh:
                self._tell(f"{fold(fresh)}: no answer yet, waiting for up to {timing.OPERATOR_CONNECT_S} s")


def _is_fresh(mark: Path) -> bool:
    try:
        return 0 <= time.time() - mark.stat().st_mtime < KEPT_S
    except OSError:
        return False
