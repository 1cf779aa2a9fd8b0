"""One command on all hosts of an ssh_config with asyncssh, 64 at a time."""

import asyncio
import sys

import asyncssh


async def main(config: str, command: str, hosts: list[str]) -> int:
    """Prints each host's output; exit status 1 when one failed."""
    gate = asyncio.Semaphore(64)

    async def one(host: str) -> bool:
        async with gate, asyncssh.connect(host, config=[config], agent_path=None) as connection:
            done = await connection.run(command)
        print(f"{host}: {done.stdout!s}", end="")
        return done.exit_status == 0

    return 0 if all(await asyncio.gather(*map(one, hosts))) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:])))
