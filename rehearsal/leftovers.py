"""Processes, ports, mounts and files of a rehearsal on this machine, before and after its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rehearsal.run_dir import Folder, start_time
from rehearsal.vms.local import NETWORK_FILE

__all__ = ["Belongings", "belongings", "end_strays", "left", "lost_stacks", "traces"]

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Belongings:
    """Kernel objects of a rehearsal."""

    processes: frozenset[tuple[int, int]]
    """Process ids with their start times."""
    namespaces: int
    """User namespaces: one for each virtual network."""
    ports: frozenset[str]
    """Listening ``address:port``."""


def belongings(folder: Folder) -> Belongings:
    """Return what the kernel shows now."""
    record = folder.record()
    spaces: set[str] = set()
    addresses: set[str] = set()
    for network in _networks(folder):
        spaces.add(str(network.get("user_namespace")))
        addresses.update(network.get("addresses", ()))
    pids = [pid for pid in _pids() if _user_namespace(pid) in spaces]
    ports: set[str] = set()
    if record is not None and record.alive:
        pids += [record.pid, *_descendants(record.pid), *_strays(folder, networks=False)]
        ports |= {f"127.0.0.1:{record.arm_port}", f"127.0.0.1:{record.provider_port}"}
    listening = _listening()
    ports |= {port for port in listening if port.rpartition(":")[0] in addresses}
    return Belongings(
        frozenset((pid, start_time(pid)) for pid in pids), len(spaces), frozenset(ports & listening)
    )


def left(before: Belongings, folder: Folder) -> tuple[str, ...]:
    """Return descriptions of what is left of ``before``; empty proves that nothing is."""
    found = [f"process {pid}" for pid, started in sorted(before.processes) if start_time(pid) == started != 0]
    found += [f"listening port {port}" for port in sorted(before.ports & _listening())]
    mounts = Path("/proc/self/mountinfo").read_text().replace("\\040", " ")
    found += [f"mount {line.split()[4]}" for line in mounts.splitlines() if str(folder.root) in line]
    return tuple(found)


def end_strays(folder: Folder, *, networks: bool = True) -> None:
    """Kill processes that would outlive the rehearsal.

    These are Pulumi processes with the rehearsal's backend, which would write their stack into the next
    one's, with their descendants, and the first process of a network, which the kernel should have ended.
    Without ``networks`` the latter are left to their daemon.
    """
    deadline = time.monotonic() + 5
    # Repeated until there is none: a process may start another before it is killed.
    while (strays := _strays(folder, networks=networks)) and time.monotonic() < deadline:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _strays(folder: Folder, *, networks: bool) -> set[int]:
    disks = str(folder.disks)
    backend = f"PULUMI_BACKEND_URL={folder.backend.as_uri()}"
    found = set()
    for pid in _pids():
        words = _words(pid, "cmdline")
        is_network = networks and "rehearsal.vms.netns" in words and disks == words[-2]
        if is_network:
            found.add(pid)
        elif _is_pulumi(words) and backend in _words(pid, "environ"):
            found |= {pid, *_descendants(pid)}
    return found


def _is_pulumi(words: list[str]) -> bool:
    """Whether a command line is Pulumi's: the engine, or a script or module of its that another runs.

    >>> _is_pulumi(["/bin/sh", "/opt/pulumi-resource-pulumi-python", "127.0.0.1:4711", ""])
    True
    >>> _is_pulumi(["/venv/bin/python", "-u", "-m", "pulumi.dynamic", ""])
    True
    >>> _is_pulumi(["vim", "pulumi.log", ""])
    False
    """
    names = [word.rpartition("/")[2] for word in words]
    runs = names[:1]
    if re.match("(ba|da)?sh|python", names[0]):
        runs = [name for name in names[1:] if not name.startswith("-")][:1]
    return any(name.startswith("pulumi") for name in runs)


def _words(pid: int, file: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended, or is another user's
        return [""]


def traces(folder: Folder) -> tuple[str, ...]:
    """Return descriptions of what an ended rehearsal left in its folder."""
    found = []
    record = folder.record()
    if record is not None:
        found.append(f"the record of process {record.pid}, which has ended")
    for network in _networks(folder):
        place = Path(network["folder"])
        disks = [entry.name for entry in place.iterdir() if (entry / "home").is_dir()]
        found.append(f"{len(disks)} disks of nodes of {network.get('network', place.name)}")
    found += [f"Pulumi stack {name} with {count} resources" for name, count in lost_stacks(folder).items()]
    if not found and folder.root.exists():
        found.append(str(folder.root))
    return tuple(found)


def lost_stacks(folder: Folder) -> dict[str, int]:
    """Return the stacks in the rehearsal's Pulumi backend that have resources, with their number."""
    found = {}
    for path in sorted(folder.backend.glob(".pulumi/stacks/**/*.json")):
        try:
            checkpoint = json.loads(path.read_text())["checkpoint"]
            resources = (checkpoint.get("latest") or {}).get("resources") or []
        except (OSError, ValueError, KeyError):
            continue
        count = sum(1 for one in resources if not one["type"].startswith("pulumi:"))
        if count:
            found[path.stem] = count
    return found


def _networks(folder: Folder) -> Iterable[dict[str, str]]:
    for path in sorted(folder.disks.glob(f"*/{NETWORK_FILE}")):
        try:
            yield {**json.loads(path.read_text()), "folder": str(path.parent)}
        except (OSError, ValueError):
            yield {"folder": str(path.parent)}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _descendants(pid: int) -> list[int]:
    """Return a process's descendants, e.g. storage services, which are in no network."""
    parents: dict[int, list[int]] = {}
    for other in _pids():
        try:
            stat = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(stat[1]), []).append(other)
    found = list(parents.get(pid, ()))
    for child in found:  # grows while it is walked
        found += parents.get(child, ())
    return found


def _user_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/user").readlink())
    except OSError:
        return ""


def _listening() -> frozenset[str]:
    found = set()
    for table in ("tcp", "tcp6"):  # gRPC listens on IPv4 addresses by way of IPv6
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == _LISTEN:
                raw, port = words[1].split(":")
                address = ".".join(str(byte) for byte in reversed(bytes.fromhex(raw[-8:])))
                found.add(f"{address}:{int(port, 16)}")
    return frozenset(found)
