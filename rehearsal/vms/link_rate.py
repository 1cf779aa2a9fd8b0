"""What the links of nodes carry: Linux's traffic control at the bridge's port of a node."""

from __future__ import annotations

import subprocess

from rehearsal.vms.api import CUT

__all__ = ["set_rate", "tc_lines"]

_BURST = "burst 256kb latency 50ms"
"""Of a filter; larger than what a veth takes at once, 64 KiB."""
_ALL = "10gbit"


def tc_lines(link: str, megabytes: int, source: str = "", *, is_set: bool = False) -> str:
    """Return lines for ``tc -batch``: the node behind ``link`` receives so many MB per second, 0 for all.

    With ``source``, an address, only what comes from there is slow, or lost for CUT. ``is_set``: the
    link has a rate now.

    >>> print(tc_lines("n3", 5, is_set=True), end="")
    qdisc del dev n3 root
    qdisc add dev n3 root tbf rate 40mbit burst 256kb latency 50ms
    """
    lines = [f"qdisc del dev {link} root"] if is_set else []
    rate = _ALL if megabytes == CUT else f"{8 * megabytes}mbit"
    if megabytes and source:
        lines += [
            f"qdisc add dev {link} root handle 1: htb default 1",
            f"class add dev {link} parent 1: classid 1:1 htb rate {_ALL}",
            f"class add dev {link} parent 1: classid 1:2 htb rate {rate} ceil {rate}",
            f"filter add dev {link} parent 1: protocol ip u32 match ip src {source}/32 flowid 1:2",
        ]
        lines += [f"qdisc add dev {link} parent 1:2 pfifo limit 0"] if megabytes == CUT else []
    elif megabytes:
        lines.append(f"qdisc add dev {link} root tbf rate {rate} {_BURST}")
    return "".join(f"{line}\n" for line in lines)


def set_rate(lines: str) -> None:
    """Run ``tc -batch``."""
    done = subprocess.run(["tc", "-batch", "-"], input=lines.encode(), capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"tc -batch: {done.stderr.decode(errors='replace').strip()}")
