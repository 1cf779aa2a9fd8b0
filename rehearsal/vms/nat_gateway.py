"""Connections of a network's nodes to the world outside, as a NAT gateway passes them on, and their DNS.

A ``slirp4netns`` process beside the daemon opens them as this user, without root. The network's process
decides by nftables whose traffic reaches it: that of subnets with outbound access. The loopback interface of
this machine stays closed, and so do link-local addresses and Azure's own: this machine may be a VM of Azure's
itself, whose identity is not the nodes' to use.

The process sees no files but ``/etc`` and ``/run``, and may not make dangerous system calls: it parses what
nodes send. Where it cannot lock itself in, nodes get no way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from launch.errors import GiveUpError

__all__ = ["DNS_IP", "filter_text", "own_addresses", "set_filter", "start_nat_gateway"]

DNS_IP = "168.63.129.16"
"""Azure's DNS in every virtual network (learn.microsoft.com, "What is IP address 168.63.129.16")."""

_HOST_ONLY = ("169.254.0.0/16", "192.0.0.0/24", DNS_IP)
"""Where a VM's own platform answers it alone: metadata and tokens of its identity, its agent's settings. Some
clouds have theirs in the addresses of IETF protocols (RFC 6890), such as 192.0.0.192."""
_NOWHERE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""What Azure drops outside of a virtual network (learn.microsoft.com, "Virtual network traffic routing",
default routes)."""
_LINK = "tap0"
# No virtual network of Azure may have link-local addresses: nodes cannot have the same ones
# (learn.microsoft.com, "Azure Virtual Network FAQ").
_PREFIX, _DNS = "169.254.100.0/24", "169.254.100.3"
_START_LIMIT = 30.0
_NS_GET_PARENT = 0xB702  # ioctl_ns(2)
_NFT = "/usr/sbin/nft"  # where PATH of ordinary users does not lead


def own_addresses() -> list[str]:
    """Return this machine's addresses beside loopback's: servers there stand for the world's."""
    argv = ["ip", "-json", "-4", "address", "show", "scope", "global", "up"]
    links = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    # An address of another scope is an empty object.
    return sorted({str(one["local"]) for link in links for one in link.get("addr_info", ()) if one})


def filter_text(subnets: Sequence[str], own: Sequence[str]) -> str:
    """Return the nftables rules by which these subnets reach the world, and all nodes Azure's DNS.

    Of private addresses the world has ``own`` alone: a node reaches neither another virtual network nor the
    network that this machine is in. Link-local addresses and Azure's own lead nowhere, even if ``own`` has
    some. What is not passed on is dropped without an answer, so that connections time out as on Azure.
    """
    sources = f'oifname "{_LINK}" ip saddr {{ {", ".join(subnets)} }}'
    allowed = f"\t\t{sources} ip daddr {{ {', '.join(own)} }} accept\n" if subnets and own else ""
    if subnets:
        allowed += f"\t\t{sources} ip daddr != {{ {', '.join(_NOWHERE)} }} accept\n"
    return f"""\
add table ip outbound
delete table ip outbound
table ip outbound {{
\tchain forward {{
\t\ttype filter hook forward priority filter;
\t\toifname "{_LINK}" ip daddr {_DNS} meta l4proto {{ tcp, udp }} th dport 53 accept
\t\toifname "{_LINK}" ip daddr {{ {", ".join(_HOST_ONLY)} }} drop
{allowed}\t\toifname "{_LINK}" drop
\t}}
\tchain prerouting {{
\t\ttype nat hook prerouting priority dstnat;
\t\tip daddr {DNS_IP} meta l4proto {{ tcp, udp }} th dport 53 dnat to {_DNS}
\t}}
\tchain postrouting {{
\t\ttype nat hook postrouting priority srcnat;
\t\toifname "{_LINK}" masquerade
\t}}
}}
"""


def set_filter(subnets: Sequence[str], own: Sequence[str] = ()) -> None:
    """Put :func:`filter_text` into force in this process's network, in one step; connections stay open."""
    text = filter_text(subnets, own).encode()
    done = subprocess.run([_NFT, "-f", "-"], input=text, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{_NFT}: {done.stderr.decode(errors='replace').strip()}")


async def start_nat_gateway(pid: int, until: int, log: Path) -> asyncio.subprocess.Process:
    """Start the passing on for the network of process ``pid``; return when nodes can be answered.

    It ends with this process's main thread, and when the other end of the pipe ``until`` is closed. Raises
    :class:`~launch.errors.GiveUpError` with what it logged, as when its sandbox cannot be made.
    """
    ready, theirs = os.pipe()
    with contextlib.ExitStack() as stack:
        reading = stack.enter_context(open(ready, "rb", buffering=0))  # noqa: PTH123 - a descriptor
        with open(theirs, "wb", buffering=0) as writing, log.open("ab") as out, _around(pid) as outer:  # noqa: PTH123
            began = out.tell()
            process = await asyncio.create_subprocess_exec(
                # As an ordinary user, slirp4netns makes its sandbox only where it is root.
                *("nsenter", f"--user=/proc/self/fd/{outer.fileno()}", "--preserve-credentials", "--"),
                *("setpriv", "--pdeathsig", "KILL", "--", "slirp4netns"),
                *("--configure", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"),
                *("--mtu=65520", f"--cidr={_PREFIX}"),
                *(f"--exit-fd={until}", f"--ready-fd={writing.fileno()}"),
                *(f"--userns-path=/proc/{pid}/ns/user", "--netns-type=path", f"/proc/{pid}/ns/net", _LINK),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[until, writing.fileno(), outer.fileno()],
                start_new_session=True,
                cwd="/",
            )
        try:
            async with asyncio.timeout(_START_LIMIT):
                up = await asyncio.to_thread(reading.read, 1)
        except BaseException:
            process.kill()
            await process.wait()
            raise
    if not up:
        await process.wait()
        lines = log.read_bytes()[began:].decode(errors="replace").splitlines()
        reason = "; ".join(line for line in lines if not line.startswith("WARNING")) or "its log is empty"
        raise GiveUpError(f"the NAT gateway did not start: {reason}")
    return process


def _around(pid: int) -> BinaryIO:
    """Return the user namespace in which that of process ``pid`` is, open."""
    with open(f"/proc/{pid}/ns/user", "rb", buffering=0) as inner:  # noqa: PTH123 - without a buffer
        return open(fcntl.ioctl(inner, _NS_GET_PARENT), "rb", buffering=0)  # noqa: PTH123 - a descriptor
