"""Nodes' connections to the world: from subnets with outbound access, never to this machine's loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launch.errors import GiveUpError
from rehearsal.vms.nat_gateway import filter_text
from tests.rehearsal.node_lab import NETWORK, gateways, in_namespace, lab, outside_address
from tests.rehearsal.vms import azure_machine

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


def test_of_a_machine_on_azure_nodes_reach_neither_metadata_nor_the_host(tmp_path: Path) -> None:
    operator = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-m", azure_machine.__name__]
    done = subprocess.run([*operator, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "192.0.2.7": "answered",
        **dict.fromkeys(azure_machine.HOST_ONLY, "silent"),
        "IPv6 addresses of the network": [],
    }


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


def test_the_gateway_sees_no_files_of_this_machine_and_may_not_make_every_system_call(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            await it.machines.set_outbound(NETWORK, [])
            (gateway,) = gateways(os.getpid())
            mounted = [
                line.split()[4] for line in Path(f"/proc/{gateway}/mountinfo").read_text().splitlines()
            ]
            assert {f"/{place.split('/')[1]}" for place in mounted} == {"/", "/etc", "/run"}
            status = Path(f"/proc/{gateway}/status").read_text()
            assert re.findall(r"^(?:Seccomp|NoNewPrivs):\t(\d)$", status, re.M) == ["1", "2"]

    asyncio.run(story())


def test_a_gateway_that_cannot_lock_itself_in_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "slirp4netns"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'cannot unshare new mount namespace'\necho 'do_slirp failed'\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            with pytest.raises(GiveUpError, match="cannot unshare new mount namespace; do_slirp failed"):
                await it.machines.set_outbound(NETWORK, ["10.0.0.0/16"])

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
