"""The trees of a job's files on this node: logs, outputs, and what it left in its working folder.

What the job left as it was pushed is in none of them. What it left in its working folder is all else there
but its outputs, tools' caches, virtual environments and file systems that are mounted there.
"""

from __future__ import annotations

import heapq
import os
import stat
import time
from collections.abc import Callable, Iterator

from launch.remote.base import job_dir
from launch.remote.base.files import CACHES, ENVIRONMENT
from launch.remote.base.payloads import LeftAnswer, LeftFiles, Listed
from launch.remote.node import work_dir

__all__ = ["TREES", "answer", "is_work", "left_files", "mtime", "text", "walk", "walk_work"]

TREES = ("logs", "outputs")
"""Folders of a job that are collected as a whole."""
_LARGEST = 5
_MOST = 50_000
"""Files after which a working folder is read no further."""
_SETTLED_NS = 2_000_000_000
"""Nanoseconds after a change within which another one may have the same time in the file system's clock."""


def is_work(name: str) -> bool:
    """Return whether an entry of a job's folder is a working folder, or one put aside.

    >>> is_work("work"), is_work("work.0f3a9c1e"), is_work("work.new"), is_work("outputs")
    (True, True, False, False)
    """
    first, dot, _ = name.partition(".")
    return first == work_dir.NAME and not (dot and name == work_dir.NAME + work_dir.UNFINISHED)


def walk(base: bytes, top: bytes) -> Iterator[Listed]:
    """Yield a tree's entries but what the job left as it was pushed; ``base`` is the job's folder."""
    is_copy = work_dir.copies_in(os.fsdecode(base))
    yield from _walk(base, top, lambda path, found: is_copy("/" + os.fsdecode(path), found))


def walk_work(base: bytes) -> Iterator[Listed]:
    """Yield what the job left in its working folder, as :func:`walk` does, without the folders."""
    try:
        names = sorted(name for name in os.listdir(base) if is_work(os.fsdecode(name)))
    except OSError:
        return
    for name in names:
        try:
            root = os.lstat(os.path.join(base, name))
        except OSError:
            continue
        if stat.S_ISDIR(root.st_mode):
            listed = _walk(base, name, _skips_in(base, name, root.st_dev))
            yield from (entry for entry in listed if entry[0] != "d")


def _skips_in(base: bytes, top: bytes, device: int) -> Callable[[bytes, os.stat_result], bool]:
    is_copy = work_dir.copies_in(os.fsdecode(base)) if os.fsdecode(top) == work_dir.NAME else None

    def skips(path: bytes, found: os.stat_result) -> bool:
        if not stat.S_ISDIR(found.st_mode):
            return is_copy is not None and is_copy(os.fsdecode(path[len(top) :]), found)
        return (
            found.st_dev != device
            or os.fsdecode(path) == work_dir.OUTPUTS
            or os.fsdecode(os.path.basename(path)) in CACHES
            or os.path.exists(os.path.join(base, path, ENVIRONMENT.encode()))
        )

    return skips


def _walk(base: bytes, top: bytes, skips: Callable[[bytes, os.stat_result], bool]) -> Iterator[Listed]:
    left = [top]
    while left:
        folder = left.pop()
        yield "d", text(folder)
        try:
            with os.scandir(os.path.join(base, folder)) as found:
                names = sorted(entry.name for entry in found)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield "x", text(folder), error.strerror or str(error)
            continue
        folders = []
        for name in names:
            path = os.path.join(folder, name)
            try:
                info = os.lstat(os.path.join(base, path))
                if skips(path, info):
                    continue
                if stat.S_ISDIR(info.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(info.st_mode):
                    yield "f", text(path), info.st_size, mtime(info)
                elif stat.S_ISLNK(info.st_mode):
                    yield "l", text(path), text(_target(base, path))
                else:
                    yield "o", text(path), "is a socket, a pipe or a device"
            except FileNotFoundError:
                continue
            except OSError as error:
                yield "x", text(path), error.strerror or str(error)
        left += reversed(folders)


def _target(base: bytes, path: bytes) -> bytes:
    """Return a link's target; relative within the job's folder, so that the link still works in a copy."""
    target = os.readlink(os.path.join(base, path))
    if not target.startswith(b"/"):
        return target
    whole = os.path.normpath(target)
    outputs = b"/" + work_dir.OUTPUTS.encode() + b"/"
    for root in (base, os.path.realpath(base)):
        if whole.startswith(root + outputs):
            whole = root + b"/outputs/" + whole[len(root + outputs) :]
        if whole.startswith(root + b"/"):
            return os.path.relpath(whole, os.path.dirname(os.path.join(root, path)))
    return target


def mtime(info: os.stat_result) -> int:
    """Return the modification time in nanoseconds; -1 while a later change could have the same time."""
    return info.st_mtime_ns if time.time_ns() - info.st_mtime_ns > _SETTLED_NS else -1


def text(path: bytes) -> str:
    """Return a path as JSON holds it."""
    return path.decode("utf-8", "surrogateescape")


def left_files(job: str) -> LeftFiles:
    """Return what the job left in its working folder: number and size of the files, the largest of them."""
    sizes: list[tuple[int, str]] = []
    is_whole = True
    for entry in walk_work(os.fsencode(job_dir.Folder(job).path)):
        if len(sizes) == _MOST or entry[0] == "x":
            is_whole = False
        if len(sizes) == _MOST:
            break
        if entry[0] == "f":
            sizes.append((entry[2], entry[1].partition("/")[2]))
    return {
        "files": len(sizes),
        "bytes": sum(size for size, _ in sizes),
        "largest": [(path, size) for size, path in heapq.nlargest(_LARGEST, sizes)],
        "whole": is_whole,
    }


def answer(job: str = "") -> LeftAnswer:
    """Return what the job, or each job, left on this node; jobs that left nothing are not in it."""
    root = os.path.expanduser(job_dir.ROOT)
    jobs = [job] if job else sorted(os.listdir(root)) if os.path.isdir(root) else []
    found = {name: left_files(name) for name in jobs}
    return {"jobs": {name: one for name, one in found.items() if one["files"] or not one["whole"]}}
