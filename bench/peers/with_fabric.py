"""One command on all hosts of an ssh_config with Fabric's own ThreadingGroup: one thread a host."""

import sys

from fabric import Config, ThreadingGroup


def main(config: str, command: str, hosts: list[str]) -> int:
    """Prints each host's output; exit status 1 when one failed."""
    group = ThreadingGroup(*hosts, config=Config(runtime_ssh_path=config))
    for connection, done in group.run(command, hide=True).items():
        print(f"{connection.original_host}: {done.stdout}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
