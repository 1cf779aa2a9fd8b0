"""Nodes' connections to the world: from subnets with outbound access, never to this machine's loopback."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rehearsal.vms.nat_gateway import filter_text
from tests.rehearsal.node_lab import NETWORK, gateways, in_namespace, lab, outside_address

GET = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=3).read().decode())'"


@asynccontextmanager
async def server(address: str) -> AsyncIterator[int]:
    """A web server at an address of this machine; its answer is the address of who asks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\nto {writer.get_extra_info('peername')[0]}".encode())
        writer.close()

    started = await asyncio.start_server(answer, address, 0)
    async with started:
        yield started.sockets[0].getsockname()[1]


def test_nodes_with_outbound_access_reach_a_server_and_others_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        here = outside_address()
        async with lab(tmp_path, 1) as it, server(here) as port:
            ask = f"{GET} http://{here}:{port}"
            await it.machines.set_outbound(NETWORK, [])
            status, output = await it.ssh(0, ask)
            assert (status, "timed out" in output) == (1, True)
            await it.machines.set_outbound(NETWORK, ["10.0.64.0/24", "10.0.0.0/24"])
            assert await it.ssh(0, ask) == (0, f"to {here}\n")
            await it.machines.set_outbound(NETWORK, ["10.0.64.0/24"])
            assert (await it.ssh(0, ask))[0] == 1

    asyncio.run(story())


def test_private_addresses_lead_nowhere_but_to_this_machine() -> None:
    text = filter_text(["10.0.0.0/16"], ["10.9.8.7"])
    rules = [line.strip() for line in text.splitlines() if " saddr " in line]
    assert rules == [
        'oifname "tap0" ip saddr { 10.0.0.0/16 } ip daddr { 10.9.8.7 } accept',
        'oifname "tap0" ip saddr { 10.0.0.0/16 } '
        "ip daddr != { 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 } accept",
    ]
    assert " saddr " not in filter_text([], ["10.9.8.7"])


def test_no_node_reaches_what_listens_on_this_machines_loopback(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it, server("127.0.0.1") as port:
            await it.machines.set_outbound(NETWORK, ["10.0.0.0/16"])
            inside = ("169.254.100.2", "169.254.100.3", "169.254.100.100", "10.0.0.1")
            for address in (*inside, it.address, "127.0.0.1"):
                status, output = await it.ssh(0, f"{GET} http://{address}:{port}")
                assert status == 1, f"{address}: {output}"

    asyncio.run(story())


QUERY = "\x12\x34\1\0\0\1\0\0\0\0\0\0\7nothing\7invalid\0\0\1\0\1"
ASK_DNS = f"""\
import re, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
server = re.findall(r"^nameserver (\\S+)", open("/etc/resolv.conf").read(), re.M)[0]
s.sendto({QUERY!r}.encode("latin1"), (server, 53))
print(s.recv(512)[:2])
"""


def test_every_node_asks_azures_dns_which_this_machine_answers(tmp_path: Path) -> None:
    here = subprocess.run(["python3", "-c", ASK_DNS], capture_output=True, text=True, check=False)
    if here.returncode:
        pytest.skip("this machine has no DNS")

    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            await it.machines.set_outbound(NETWORK, [])
            assert await it.ssh(0, "cat /etc/resolv.conf") == (0, "nameserver 168.63.129.16\n")
            assert await it.ssh(0, f"python3 -c {shlex.quote(ASK_DNS)}") == (0, here.stdout)

    asyncio.run(story())


def test_the_gateway_ends_with_its_network_and_with_whoever_started_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            await it.machines.set_outbound(NETWORK, [])
            (gateway,) = gateways(os.getpid())
            space = (await it.machines.status())["networks"][NETWORK]["user_namespace"]
            os.kill(min(in_namespace(space)), signal.SIGKILL)
            await gone(gateway)

    asyncio.run(story())


async def gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.05)
