"""The spread of one snapshot from the head to the other nodes, along a tree.

Nodes are started and watched over the cluster's own ssh; the contents go beside it
(:mod:`launch.remote.store.tls`). Every hop unpacks the stream while it forwards it to its children, so that
the last node has the code shortly after the head has sent it. Before any content flows, the whole tree
reports missing blobs; the stream holds these and nothing else. A node that cannot be reached is reported, and
its parent serves its children instead; nodes below a connection that breaks later are served in another pass.

Every hop has time limits: a silent child is given up, and no process outlives the push's own limit.

The operator's calls (see ``launch/code/push.py``) are ``check``, ``offer`` and ``put``; nodes call each other
with ``node``. All arrive on standard input of :data:`~launch.remote.store.tree_node.BOOT`, which unpacks
these modules first: a node needs nothing but ``python3`` and sshd.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from launch.remote.base.names import runs
from launch.remote.store.assemble import Builder, Share
from launch.remote.store.manifest import Manifest
from launch.remote.store.push_messages import PushHeader
from launch.remote.store.store import ENVIRONMENTS, Store
from launch.remote.store.tls import CHUNK, Line, accept, listen
from launch.remote.store.tree_node import Branches, Call, Up, make_trees, spans

__all__ = ["CHUNK", "PASSES", "distribute", "main", "put", "relay"]

PASSES = 3
"""Passes of the head: nodes below a broken connection get another parent in the next pass."""
_SHOW_S = 1.0


def relay(stdin: BinaryIO, call: Call, up: Up) -> None:
    """Make the snapshot on a node other than the head while serving the nodes below."""
    store = Store(kind=call.header["store"])
    manifest = Manifest(zlib.decompress(call.packed), call.header["id"])
    branches = Branches(call.header["trees"], call, up)
    share = Share(store, manifest, verify=call.header["verify"], sealed=call.header["sealed"])
    threading.Thread(target=_undo, args=(up, share, branches), daemon=True).start()
    try:
        if store.has(manifest.id):
            store.owe(manifest.id, call.header["head"])  # before another head drops it here
        own = share.start()
        listener = listen(call.header["address"])
        lacking = sorted(branches.lacking().union(own))
        up.send({"t": "lack", "blobs": runs(lacking), "port": listener.getsockname()[1]})
        announced = stdin.readline()
        if not announced:
            raise EOFError("the push ended before it began")
        order = list(spans(json.loads(announced)))
        share.expect(order)
        size = sum(manifest.blobs[number][1] for number in order)
        if order:
            line = accept(listener, call.header["credential"])
        branches.announce(order)
        if order:
            for piece in _pieces(line, size):
                branches.send(piece)
                share.feed(piece)
        share.finish()
        store.owe(manifest.id, call.header["head"])
        up.send({"t": "told", "node": call.header["name"], "error": share.error})
        branches.finish()
    finally:
        share.abort()
    store.prune(call.header["drop"], call.header["head"], call.header["kept"])


def _pieces(line: Line, left: int) -> Iterator[memoryview]:
    """Yield ``left`` bytes of a line in pieces of :data:`CHUNK`, each valid until the next."""
    room = memoryview(bytearray(CHUNK))
    while left:
        piece = room[: min(CHUNK, left)]
        line.recv_into(piece)
        left -= len(piece)
        yield piece


def _undo(up: Up, share: Share, branches: Branches) -> None:
    up.broken.wait()
    branches.stop()
    share.abort()
    os._exit(1)


def put(stdin: BinaryIO, call: Call, up: Up) -> None:
    """Take the head's missing contents from the operator, then serve the other nodes."""
    store, manifest, header = Store(), _manifest(call), call.header
    verify = header["verify"]
    if not (store.intact(manifest) if verify else store.holds(manifest)):
        builder = Builder(store, manifest, check=True, verify=verify)
        try:
            short = set(builder.start()).difference(header["sent"])
            if short:
                raise ValueError(f"{len(short)} file contents are no longer on the head; push again")
            builder.expect(header["sent"])
            for data in _inflated(stdin, header["zlib"]):
                builder.feed(data)
            builder.finish()
        finally:
            builder.abort()
    else:
        while stdin.read(CHUNK):  # another push was faster; the operator still sends everything
            pass
    distribute(store, manifest, call, up)


def distribute(
    store: Store,
    manifest: Manifest,
    call: Call,
    up: Up,
    show: Callable[[int, int], object] = lambda *_: None,
) -> dict[str, str | None]:
    """Spread what the head holds to the other nodes; return each node's error, None where it holds all of it.

    Remember the nodes that do, and remove what the head does not need any more. ``show`` is called about once
    a second with the bytes sent and all bytes to send.
    """
    header = call.header
    sealed = store.kind == ENVIRONMENTS and store.is_sealed(manifest.id)
    header.update({"store": store.kind, "id": manifest.id, "sealed": sealed})
    store.touch(manifest.id)
    header["drop"] = store.superfluous(manifest.id)
    header["kept"] = sorted({manifest.id, *store.relied_on()}.difference(header["drop"]))
    todo = [(name, address) for name, address in header["nodes"] if name != header["head"]]
    errors: dict[str, str | None] = {header["head"]: None}
    up.send({"t": "told", "node": header["head"], "error": None})
    for _ in range(PASSES):
        todo = [node for node in todo if node[0] not in errors]
        if todo:
            errors.update(_one_pass(store, manifest, todo, call, up, show))
    for name, _ in todo:
        if name not in errors:
            errors[name] = f"the connection to it broke {PASSES} times"
            up.send({"t": "told", "node": name, "error": errors[name]})
    store.confirm(manifest.id, call.boot[0], [name for name, error in errors.items() if error is None])
    store.forget(header["drop"])
    store.prune(header["drop"], header["head"], header["kept"])
    return errors


def _one_pass(
    store: Store,
    manifest: Manifest,
    todo: Sequence[tuple[str, str]],
    call: Call,
    up: Up,
    show: Callable[[int, int], object],
) -> dict[str, str | None]:
    branches = Branches(make_trees(todo, call.header["fanout"]), call, up)
    try:
        order = sorted(branches.lacking())
        branches.announce(order)
        done, total, shown = 0, sum(manifest.blobs[number][1] for number in order), time.monotonic()
        for data in store.contents(manifest, order):
            branches.send(data)
            done += len(data)
            if time.monotonic() - shown > _SHOW_S:
                shown = time.monotonic()
                show(done, total)
        branches.finish()
    except BaseException:
        branches.stop()
        raise
    return branches.errors


def _manifest(call: Call) -> Manifest:
    return Manifest(zlib.decompress(call.packed))


def _inflated(stdin: BinaryIO, packed: bool) -> Iterator[bytes]:
    machine = zlib.decompressobj()
    for data in iter(lambda: stdin.read1(CHUNK), b""):  # type: ignore[attr-defined]
        yield machine.decompress(data) if packed else data
    if packed:
        yield machine.flush()


def main(stdin: BinaryIO, name: str, source: bytes) -> None:
    """Read one call and execute it; ``name`` and ``source`` are these modules, for the children."""
    header: PushHeader = json.loads(stdin.readline())
    signal.alarm(int(header["limit"]))
    # Throughput counts here, not latency: a wakeup must not preempt what runs.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    up = Up(sys.stdout.buffer)
    store = Store()
    if header["op"] == "check":
        present = store.manifest(header["id"]) is not None
        confirmed = store.confirmed(header["id"], name) if present else []
        up.send({"t": "check", "present": present, "confirmed": confirmed})
        if present:
            store.touch(header["id"])
        return
    call = Call(header, stdin.read(header["manifest"]), name, source)
    try:
        if header["op"] == "offer":
            up.send({"t": "lack", "blobs": store.lacking(_manifest(call))})
        elif header["op"] == "put":
            put(stdin, call, up)
        else:
            relay(stdin, call, up)
    except (OSError, ValueError, EOFError) as error:
        sys.stderr.write(f"{error}\n")
        sys.stdout.flush()
        os._exit(1)  # threads may still wait for children that are not needed any more
