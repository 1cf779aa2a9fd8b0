"""Open MPI's command line, versions 4 and 5."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

__all__ = ["FROM_HOSTS_ON_NO_TREE", "common_network", "mpirun_argv"]

FROM_HOSTS_ON_NO_TREE = 64
"""With so many hosts ssh is started by mpirun alone instead of in a tree, which hangs at odd counts above
(open-mpi/ompi#4578, #7087); Horovod draws the line at the same place."""

FRONT_END = "eth0"
"""The front-end interface of every Azure VM, whatever other adapters it has."""

AGENT = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5"


def common_network(addresses: Sequence[str]) -> str:
    """The smallest network of at least a /24 that holds all addresses, for Open MPI's interface choice.

    >>> common_network(["10.0.0.4", "10.0.0.5", "10.0.1.3"])
    '10.0.0.0/23'
    """
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    length = min(24, 32 - (min(numbers) ^ max(numbers)).bit_length())
    return str(ipaddress.ip_network((min(numbers), length), strict=False))


def mpirun_argv(major: str, ranks: int, hosts: int, network: str, remote: str) -> list[str]:
    """mpirun's arguments for Open MPI ``major`` (4 or 5); ``{hostfile}`` stands for the file on the head.

    mpirun starts one runner per rank and nothing else: what the user runs, its environment and every
    secret go to the runners over a connection of their own. ``remote`` is the folder of the node code
    under the home folder, which differs from node to node at most in its place.

    >>> argv = mpirun_argv("4", 8, 64, "10.0.0.0/24", ".ranklift/remote/0123")
    >>> argv[argv.index("plm_rsh_no_tree_spawn") + 1]
    '1'
    """
    four = major == "4"
    launcher, runtime = ("plm_rsh", "--mca") if four else ("plm_ssh", "--prtemca")
    argv = [
        "mpirun",
        "-np",
        str(ranks),
        "--hostfile",
        "{hostfile}",
        "--map-by",
        "slot",
        "--bind-to",
        "none",
    ]
    argv += [runtime, f"{launcher}_agent", AGENT]
    if hosts >= FROM_HOSTS_ON_NO_TREE:
        argv += [runtime, f"{launcher}_no_tree_spawn", "1", runtime, f"{launcher}_num_concurrent", str(hosts)]
    # PRRTE takes networks too, but does not find the interface that belongs to one (seen with 5.0.11)
    argv += [runtime, "oob_tcp_if_include", network] if four else [runtime, "prte_if_include", FRONT_END]
    argv += ["--mca", "btl_tcp_if_include", network]
    argv += ["-x", "RANKLIFT_SUPERVISOR", "-x", "RANKLIFT_TOKEN"]
    return [*argv, "sh", "-c", f'exec python3 -I -S "$HOME/{remote}/__main__.py" rank']
