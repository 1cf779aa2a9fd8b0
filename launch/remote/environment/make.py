"""The command ``environment`` on a job's head: make what the job's ranks run in, once, and spread it.

An environment is made at its final path, which many of its files contain; only its manifest, written last,
makes it count. Its id is the hash of what was asked for and a number of its own: another head that makes the
same from a newer index makes another one, and no tree takes the place of one that a job uses.

A lock per request keeps two launches from making the same one. Every tool inherits the lock, so that tools
which outlive a killed build are waited for before their debris is removed.

The answer on stdout is made of lines as a push's (:mod:`launch.remote.store.tree_node`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import os
import time
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, BinaryIO

from launch.remote.base import messages, timing
from launch.remote.base.files import hold, replace_file
from launch.remote.base.records import EnvironmentRecord
from launch.remote.environment.build import Failed, Report
from launch.remote.environment.conda.conda_activation import activated
from launch.remote.environment.request import EnvironmentAnswer, EnvironmentCall, SendingCall
from launch.remote.environment.tree_manifest import manifest_of
from launch.remote.environment.usage import REQUEST_DIGITS, clear, clear_debris, keep_downloads
from launch.remote.store.locks import locked
from launch.remote.store.long_call import serve_call
from launch.remote.store.manifest import Manifest
from launch.remote.store.push_messages import PushHeader
from launch.remote.store.spread import distribute
from launch.remote.store.store import ENVIRONMENTS, Store
from launch.remote.store.tree_node import Call, Up, own_modules

__all__ = ["KINDS", "serve"]

KINDS = {"python": "python_env", "image": "image", "build": "image"}
"""By kind of request, the module of this room with its ``identity`` and ``make``."""
_OWN_BYTES = 4
_NO_SPACE = os.strerror(errno.ENOSPC)
"""What tools print where a disk is full."""
_LEAST_FREE = 1 << 30
"""Bytes that must be free before a build; how many it takes is known only at its end."""


def serve(stdin: BinaryIO) -> int:
    """Answer one request; return the exit status of the process."""
    return serve_call(stdin, timing.ENVIRONMENT_S, _try)


def _try(request: Any, up: Up) -> EnvironmentAnswer:
    try:
        return _send(request, up) if "sends" in request else _answer(request, up)
    except Failed as error:
        return {"t": "failed", "reason": error.reason, "lines": error.lines}


def _answer(request: EnvironmentCall, up: Up) -> EnvironmentAnswer:
    report = _reporter(up)
    started = time.monotonic()
    maker = importlib.import_module(f"launch.remote.environment.{KINDS[request['kind']]}")
    wanted = hashlib.sha256(maker.identity(request, report).encode()).hexdigest()[:REQUEST_DIGITS]
    store = Store(kind=ENVIRONMENTS)
    waits = partial(report, "waiting for another launch that makes the same environment")
    with keep_downloads(store), locked(store, wanted, waits) as lock, contextlib.ExitStack() as held:
        name = _held(store, wanted)
        is_built = not name
        if is_built and not request["may_make"]:
            return {"t": "absent", "wanted": wanted}
        if is_built:
            name = wanted + os.urandom(_OWN_BYTES).hex()
            pushed = Store()
            sent = (*request["find_links"], *request["channels"], request["context"])
            lacking = [one for one in dict.fromkeys(sent) if one and not _hold(pushed, one, held)]
            if lacking:
                return {"t": "lacks", "snapshots": lacking}
            clear_debris(store, wanted)
            _check_disk(store)
            try:
                maker.make(request, store.path(name), lock, report)
                report("recording the environment's files")
                manifest = Manifest(manifest_of(store.path(name)), name)
                facts = {"title": request["title"], "made": time.time()}
                replace_file(store.path(name) + ".made", json.dumps(facts).encode(), outlives_machine=False)
                replace_file(store.path(name) + ".manifest", manifest.text)
            except BaseException as error:
                clear(store, name)
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise _full(store) from error
                if isinstance(error, Failed) and any(_NO_SPACE in line for line in error.lines):
                    raise _full(store, error.lines) from error
                raise
        with os.fdopen(hold(store.path(name))):  # until the job can be submitted, the last used one stays
            if request["kind"] == "python":
                store.seal(name)
            store.touch(name)
            errors = _spread(store, name, request, up, report)
    record: EnvironmentRecord = {
        "kind": "python" if request["kind"] == "python" else "image",
        "id": name,
        "path": f"~/.ranklift/{ENVIRONMENTS}/{name}",
        "runtime": request["runtime"] or "bare",
        "title": request["title"],
    }
    return {
        "t": "made",
        "environment": record,
        "variables": activated(store.path(name)),
        "seconds": time.monotonic() - started,
        "built": is_built,
        "nodes": errors,
    }


def _send(request: SendingCall, up: Up) -> EnvironmentAnswer:
    """Send an environment that another node's head lacks."""
    store = Store(kind=ENVIRONMENTS)
    try:
        held = os.fdopen(hold(store.path(request["sends"])))
    except FileNotFoundError:
        raise Failed(f"{os.uname().nodename} does not hold environment {request['sends']} any more") from None
    with held:
        return {"t": "sent", "nodes": _distribute(store, request["sends"], request, up, _reporter(up))}


def _reporter(up: Up) -> Report:
    def report(text: str, done: int = 0, total: int = 0) -> None:
        up.send({"t": "progress", "text": text, "done": done, "total": total})

    return report


def _hold(pushed: Store, snapshot: str, held: contextlib.ExitStack) -> bool:
    """Keep a snapshot, which another launch's push could prune, until ``held`` ends; return whether it is
    here."""
    try:
        held.enter_context(os.fdopen(hold(pushed.path(snapshot))))
    except FileNotFoundError:
        return False
    return True


def _held(store: Store, wanted: str) -> str:
    """Return the environment made for a request, first one that this head has spread; "" without one."""
    found = [name for name in store.known() if name.startswith(wanted) and store.has(name)]
    spread = set(store.relied_on())
    return next((name for name in found if name in spread), found[0] if found else "")


def _check_disk(store: Store) -> None:
    found = os.statvfs(store.folder)
    if found.f_bavail * found.f_frsize < _LEAST_FREE:
        raise Failed(f"the disk of {os.uname().nodename} is nearly full; {_free(store)}")


def _full(store: Store, lines: Sequence[str] = ()) -> Failed:
    return Failed(f"the disk of {os.uname().nodename} is full; {_free(store)}", lines)


def _free(store: Store) -> str:
    found = os.statvfs(store.folder)
    free = messages.size(found.f_bavail * found.f_frsize)
    return (
        f"{free} are free in {store.folder}, and nothing of the environment was kept: "
        "`fab environment.prune` removes environments that no job uses, ranklift:osDiskGib makes larger disks"
    )


def _spread(
    store: Store, name: str, request: EnvironmentCall, up: Up, report: Report
) -> dict[str, str | None]:
    """Spread a whole environment to the nodes; return each one's error, None where it has all of it."""
    names = [node for node, _ in request["nodes"]]
    code, _ = own_modules()
    if set(names) <= {names[0], *store.confirmed(name, code)}:
        store.touch(name)
        store.confirm(name, code, ())
        return dict.fromkeys(names)
    return _distribute(store, name, request, up, report)


def _distribute(
    store: Store, name: str, request: EnvironmentCall | SendingCall, up: Up, report: Report
) -> dict[str, str | None]:
    """Send a whole environment to the nodes, whether they are known to hold it or not."""
    nodes = [(node, address) for node, address in request["nodes"]]
    head = nodes[0][0]
    code, source = own_modules()
    manifest = store.manifest(name)
    if manifest is None:
        raise Failed(f"a job changed the manifest of environment {name} on {head}: fab environment.rm {name}")
    more = len(nodes) - 1
    what = f"spreading the environment to {more} more node{'s' * (more > 1)}"
    report(what)
    header: PushHeader = {
        "op": "node",
        "limit": int(timing.ENVIRONMENT_S),
        "verify": False,
        "ssh": request["ssh"],
        "fanout": request["fanout"],
        "silence": request["silence"],
        "credential": request["credential"],
        "head": head,
        "nodes": nodes,
    }
    call = Call(header, zlib.compress(manifest.text, 1), code, source)
    return distribute(store, manifest, call, up, partial(report, what))
