"""One command on all nodes of a stack's folder with asyncssh, 64 at a time.

Addresses come from the saved inventory and keys are read once: given the ssh_config, asyncssh would parse all
of it again for each node, and be measured at that.
"""

import asyncio
import sys
from pathlib import Path

import asyncssh

from infra.inventory import KEY_FILE, KNOWN_HOSTS_FILE, Node, load


async def main(folder: Path, command: str) -> int:
    """Prints each node's output; exit status 1 when one failed."""
    inventory = load(folder)
    key = asyncssh.read_private_key(folder / KEY_FILE)
    known_hosts = asyncssh.read_known_hosts(str(folder / KNOWN_HOSTS_FILE))
    gate = asyncio.Semaphore(64)

    async def one(node: Node) -> bool:
        async with (
            gate,
            asyncssh.connect(
                node.host,
                node.port,
                username=inventory.user,
                host_key_alias=node.name,
                client_keys=[key],
                known_hosts=known_hosts,
                config=None,
                agent_path=None,
            ) as connection,
        ):
            done = await connection.run(command)
        print(f"{node.name}: {done.stdout!s}", end="")
        return done.exit_status == 0

    return 0 if all(await asyncio.gather(*map(one, inventory.nodes))) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))
