"""A node's part in a staging: fetch the parts that the head orders, and serve what is here to the others.

The head's orders are lines on standard input, whose end ends this process; its parts stay for the next one.
The locks of the datasets are held until these are whole, so that two stagings of one dataset do not write the
same files; the second finds them whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import BinaryIO

from launch.remote.data import cache, faults
from launch.remote.data.faults import FetchError
from launch.remote.data.part_files import PartFiles
from launch.remote.data.parts import File
from launch.remote.data.peers import Peers, serve_parts
from launch.remote.data.requests import Web
from launch.remote.data.services import Service, service_of
from launch.remote.data.stage_request import Fetch, NodeHeader
from launch.remote.store.locks import locked
from launch.remote.store.tls import listen
from launch.remote.store.tree_node import Up

__all__ = ["main"]

_WORKERS = 64


def main(stdin: BinaryIO) -> None:
    """Take part in one staging; does not return."""
    header: NodeHeader = json.loads(stdin.readline())
    listed = json.loads(zlib.decompress(stdin.read(header["files"])))
    signal.alarm(int(header["limit"]))
    # Throughput counts here, not latency: a wakeup must not preempt what runs.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    up = Up(sys.stdout.buffer)
    threading.Thread(target=_end_with, args=(up,), daemon=True).start()
    orders = threading.Thread(target=_take_part, args=(header, listed, up, stdin), daemon=True)
    orders.start()
    orders.join()
    sys.stdout.flush()
    os._exit(0)  # threads may still wait for storage or for other nodes


def _end_with(up: Up) -> None:
    up.broken.wait()
    os._exit(1)


def _take_part(header: NodeHeader, listed: list[list[list[object]]], up: Up, stdin: BinaryIO) -> None:
    try:
        staging = _Staging(header, listed, up)
        with contextlib.ExitStack() as locks:
            staging.begin(locks)
            for line in stdin:
                staging.order(json.loads(line))
    except FetchError as error:
        up.send({"t": "unfit", "reason": error.reason})
        stdin.read()
    except (OSError, ValueError, EOFError) as error:
        up.send({"t": "unfit", "reason": str(error)})
        stdin.read()


class _Staging:
    """The datasets on this node; their parts are numbered one after the other."""

    def __init__(self, header: NodeHeader, listed: list[list[list[object]]], up: Up) -> None:
        self._header, self._up = header, up
        self._store = cache.open_cache(header["shared"])
        web = Web()
        self._sets: list[PartFiles] = []
        self._services: list[Service] = []
        self._firsts: list[int] = []
        self._locks: dict[str, contextlib.ExitStack] = {}
        self._lock = threading.Lock()
        first = 0
        for dataset, files in zip(header["datasets"], listed):  # noqa: B905  (strict came with Python 3.10)
            service = service_of(dataset["source"], dataset["query"], web)
            service.is_cut = dataset["is_cut"]
            made = PartFiles(
                self._store,
                dataset["id"],
                dataset["source"]["url"],
                [File(*file) for file in files],  # type: ignore[arg-type]
                is_cut=service.is_cut,
            )
            self._services.append(service)
            self._sets.append(made)
            self._firsts.append(first)
            first += len(made.parts)
        self._count = first
        self._peers = Peers(header["credential"])
        self._pool = ThreadPoolExecutor(_WORKERS)

    def begin(self, locks: contextlib.ExitStack) -> None:
        """Report what is here, once nobody else stages the same data here. Raise :class:`FetchError`."""
        for made in sorted(self._sets, key=lambda one: one.name):
            lock = locks.enter_context(contextlib.ExitStack())
            lock.enter_context(locked(self._store, made.name, partial(self._up.send, {"t": "waits"})))
            self._locks[made.name] = lock
            made.find()
            self._store.owe(made.name, self._header["head"])
        sizes = {made.name: made.missing for made in self._sets}
        held = sum(file.size for made in self._sets for file in made.files) - sum(sizes.values())
        kept, bound = self._header["kept"], self._header["bound"]
        removed = cache.make_room(self._store, sizes, self._header["head"], kept, bound, held)
        for made in self._sets:
            if not made.is_whole:
                made.prepare()
        listener = listen(self._header["address"])
        port = listener.getsockname()[1]
        serve = threading.Thread(
            target=serve_parts, args=(listener, self._header["credential"], self._read), daemon=True
        )
        serve.start()
        have = [
            (first + number, digest)
            for first, made in zip(self._firsts, self._sets)  # noqa: B905
            for number, digest in made.digests.items()
        ]
        self._up.send({"t": "ready", "port": port, "have": have, "removed": removed})
        for place, made in enumerate(self._sets):
            if len(made.digests) == len(made.parts):
                self._finish(place)

    def order(self, fetch: Fetch) -> None:
        """Start to fetch a part; its end is reported. Raise :class:`FetchError`."""
        place, number = self._place(fetch["part"])
        self._sets[place].void(number)
        self._pool.submit(self._fetch, fetch)

    def _place(self, part: int) -> tuple[int, int]:
        place = bisect_right(self._firsts, part) - 1
        return place, part - self._firsts[place]

    def _read(self, part: int) -> tuple[int, Iterable[bytes]] | None:
        if not 0 <= part < self._count:
            return None
        place, number = self._place(part)
        made = self._sets[place]
        if number not in made.digests:
            return None
        return made.parts[number].size, made.read(number)

    def _fetch(self, fetch: Fetch) -> None:
        part = fetch["part"]
        try:
            place = self._bring(fetch)
        except FetchError as error:
            if error.fault == faults.DISK:
                self._up.send({"t": "unfit", "reason": error.reason})
            else:
                self._up.send(
                    {
                        "t": "missed",
                        "part": part,
                        "fault": error.fault,
                        "reason": error.reason,
                        "wait": error.wait,
                    }
                )
            return
        except Exception as error:  # noqa: BLE001  (a thread's own end would be a part that never comes)
            self._up.send({"t": "unfit", "reason": f"{type(error).__name__}: {error}"})
            return
        if place is not None:
            self._finish(place)

    def _bring(self, fetch: Fetch) -> int | None:
        """Fetch a part and report it; return the place of the dataset that is complete by it, if one is."""
        place, number = self._place(fetch["part"])
        made = self._sets[place]
        writer = made.writer(number)
        try:
            if fetch["host"]:
                address = (fetch["host"], fetch["port"])
                self._peers.fetch(address, fetch["part"], made.parts[number].size, writer.write)
                if writer.digest() != fetch["digest"]:
                    raise FetchError(faults.WRONG, f"{fetch['host']} sent another content of part {number}")
            else:
                for extent in made.parts[number].extents:
                    file = made.files[extent.file]
                    self._services[place].read(file, extent.start, extent.size, writer.write)
        finally:
            writer.close()
        digest = writer.digest()
        with self._lock:  # so that every part is reported before the whole
            is_last = made.keep(number, digest)
            self._up.send({"t": "took", "part": fetch["part"], "digest": digest})
        return place if is_last else None

    def _finish(self, place: int) -> None:
        made = self._sets[place]
        try:
            if not made.is_whole:
                made.finish()
            self._store.touch(made.name)
        except FetchError as error:
            self._up.send({"t": "unfit", "reason": error.reason})
            return
        self._locks[made.name].close()
        if all(one.is_whole for one in self._sets):
            self._up.send({"t": "whole"})
