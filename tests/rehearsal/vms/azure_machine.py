"""An operator's machine on Azure, as a network namespace: its own platform answers at addresses of Azure's.

``python -m tests.rehearsal.vms.azure_machine FOLDER`` in such a namespace boots a node with a way out, and
prints which addresses answer the node.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.rehearsal.node_lab import NETWORK, Lab, in_namespace, lab

WORLD = "192.0.2.7"
HOST_ONLY = ("169.254.169.254", "169.254.7.7", "192.0.0.192", "168.63.129.16")
_PORT = 8080
_ASK = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
    print("answered")
except OSError:
    print("silent")
"""


def ip(line: str) -> str:
    return subprocess.run(["ip", *line.split()], check=True, capture_output=True, text=True).stdout


async def main(folder: Path) -> None:
    ip("link set lo up")
    for address in (WORLD, *HOST_ONLY):
        ip(f"addr add {address}/32 dev lo scope global")
    found: dict[str, object] = {}
    async with (
        await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", _PORT),
        lab(folder, 1) as it,
    ):
        await it.machines.set_outbound(NETWORK, ["10.0.0.0/16"])
        for address in (WORLD, *HOST_ONLY):
            found[address] = await ask(it, address)
        space = (await it.machines.status())["networks"][NETWORK]["user_namespace"]
        enter = ["nsenter", "-U", "--preserve-credentials", "-n", "-t", str(min(in_namespace(space)))]
        listed = subprocess.run([*enter, "ip", "-json", "-6", "addr"], check=True, capture_output=True).stdout
        found["IPv6 addresses of the network"] = [
            one for link in json.loads(listed) for one in link["addr_info"]
        ]
    sys.stdout.write(json.dumps(found))


async def ask(it: Lab, address: str) -> str:
    _, output = await it.ssh(0, f"python3 - {address} {_PORT} <<'END'\n{_ASK}END")
    return output.strip()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
