"""Whether anything of a rehearsal outlives it: looks at the machine, not at what the rehearsal says.

    python tools/leftovers.py record FOLDER FILE    while it runs: what belongs to it
    python tools/leftovers.py check FOLDER FILE     afterwards: exits 1 and names what is still there

FOLDER is ``.ranklift/rehearsal``. To a rehearsal belong its daemon with all its descendants, every process
that works in FOLDER, names it on its command line or sees it mounted, the namespaces these live in, the
mounts of FOLDER, and the TCP ports these listen on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; a pid alone may be another's later."""

    pid: int
    parent: int
    started: str
    command: str


@dataclass(frozen=True, slots=True)
class Belongings:
    """What belongs to a rehearsal; every entry a line fit to be shown."""

    processes: list[str]
    namespaces: list[str]
    mounts: list[str]
    ports: list[str]


def processes() -> dict[int, Process]:
    """Every process there is; those that end meanwhile are left out."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, IndexError):
            continue
        if stat[0] != "Z":
            pid = int(folder.name)
            found[pid] = Process(pid, int(stat[1]), stat[19], command)
    return found


def with_descendants(roots: set[int], everything: dict[int, Process]) -> set[int]:
    """The processes ``roots`` and all below them."""
    children: dict[int, list[int]] = {}
    for process in everything.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in everything]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def touches(pid: int, command: str, folder: str) -> bool:
    """Whether the process names ``folder``, works in it, or sees it mounted somewhere of its own."""
    if folder in command:
        return True
    place = PROC / str(pid)
    try:
        inside = (place / "cwd").readlink().is_relative_to(folder)
        ours = (place / "ns" / "mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        return inside or (not ours and folder in (place / "mountinfo").read_text())
    except OSError:
        return False


def ancestors(everything: dict[int, Process]) -> set[int]:
    """This process and those it was started by: they may well name the folder."""
    found = set()
    pid = os.getpid()
    while pid in everything:
        found.add(pid)
        pid = everything[pid].parent
    return found


def namespaces(pids: set[int]) -> set[str]:
    """The namespaces the processes live in, less our own."""
    return {name for pid in pids for name in _namespaces(str(pid))} - set(_namespaces("self"))


def _namespaces(pid: str) -> Iterator[str]:
    try:
        for link in (PROC / pid / "ns").iterdir():
            yield str(link.readlink())
    except OSError:
        return


def mounts(folder: str) -> list[str]:
    """Where ``folder`` is part of a mount that this process sees."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split()[4] for line in lines if folder in line)


def listening() -> dict[str, str]:
    """Address and port of every listening TCP socket here, by the socket's inode."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == LISTEN:
            raw, port = local.split(":")
            address = ".".join(str(byte) for byte in reversed(bytes.fromhex(raw)))
            found[rest[5]] = f"{address}:{int(port, 16)}"
    return found


def ports(pids: set[int]) -> list[str]:
    """What the processes listen on, of the addresses that this network namespace has."""
    here = listening()
    found = set()
    for pid in pids:
        try:
            for link in (PROC / str(pid) / "fd").iterdir():
                inode = str(link.readlink()).removeprefix("socket:[").rstrip("]")
                if inode in here:
                    found.add(here[inode])
        except OSError:
            continue
    return sorted(found)


def belongings(folder: Path) -> Belongings:
    """What belongs to the rehearsal in ``folder`` now."""
    everything = processes()
    name = str(folder.resolve())
    try:
        daemon = {int(json.loads((folder / "rehearsal.json").read_text())["pid"])}
    except (OSError, ValueError, KeyError):
        daemon = set()
    found = daemon | {pid for pid, process in everything.items() if touches(pid, process.command, name)}
    found = with_descendants(found - ancestors(everything), everything) - ancestors(everything)
    return Belongings(
        [f"{pid} (start {everything[pid].started}) {everything[pid].command[:80]}" for pid in sorted(found)],
        sorted(namespaces(found)),
        mounts(name),
        ports(found),
    )


def still_there(before: Belongings, folder: Path) -> Belongings:
    """What of ``before`` exists yet, and what else belongs to the rehearsal."""
    now = belongings(folder)
    everything = processes()
    alive = {
        f"{p.pid} (start {p.started})": f"{p.pid} (start {p.started}) {p.command[:80]}"
        for p in everything.values()
    }
    kept = {alive[key] for line in before.processes if (key := line.split(")")[0] + ")") in alive}
    entered = namespaces(set(everything))
    return Belongings(
        sorted({*now.processes, *kept}),
        sorted({*now.namespaces, *(name for name in before.namespaces if name in entered)}),
        sorted(set(now.mounts)),
        sorted({*now.ports, *(port for port in before.ports if port in listening().values())}),
    )


def main() -> int:
    """See the module's own text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["record", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.verb == "record":
        found = belongings(options.folder)
        options.file.write_text(json.dumps(asdict(found)))
        for kind, lines in asdict(found).items():
            print(f"{kind:<11}{len(lines):>5}")
        return 0
    before = Belongings(**json.loads(options.file.read_text()))
    after = still_there(before, options.folder)
    print("           while it ran   now")
    for kind, lines in asdict(after).items():
        print(f"{kind:<11}{len(getattr(before, kind)):>12}{len(lines):>6}")
    for kind, lines in asdict(after).items():
        for line in lines:
            print(f"left over, {kind}: {line}", file=sys.stderr)
    return 1 if any(asdict(after).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
