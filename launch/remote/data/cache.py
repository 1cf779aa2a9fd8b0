"""A node's staged data, on its fastest disk: ``~/.ranklift/data/ID``, a manifest beside it once it is whole.

``~/.ranklift/data`` is a link where a node has a disk of its own, so that a path is the same on every node.
A folder that all nodes share, ``/mnt/nfs``, may have a cache of its own, with the same files.
A node does not know the jobs of other heads: each head that has data staged leaves a note, ``ID.of-HEAD``,
and takes it back when none of its jobs uses the data (:meth:`launch.remote.store.store.Store.owe`). A note is
void a week after the head's last staging of the data, and after a day where the head is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Collection, Sequence

from launch.remote.base.files import expand_home, replace_file
from launch.remote.base.messages import size as size_text
from launch.remote.base.records import DataRecord, data_entry
from launch.remote.data import faults
from launch.remote.data.faults import FetchError
from launch.remote.data.stage_request import DataListing, DataManifest, DataRemoval, StoredData
from launch.remote.reading import Malformed, parse, read
from launch.remote.store.locks import try_lock
from launch.remote.store.removal import is_unknown, removal_argv, remove_file, unfinished_jobs
from launch.remote.store.store import DATA, Store

__all__ = [
    "DATA",
    "is_known",
    "is_staged",
    "list_data",
    "make_room",
    "open_cache",
    "read_manifest",
    "remove",
    "remove_data",
    "sync_data",
    "used_here",
    "write_manifest",
]

_DISKS = ("/mnt/resource_nvme", "/mnt/resource")
_SHARE = 0.9
"""Part of a disk that may be in use once data are staged."""
_FRESH_S = 600.0
"""Time after a staging in which its job may not have been submitted yet."""
_NOTE_S, _LONGEST_NOTE_S = 86400.0, 7 * 86400.0
"""Time after which the note of a head counts only while the head's name resolves, and not at all."""


def open_cache(shared: str = "", disks: Sequence[str] = _DISKS) -> Store:
    """Return the store of this node's data, or of those in the folder ``shared`` of all nodes.

    Make its folder, that of the node on the first of ``disks`` that is a mount. Raise :class:`FetchError`
    where the shared folder is not mounted.
    """
    if shared:
        return _open_shared(shared)
    root = _own_root()
    place = os.path.join(root, DATA)
    if os.path.islink(place):
        _make_private(os.path.realpath(place))  # the disk may have been emptied
    elif not os.path.isdir(place):
        os.makedirs(root, mode=0o700, exist_ok=True)
        disk = next((one for one in disks if os.path.ismount(one)), None)
        if disk is not None:
            target = os.path.join(disk, f"ranklift-{DATA}-{os.getuid()}")
            _make_private(target)
            with contextlib.suppress(FileExistsError):
                os.symlink(target, place)
    return Store(kind=DATA)


def _own_root() -> str:
    return os.path.join(os.path.expanduser("~"), ".ranklift")


def _shared_root(folder: str) -> str:
    return os.path.join(folder, f"ranklift-{os.getuid()}")


def _open_shared(folder: str) -> Store:
    root = _shared_root(folder)
    if not _is_mounted(folder):
        remedy = "`fab status` shows the nodes that lack it; `fab replace NODE` makes another one"
        raise FetchError(faults.DISK, f"{folder} is not mounted on this node: {remedy}")
    try:
        _make_private(root)
        return Store(root, DATA)
    except OSError as error:
        raise FetchError(faults.DISK, f"{folder} cannot be written: {error}") from None


def _is_mounted(folder: str) -> bool:
    """Return whether a folder is a mount point; unlike :func:`os.path.ismount`, a bind mount counts."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        return any(line.split()[4] == folder for line in stream)


def used_here() -> dict[str, str]:
    """Return the texts of this head's unfinished jobs, which name the data that they use."""
    return unfinished_jobs(_own_root())


def _make_private(folder: str) -> None:
    """Make a folder that others may not change. Raise OSError where another user was faster."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.lstat(folder).st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")


def write_manifest(store: Store, name: str, url: str, files: int, size: int, digests: Sequence[str]) -> None:
    """Make the data count as whole."""
    facts: DataManifest = {"url": url, "files": files, "bytes": size, "digests": list(digests)}
    replace_file(store.path(name) + ".manifest", json.dumps(facts).encode())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(store.path(name) + ".parts")


def sync_data(store: Store) -> None:
    """Have all that was written to the store outlive a crash of the machine. Raise OSError.

    One call for the whole file system: it took 0.2 s for 10,000 small files, a call for each of them 11 s.
    """
    import ctypes

    folder = os.open(store.folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.syncfs(folder) != 0:
            found = ctypes.get_errno()
            raise OSError(found, os.strerror(found), store.folder)
    finally:
        os.close(folder)


def is_known(store: Store, name: str, nodes: Collection[str]) -> bool:
    """Whether every node has reported to hold the data; of those in a shared folder one node is enough."""
    known = store.confirmed(name, "")
    is_shared = store.root != _own_root()
    return store.has(name) and (bool(known) if is_shared else set(nodes) <= set(known))


def is_staged(data: DataRecord, nodes: Collection[str]) -> bool:
    """Whether the nodes are known to hold the data of a job; they count as used then."""
    folder, name = os.path.split(expand_home(data_entry(data)))
    root, kind = os.path.split(folder)
    if not os.path.isdir(folder) or not is_known(store := Store(root, kind), name, nodes):
        return False
    store.touch(name)
    return True


def make_room(
    store: Store, sizes: dict[str, int], head: str, kept: Collection[str], bound: int | None, held: int = 0
) -> list[str]:
    """Remove the least recently used data until those of ``sizes``, bytes that are still to be written by id,
    fit on the disk; return what was removed. Raise :class:`FetchError` where they do not fit.

    ``held`` are the bytes of theirs that are here: the ``bound`` counts them, too.

    Nothing goes that was used just now, or that a head has a note for; notes of ``head`` for what is not
    ``kept`` are void.
    """
    needed = sum(sizes.values())
    for entry in os.listdir(store.folder):
        name, _, owner = entry.partition(".of-")
        if owner == head and name not in kept and name not in sizes and _age(store, name) > _FRESH_S:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(store.folder, entry))
    idle = [name for name in _stored(store) if name not in sizes and _is_idle(store, name)]
    idle.sort(key=lambda name: _age(store, name), reverse=True)
    removed = []
    while needed and _lacking(store, needed, sizes, bound, held) > 0:
        if not idle:
            raise FetchError(faults.DISK, _full(store, needed, bound))
        name = idle.pop(0)
        if remove(store, name):
            removed.append(name)
    return removed


def _lacking(store: Store, needed: int, sizes: dict[str, int], bound: int | None, held: int) -> int:
    """Return the bytes that have to go before ``needed`` bytes fit."""
    disk = os.statvfs(store.folder)
    free = disk.f_bavail * disk.f_frsize
    if bound is not None:
        staged = sum(_bytes_of(store, name) for name in _stored(store) if name not in sizes)
        return max(needed - free, staged + held + needed - bound)
    whole = disk.f_blocks * disk.f_frsize
    used = whole - disk.f_bfree * disk.f_frsize
    return max(needed - free, int(used + needed - _SHARE * whole))


def _full(store: Store, needed: int, bound: int | None) -> str:
    disk = os.statvfs(store.folder)
    free = size_text(disk.f_bavail * disk.f_frsize)
    limit = f"at most {size_text(bound)} may be staged" if bound is not None else "a tenth of it stays free"
    used = [f"{name} ({size_text(_bytes_of(store, name))})" for name in _stored(store)]
    held = f"; it holds {', '.join(used)}" if used else ""
    return (
        f"its disk has no room for {size_text(needed)} more: {free} are free in "
        f"{os.path.realpath(store.folder)}, and {limit}{held}; `fab data.prune` removes what no job uses"
    )


def list_data(shared: str = "") -> DataListing:
    """Return what this node and the ``shared`` folder hold, also what a killed staging has left."""
    stores = [(open_cache(), False)]
    if shared and _is_mounted(shared) and os.path.isdir(_shared_root(shared)):
        stores.append((open_cache(shared), True))
    jobs = used_here()
    listed = [
        _describe(store, name, jobs, is_shared) for store, is_shared in stores for name in _stored(store)
    ]
    return {"data": listed}


def _describe(store: Store, name: str, jobs: dict[str, str], is_shared: bool) -> StoredData:
    facts = read_manifest(store, name)
    return {
        "id": name,
        "url": facts["url"] if facts is not None else "",
        "bytes": _bytes_of(store, name),
        "files": facts["files"] if facts is not None else 0,
        "used": time.time() - _age(store, name),
        "is_whole": facts is not None and store.has(name),
        "is_damaged": facts is None and os.path.lexists(store.path(name) + ".manifest"),
        "jobs": [job for job, plan in jobs.items() if name in plan],
        "shared": is_shared,
    }


def remove_data(names: Sequence[str], shared: str = "") -> DataRemoval:
    """Remove data, with ``shared`` those of that folder, that no unfinished job of this head uses and nobody
    is staging. Raise :class:`FetchError` where the folder is not mounted."""
    store = open_cache(shared)
    jobs = used_here()
    kept = {name: [job for job, plan in jobs.items() if name in plan] for name in names}
    for name in names:
        if not kept[name] and not remove(store, name):
            kept[name] = ["a staging, or ranks of another head's job"]
    return {"kept": {name: found for name, found in kept.items() if found}}


def remove(store: Store, name: str) -> bool:
    """Remove data, the manifest first, without which the rest does not count.

    Return False where ranks of this node read them, or somebody stages them.
    """
    with try_lock(store, name) as is_held, store.unused(name) as is_unused:
        if not (is_held and is_unused):
            return False
        store.forget([name])
        for entry in os.listdir(store.folder):
            if entry in (f"{name}.manifest", f"{name}.parts") or entry.startswith(f"{name}.of-"):
                remove_file(os.path.join(store.folder, entry))
        subprocess.run(removal_argv([store.path(name)]), check=False, capture_output=True)
    return True


def _stored(store: Store) -> list[str]:
    """Return the ids of all data here, whole or not."""
    return sorted({one.partition(".")[0] for one in os.listdir(store.folder) if not one.startswith(".")})


def _is_idle(store: Store, name: str) -> bool:
    noted = any(
        _counts(store, entry) for entry in os.listdir(store.folder) if entry.startswith(f"{name}.of-")
    )
    return not noted and _age(store, name) > _FRESH_S


def _counts(store: Store, note: str) -> bool:
    """Return whether the head of a note may still need the data; a young note's may not resolve yet."""
    try:
        age = time.time() - os.stat(os.path.join(store.folder, note)).st_mtime
    except FileNotFoundError:  # its head has just taken it back
        return False
    return age < _NOTE_S or (age < _LONGEST_NOTE_S and not is_unknown(note.partition(".of-")[2]))


def _age(store: Store, name: str) -> float:
    for suffix in (".manifest", ".parts", ""):
        with contextlib.suppress(OSError):
            return time.time() - os.lstat(store.path(name) + suffix).st_mtime
    return 0.0


def _bytes_of(store: Store, name: str) -> int:
    """Return the bytes on disk: a file that is being staged has its final size from the beginning."""
    facts = read_manifest(store, name)
    if facts is not None and store.has(name):
        return facts["bytes"]
    total = 0
    for folder, _, files in os.walk(store.path(name)):
        for file in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, file)).st_blocks * 512
    return total


def read_manifest(store: Store, name: str) -> DataManifest | None:
    """Return the manifest; None without one, and for one that a job has spoilt."""
    try:
        return read(DataManifest, parse(store.text(name)))
    except (OSError, Malformed):
        return None
