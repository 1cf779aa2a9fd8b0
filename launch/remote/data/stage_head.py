"""The command ``stage`` on a job's head: bring the data of a job to all of its nodes.

The head asks storage which files there are; these, with the address, are the data's id. It then starts a
process on every node and hands out the parts (:mod:`launch.remote.data.assign`). Where every node is known to
hold the data already, no node is asked. A lock per dataset lets two jobs wait for one staging.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import time
import zlib
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

from launch.remote.base import timing
from launch.remote.base.messages import size as size_text
from launch.remote.data import cache, faults
from launch.remote.data.assign import Assigner
from launch.remote.data.faults import FetchError
from launch.remote.data.members import Member
from launch.remote.data.parts import File, check_names, cut, dataset_id
from launch.remote.data.requests import Web
from launch.remote.data.services import service_of
from launch.remote.data.stage_request import (
    DatasetHeader,
    NodeHeader,
    NodeMessage,
    StageAnswer,
    StageCall,
    StagedData,
    StageProgress,
    StageSource,
)
from launch.remote.store.locks import locked
from launch.remote.store.long_call import serve_call
from launch.remote.store.store import Store
from launch.remote.store.tree_node import Up, own_modules

__all__ = ["serve"]

_CAP_PER_NODE, _CAP = 32, 512
"""Largest number of requests to storage at a time, unless the request has another."""
_LIST_ATTEMPTS = 6
_HOLDERS_S, _HEAD_S = 10.0, 300.0
"""Time in which the nodes that may hold parts are waited for, and the head itself."""
_STARTS = 3
"""Starts of the process on a node that breaks off once it has begun."""
_SHOW_S = 1.0
_SINGLE_FILE = "file"


class _Dataset:
    """A source's files, and what nodes have to know of it."""

    def __init__(self, source: StageSource, query: str, files: list[File], is_cut: bool) -> None:
        self.source, self.files = source, files
        self.id = dataset_id(_address(source, query, files), files)
        self.header: DatasetHeader = {"id": self.id, "source": source, "query": query, "is_cut": is_cut}
        self.sizes = [part.size for part in cut(files, is_cut=is_cut)]

    def staged(self, name: str, shared: str) -> StagedData:
        """Return it as the answer has it, in the cache ``shared`` or in each node's own."""
        is_file = self.source["kind"] == _SINGLE_FILE
        path = f"{shared or f'~/.ranklift/{cache.DATA}'}/{self.id}"
        return {
            "name": name,
            "id": self.id,
            "path": f"{path}/{self.files[0].path}" if is_file else path,
            "bytes": sum(file.size for file in self.files),
            "files": len(self.files),
            "etag": self.files[0].etag if is_file else "",
        }


def _address(source: StageSource, query: str, files: Sequence[File]) -> str:
    """Return what the data's id stands for beside what storage says of the files."""
    if source["service"] == "blob":
        return source["url"]
    found = source["url"]
    if query:  # it may name the file; a SAS names none
        found += "?" + hashlib.sha256(query.encode()).hexdigest()
    if not all(file.etag for file in files):  # nothing says that the content is the one of the last time
        found += "#" + os.urandom(8).hex()
    return found


def serve(stdin: BinaryIO) -> int:
    """Answer one request; return the exit status of the process."""
    return serve_call(stdin, timing.STAGE_S, _try)


def _try(call: StageCall, up: Up) -> StageAnswer:
    try:
        return _stage(call, up)
    except FetchError as error:
        return {"t": "failed", "reason": error.reason, "lines": []}


def _stage(call: StageCall, up: Up) -> StageAnswer:
    started = time.monotonic()
    store = cache.open_cache(call["shared"])
    holders = call["nodes"][:1] if call["shared"] else call["nodes"]
    """The nodes that write: the others find the one copy of a shared folder."""
    web = Web()
    names: list[tuple[str, str]] = []
    datasets: dict[str, _Dataset] = {}
    for source in call["sources"]:
        made = _look_up(source, call["sas"].get(source["name"], ""), web)
        names.append((source["name"], made.id))
        datasets.setdefault(made.id, made)
    run: _Run | None = None
    with contextlib.ExitStack() as locks:
        for name in sorted(datasets):
            text = f"waiting for another launch that stages {datasets[name].source['url']}"
            progress: StageProgress = {"t": "progress", "text": text, "bytes": 0, "total": 0, "held": {}}
            locks.enter_context(locked(store, f"{name}-head", partial(up.send, progress)))
        names_of = [node for node, _ in holders]
        wanted = [one for one in datasets.values() if not cache.is_known(store, one.id, names_of)]
        errors: dict[str, str | None] = dict.fromkeys(names_of)
        if wanted:
            run = _Run({**call, "nodes": holders}, wanted, store, up)
            errors = run.go()
        for name in datasets:
            store.touch(name)
            store.confirm(name, "", [node for node, error in errors.items() if error is None])
            if call["shared"]:
                store.owe(name, names_of[0])
    return {
        "t": "staged",
        "data": [datasets[found].staged(name, call["shared"] and store.folder) for name, found in names],
        "seconds": time.monotonic() - started,
        "from_storage": run.assigner.from_storage if run else 0,
        "nodes": errors,
    }


def _look_up(source: StageSource, query: str, web: Web) -> _Dataset:
    """Ask storage for the source's files. Raise :class:`FetchError` or ValueError."""
    if source["auth"] == "either":
        try:
            return _look_up({**source, "auth": "none"}, query, web)
        except FetchError as error:
            if error.fault != faults.REFUSED:
                raise
        return _look_up({**source, "auth": "identity"}, query, web)
    service = service_of(source, query, web)
    for attempt in range(_LIST_ATTEMPTS):
        try:
            files = service.files()
            break
        except FetchError as error:
            if error.fault == faults.REFUSED or attempt == _LIST_ATTEMPTS - 1:
                raise
            time.sleep(max(error.wait, 0.5 * 2**attempt))
    check_names(source["url"], files)
    return _Dataset(source, query, files, service.is_cut)


def _may_hold(store: Store, node: str, header: NodeHeader, datasets: Sequence[_Dataset]) -> bool:
    """Whether a node may hold parts, as far as its head knows: any, after a staging that was cut off."""
    return node == header["head"] or any(
        node in store.confirmed(one.id, "") or os.path.exists(store.path(one.id) + ".parts")
        for one in datasets
    )


def _awaited(holders: set[str], head: str, elapsed: float) -> set[str]:
    """Return the nodes that are waited for, ``elapsed`` seconds after a staging's beginning.

    The head, where another staging of the data may be at work, is waited for longest, but not for ever: that
    staging's head may wait for this one.

    >>> for elapsed in (5.0, 60.0, 600.0):
    ...     sorted(_awaited({"node000000", "node000001"}, "node000000", elapsed))
    ['node000000', 'node000001']
    ['node000000']
    []
    """
    if elapsed < _HOLDERS_S:
        return holders
    return {head} if elapsed < _HEAD_S else set()


class _Run:
    """One staging: processes on all nodes, and the parts that each fetches."""

    def __init__(self, call: StageCall, datasets: Sequence[_Dataset], store: Store, up: Up) -> None:
        sizes = [size for one in datasets for size in one.sizes]
        count = len(call["nodes"])
        cap = call["downloaders"] or min(_CAP_PER_NODE * count, _CAP)
        self.assigner = Assigner(sizes, cap, count, rate=call["rate"])
        self._call, self._store, self._up = call, store, up
        self._names = ", ".join(one.source["url"] for one in datasets)
        self._total = sum(sizes)
        self._version, self._modules = own_modules()
        files = [[list(file) for file in one.files] for one in datasets]
        self._files = zlib.compress(json.dumps(files).encode(), 1)
        in_jobs = "\n".join(cache.used_here().values())
        self._header: NodeHeader = {
            "files": len(self._files),
            "limit": int(timing.STAGE_S),
            "name": "",
            "address": "",
            "head": call["nodes"][0][0],
            "kept": [name for name in os.listdir(store.folder) if "." not in name and name in in_jobs],
            "bound": None if call["shared"] else call["bound"],
            "shared": call["shared"],
            "credential": call["credential"],
            "datasets": [one.header for one in datasets],
        }
        self._events: queue.Queue[tuple[Member, NodeMessage]] = queue.Queue()
        self._members: dict[str, Member] = {}
        self._starts: dict[str, int] = {}
        self._errors: dict[str, str | None] = {}
        self._shown, self._started = 0.0, time.monotonic()
        self._holders = {node for node, _ in call["nodes"] if _may_hold(store, node, self._header, datasets)}

    def go(self) -> dict[str, str | None]:
        """Stage; return each node's error, None where it holds all. Raise :class:`FetchError`."""
        try:
            for name, address in self._call["nodes"]:
                self._start(name, address)
            while len(self._errors) < len(self._call["nodes"]):
                self._turn()
        finally:
            for member in self._members.values():
                member.close()
            self._wait_for_ends()
        return self._errors

    def _start(self, name: str, address: str) -> None:
        self._starts[name] = self._starts.get(name, 0) + 1
        header: NodeHeader = {**self._header, "name": name, "address": address}
        code = b"%s %d\n%s" % (self._version.encode(), len(self._modules), self._modules)
        opening = code + json.dumps(header).encode() + b"\n" + self._files
        ssh = [] if name == self._header["head"] else self._call["ssh"]
        self._members[name] = Member(name, address, ssh, opening, self._events)

    def _turn(self) -> None:
        """Handle one event, or what time brings; send the orders that follow."""
        about = ""
        try:
            member, message = self._events.get(timeout=_SHOW_S)
        except queue.Empty:
            self._drop_silent()
        else:
            if member is self._members[member.name]:
                about = member.name
                self._handle(member, message)
        if self.assigner.failure:
            raise FetchError(faults.REFUSED, self.assigner.failure)
        now = time.monotonic()
        if now - self._shown > _SHOW_S:
            self._shown = now
            about = ""
            self._drop_silent()
            self._show()
        if self._awaits_holders(now):
            return
        for order in self.assigner.orders(now, about):
            source = self._members.get(order.source)
            self._members[order.node].send(
                {
                    "part": order.part,
                    "host": source.address if source else "",
                    "port": source.port if source else 0,
                    "digest": self.assigner.digests.get(order.part, "") if source else "",
                }
            )

    def _awaits_holders(self, now: float) -> bool:
        """Whether a node that may hold parts has not named them yet: others would take these from storage."""
        awaited = _awaited(self._holders, self._header["head"], now - self._started)
        return any(not self._members[node].port and node not in self._errors for node in awaited)

    def _handle(self, member: Member, message: NodeMessage) -> None:
        kind, now = message["t"], time.monotonic()
        if kind == "ready":
            member.port = message["port"]
            self._store.forget(message["removed"])
            self.assigner.join(member.name, message["have"])
        elif kind == "took":
            self.assigner.on_took(member.name, message["part"], message["digest"], now)
        elif kind == "missed":
            part, fault = message["part"], message["fault"]
            stale = self.assigner.on_missed(member.name, part, fault, message["reason"], now, message["wait"])
            self._errors.pop(stale, None)  # it reports again that it holds all
        elif kind == "whole":
            self._errors[member.name] = None
        elif kind == "unfit":
            self._lose(member, message["reason"])
        elif kind == "gone" and self._errors.get(member.name, "") is not None:
            self._lose(
                member, member.reason, is_final=not member.port or self._starts[member.name] == _STARTS
            )
        elif kind == "gone":  # it held all: the others have to do without it
            self.assigner.leave(member.name)

    def _lose(self, member: Member, reason: str, *, is_final: bool = True) -> None:
        self.assigner.leave(member.name)
        member.give_up(reason)
        if is_final:
            self._errors.setdefault(member.name, reason)
        elif member.name not in self._errors:
            self._start(member.name, member.address)

    def _drop_silent(self) -> None:
        for member in list(self._members.values()):
            silence = time.monotonic() - member.heard
            if not member.is_gone and silence > self._call["silence"]:
                member.give_up(f"sent nothing for {self._call['silence']:g} s")

    def _show(self) -> None:
        held = {name: self.assigner.held(name) for name in self._members}
        done, total = sum(held.values()), self._total * len(held)
        where = self._call["shared"] or f"{len(held)} nodes"
        text = f"staging {self._names}: {size_text(self._total)} to {where}"
        if self.assigner.trouble:
            text += f"; waiting: {self.assigner.trouble}"
        answer: StageProgress = {"t": "progress", "text": text, "bytes": done, "total": total, "held": held}
        self._up.send(answer)

    def _wait_for_ends(self) -> None:
        """Wait for the processes, so that none is left behind; kill what does not end."""
        until = time.monotonic() + timing.SSH_CLOSE_S
        while any(not member.is_gone for member in self._members.values()):
            if time.monotonic() > until:
                for member in self._members.values():
                    member.give_up("stopped")
                return
            time.sleep(0.01)
