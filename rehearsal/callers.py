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

from rehearsal.node_files import read_inside

__all__ = ["forget", "may_ask"]

_RULE = re.compile(
    r"^\s*ip daddr 169\.254\.169\.254 meta skuid != \{ ([^}]*) \}(?: meta skuid != @(granted))? reject$", re.M
)
_KEEPER = "/etc/rehearsal/bin/keep"
_PROC = Path("/proc")
_last: dict[int, int] = {}
"""By a node's first process, the process that asked last: mostly the next one to ask, too."""
_rules: dict[int, re.Match[str]] = {}
"""By a node's first process, the rules that it had first: a job can remove their file, or write another."""


def forget(init: int) -> None:
    """Forget what is known of an earlier node whose first process had this number."""
    _last.pop(init, None)
    _rules.pop(init, None)


def may_ask(init: int, admin: str, address: str, port: int) -> bool:
    """Return whether the node whose first process is ``init`` lets out what comes from this port.

    Without rules it does, as a node of another image; the rules that it once had stay in force. A process
    that is gone may not, nor any where a file that decides cannot be read.
    """
    try:
        rule = _rules.get(init) or _RULE.search(read_inside(_root(init), "run/rehearsal/nft"))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if rule is None:
        return True
    _rules[init] = rule
    process = _holder(init, _inode(init, address, port))
    user = "" if process is None else _user(init, process, admin)
    if not user:
        return False
    is_granted = bool(rule[2]) and user == admin and _id_of(init, admin) in _granted(init)
    return is_granted or user in (name.strip() for name in rule[1].split(","))


def _root(init: int) -> Path:
    return _PROC / f"{init}/root"


def _granted(init: int) -> list[str]:
    """Return the user ids in the rules' set."""
    try:
        return read_inside(_root(init), "run/rehearsal/granted").split()
    except OSError:
        return []


def _id_of(init: int, user: str) -> str:
    """Return the id of a user of the node; "" where it has no such user."""
    try:
        accounts = read_inside(_root(init), "etc/passwd")
    except OSError:
        return ""
    found = re.search(rf"^{re.escape(user)}:[^:\n]*:([0-9]+):", accounts, re.M)
    return found[1] if found else ""


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
    """Return whose a process is: the user of its unit, the admin user's outside of units; "" where that
    cannot be read."""
    while process not in (init, 0):
        try:
            words = (_PROC / f"{process}/cmdline").read_text(errors="replace").split("\0")
            process = int(
                (_PROC / f"{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            )
            if _KEEPER in words[:2]:
                (unit,) = words[words.index(_KEEPER) + 1 :][:1] or [""]
                text = read_inside(_root(init), f"etc/systemd/system/{unit}")
                named = re.findall(r"^User=(.*)$", text, re.M)
                return named[-1] if named else "0"
        except OSError:
            return ""
    return admin
