"""Whether the process of a node that asks the metadata service may: by the node's own nftables rules.

A rehearsed node has one user id, so that no rule of the kernel can distinguish its users. Who asks is looked
up instead: the process that holds the connection, and the ``User=`` of the unit that it belongs to. Run
inside the network, where the nodes' processes are.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

__all__ = ["may_ask"]

_RULE = re.compile(
    r"^\s*ip daddr 169\.254\.169\.254 meta skuid != \{ ([^}]*) \}(?: meta skuid != @(granted))? reject$", re.M
)
_KEEPER = "/etc/rehearsal/bin/keep"
_PROC = Path("/proc")
_last: dict[int, int] = {}
"""By a node's first process, the process that asked last: mostly the next one to ask, too."""


def may_ask(init: int, admin: str, address: str, port: int) -> bool:
    """Return whether the node whose first process is ``init`` lets out what comes from this port.

    Without rules it does, as a node of another image. A process that is gone may not.
    """
    try:
        rules = (_PROC / f"{init}/root/run/rehearsal/nft").read_text()
    except OSError:
        return True
    rule = _RULE.search(rules)
    if rule is None:
        return True
    process = _holder(init, _inode(init, address, port))
    if process is None:
        return False
    user = _user(init, process, admin)
    is_granted = bool(rule[2]) and user == admin and _id_of(init, admin) in _granted(init)
    return is_granted or user in (name.strip() for name in rule[1].split(","))


def _granted(init: int) -> list[str]:
    """Return the user ids in the rules' set."""
    try:
        return (_PROC / f"{init}/root/run/rehearsal/granted").read_text().split()
    except OSError:
        return []


def _id_of(init: int, user: str) -> str:
    accounts = (line.split(":") for line in (_PROC / f"{init}/root/etc/passwd").read_text().splitlines())
    return next((fields[2] for fields in accounts if fields[0] == user), "")


def _inode(init: int, address: str, port: int) -> str:
    """Return the inode of a connection's socket; empty for one that is gone."""
    own = f"{socket.inet_aton(address)[::-1].hex()}:{port:04X}".upper()
    for line in (_PROC / f"{init}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == own and fields[9] != "0":
            return fields[9]
    return ""


def _holder(init: int, inode: str) -> int | None:
    candidates = [*([_last[init]] if init in _last else []), *_descendants(init)]
    for process in candidates if inode else []:
        try:
            files = [str(one.readlink()) for one in (_PROC / f"{process}/fd").iterdir()]
        except OSError:
            continue
        if f"socket:[{inode}]" in files:
            _last[init] = process
            return process
    return None


def _descendants(process: int) -> Iterator[int]:
    try:
        listed = [one.read_text() for one in (_PROC / f"{process}/task").glob("*/children")]
    except OSError:
        return
    for child in map(int, " ".join(listed).split()):
        yield child
        yield from _descendants(child)


def _user(init: int, process: int, admin: str) -> str:
    """Return whose a process is: the user of its unit, the admin user's outside of units."""
    while process not in (init, 0):
        try:
            words = (_PROC / f"{process}/cmdline").read_text().split("\0")
            process = int((_PROC / f"{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return ""
        if _KEEPER in words[:2]:
            unit = _PROC / f"{init}/root/etc/systemd/system" / words[words.index(_KEEPER) + 1]
            named = re.findall(r"^User=(.*)$", unit.read_text(), re.M)
            return named[-1] if named else "0"
    return admin
