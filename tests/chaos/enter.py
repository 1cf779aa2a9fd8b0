"""Acts inside a rehearsed node, as a process of its own: ``python -I -S enter.py PID ACTION ...``.

PID is the node's first process, as this machine numbers it. Nothing of the project takes part: what a job
left behind is found in the node's own /proc, not in anybody's records. Processes have the node's numbers.

    scan                  a JSON line for every process
    kill SIGNAL PID...    sends a signal
    mount FOLDER SIZE     a file system of that size over a folder, made if need be
    seal FOLDER           a file system over a folder, that nobody can write to
    unmount FOLDER        takes it away again, with what is in it
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NEW_USER, NEW_MOUNTS, NEW_PIDS = 0x10000000, 0x00020000, 0x20000000
READ_ONLY, DETACH = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(pid: str) -> None:
    """Moves this process into the node: its user, its mounts, and for children its numbers of processes."""
    spaces = [
        (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind)
        for name, kind in (("user", NEW_USER), ("pid", NEW_PIDS), ("mnt", NEW_MOUNTS))
    ]
    for descriptor, kind in spaces:
        check(libc.setns(descriptor, kind), "setns")
        os.close(descriptor)


def scan() -> None:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found = look(f"/proc/{name}")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if found is not None:
                sys.stdout.write(json.dumps({"pid": int(name), **found}) + "\n")


def look(place: str) -> dict[str, object] | None:
    """What is known of a process; None of one that has ended and waits to be noticed."""
    with open(f"{place}/stat", "rb") as file:
        stat = file.read().rpartition(b")")[2].split()
    if stat[0] in (b"Z", b"X"):
        return None
    with open(f"{place}/environ", "rb") as file:
        lines = file.read().split(b"\0")
    env = dict(line.partition(b"=")[::2] for line in lines)
    with open(f"{place}/cmdline", "rb") as file:
        args = file.read().rstrip(b"\0").replace(b"\0", b" ")
    with open(f"{place}/statm", "rb") as file:
        pages = file.read().split()
    return {
        "parent": int(stat[1]),
        "args": args.decode(errors="replace"),
        "job": env.get(b"RANKLIFT_JOB_ID", b"").decode(errors="replace"),
        "rank": env.get(b"RANK", b"").decode(errors="replace"),
        "start": int(stat[19]),
        "descriptors": len(os.listdir(f"{place}/fd")),
        "kilobytes": (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") // 1024,
    }


def kill(number: str, *pids: str) -> None:
    if os.fork() == 0:  # only a child has the node's numbers
        for pid in pids:
            try:
                os.kill(int(pid), int(number))
            except ProcessLookupError:
                continue
        os._exit(0)
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))


def mount(folder: str, size: str, flags: str = "0") -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    options = f"size={size},mode=0700".encode()
    check(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(int(flags)), options), "mount")


def seal(folder: str) -> None:
    mount(folder, "4k", str(READ_ONLY))


def unmount(folder: str) -> None:
    check(libc.umount2(folder.encode(), DETACH), "umount2")


if __name__ == "__main__":
    enter(sys.argv[1])
    actions: dict[str, Callable[..., None]] = {"scan": scan, "kill": kill, "mount": mount, "seal": seal}
    actions["unmount"] = unmount
    actions[sys.argv[2]](*sys.argv[3:])
