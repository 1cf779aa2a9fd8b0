"""Who on a rehearsed node reaches the metadata service: its agent, and no process of the nodes' user."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import launch.remote
from images.cloud_init import NodeSetup, cloud_config
from launch.errors import GiveUpError
from launch.job.identity_request import signed_request
from launch.remote.agent.identity_token import SERVICE
from tests.rehearsal.node_lab import USER, Lab, lab

TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://"
BODY = json.dumps({"access_token": "secret", "Events": [], "compute": {"name": "n_0"}})
ASK = "curl -sS --max-time 10 -H Metadata:true --noproxy '*'"


class Service:
    """A metadata service that answers those whom their node lets out."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, bool]] = set()
        """Path, and whether it was answered."""
        self.server: asyncio.Server | None = None

    async def open(
        self, network: str, listener: socket.socket, may_ask: Callable[..., Awaitable[bool]]
    ) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(GiveUpError, asyncio.IncompleteReadError):
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                host, port = writer.get_extra_info("peername")
                may = await may_ask(address=host, port=port)
                self.asked.add((path.partition("?")[0], may))
                if may:
                    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())

        self.server = await asyncio.start_server(answer, sock=listener)

    async def close(self, network: str) -> None:
        if self.server is not None:
            self.server.close()


HOLD = """\
import sys, time
sys.path.insert(0, "/tmp/code")
from launch.remote.node import identity_grant
signed = open(sys.argv[1]).read()
identity_grant.verify(signed)
connection = identity_grant.begin(signed)
print("granted", flush=True)
time.sleep(600)
"""


async def granted_for_a_job(nodes: Lab, folder: Path) -> None:
    """A runner of a signed job opens the service to the nodes' user while it lives, and nobody does again."""
    ask = f"{ASK} 'http://169.254.169.254{TOKEN}management.azure.com/'"
    signed = signed_request("digits-1", ["node000000"], folder / "key")
    paths = [*Path(launch.remote.__file__).parent.rglob("*.py")]
    for path, text in {
        "/tmp/request": signed,
        "/tmp/hold.py": HOLD,
        "/tmp/code/launch/__init__.py": "",
        **{f"/tmp/code/{one.relative_to(launch_root())}": one.read_text() for one in paths if is_used(one)},
    }.items():
        packed = base64.b64encode(text.encode()).decode()
        command = f"mkdir -p {Path(path).parent} && echo '{packed}' | base64 -d > {path}"
        assert await nodes.ssh(0, command) == (0, "")
    hold = "python3 -I -S /tmp/hold.py /tmp/request"
    status, output = await nodes.ssh(0, f"setsid {hold} >/tmp/held 2>&1 & echo $! >/tmp/pid")
    assert status == 0, output
    status, output = await nodes.ssh(0, "until [ -s /tmp/held ]; do sleep 0.1; done; cat /tmp/held")
    assert output == "granted\n"
    assert "secret" in (await nodes.ssh(0, ask))[1]
    await nodes.ssh(0, "kill -9 $(cat /tmp/pid)")
    async with asyncio.timeout(30):
        while "secret" in (await nodes.ssh(0, ask))[1]:
            await asyncio.sleep(0.1)
    status, output = await nodes.ssh(0, hold)
    assert status != 0 and "grants it once" in output, output


def launch_root() -> Path:
    return Path(launch.remote.__file__).parents[2]


def is_used(path: Path) -> bool:
    return path.name == "__init__.py" or path.parent.name in ("base", "agent", "node")


def test_a_rank_gets_no_token_that_could_delete_a_node_and_the_agent_does(tmp_path: Path) -> None:
    async def story() -> None:
        service = Service()
        async with lab(tmp_path, 0, metadata=service) as it:
            it.user_data = cloud_config(
                NodeSetup(
                    user=USER,
                    computer_name_prefix="node",
                    subnet_prefix="10.0.0.0/16",
                    host_public_key=(tmp_path / "host.pub").read_text().strip(),
                    user_public_key=(tmp_path / "key.pub").read_text().strip(),
                    host_private_key=(tmp_path / "host").read_text(),
                    cluster_private_key=(tmp_path / "key").read_text(),
                )
            )
            await it.grow([0])
            await it.ssh(0, "cloud-init status --wait; /etc/rehearsal/bin/cloud-init status --wait")
            async with asyncio.timeout(60):
                while ("/metadata/scheduledevents", True) not in service.asked:
                    await asyncio.sleep(0.1)
            status, output = await it.ssh(0, f"{ASK} 'http://169.254.169.254{TOKEN}management.azure.com/'")
            assert (status != 0, "secret" in output) == (True, False), output
            status, output = await it.ssh(0, f"{ASK} http://169.254.169.254/metadata/instance?api-version=1")
            assert status != 0, output
            door = f"{ASK} --unix-socket {SERVICE.removeprefix('unix:')} 'http://node{TOKEN}"
            assert "secret" in (await it.ssh(0, f"{door}storage.azure.com/'"))[1]
            assert "secret" not in (await it.ssh(0, f"{door}management.azure.com/'"))[1]
            await granted_for_a_job(it, tmp_path)
            tokens = {may for path, may in service.asked if path.endswith("/token")}
            assert tokens == {True, False}, "the agent's own request, and the rank's"
            await it.ssh(0, "rm /run/rehearsal/nft")
            status, output = await it.ssh(0, f"{ASK} http://169.254.169.254/metadata/instance?api-version=1")
            assert status != 0, output

    asyncio.run(story())
