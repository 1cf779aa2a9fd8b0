"""Open MPI's command line, versions 4 and 5."""

from __future__ import annotations

from typing import Literal

from launch.mpi.start import SSH_OPTIONS, CommandLine, Start

__all__ = ["FROM_HOSTS_ON_NO_TREE", "command_line"]

FROM_HOSTS_ON_NO_TREE = 64
"""With so many hosts ssh is started by mpirun alone instead of in a tree, which hangs at odd counts above
(open-mpi/ompi#4578, #7087); Horovod draws the line at the same place."""

FRONT_END = "eth0"
"""The front-end interface of every Azure VM, whatever other adapters it has."""

_HWLOC = "-gl,-opencl"
"""What Open MPI 4's daemons leave out when they look at a node: X displays and OpenCL devices, for which MPI
has no use. The first can deadlock in NVIDIA's driver (open-mpi/ompi#10025; PRRTE leaves it out since
openpmix/prrte#1809), and both together are 4 of the 18 ms of a look (hwloc 2.9, no GPU)."""


def command_line(major: Literal["4", "5"], start: Start) -> CommandLine:
    """mpirun's arguments for Open MPI ``major``.

    The runtime is ORTE in 4 and PRRTE in 5, where the launcher's parameters have other names. Ranks are not
    bound to processors: two jobs on one node would be bound to the same ones.

    >>> argv = command_line("4", Start(8, 64, "10.0.0.0/24", ".ranklift/remote/0123")).argv
    >>> argv[argv.index("plm_rsh_no_tree_spawn") + 1]
    '1'
    """
    four = major == "4"
    launcher, runtime = ("plm_rsh", "--mca") if four else ("plm_ssh", "--prtemca")
    argv = ["mpirun", "-np", str(start.ranks), "--hostfile", "{hostfile}"]
    argv += ["--map-by", "slot", "--bind-to", "none"]
    argv += [runtime, f"{launcher}_agent", f"ssh {SSH_OPTIONS}"]
    if four:
        argv += [runtime, "orte_launch_agent", f"env HWLOC_COMPONENTS={_HWLOC} orted"]
    if start.hosts >= FROM_HOSTS_ON_NO_TREE:
        argv += [runtime, f"{launcher}_no_tree_spawn", "1"]
        argv += [runtime, f"{launcher}_num_concurrent", str(start.hosts)]
    # PRRTE takes networks too, but does not find the interface that belongs to one (seen with 5.0.11)
    mine = ["oob_tcp_if_include", start.network] if four else ["prte_if_include", FRONT_END]
    argv += [runtime, *mine]
    argv += ["--mca", "btl_tcp_if_include", start.network]
    argv += ["-x", "RANKLIFT_SUPERVISOR", "-x", "RANKLIFT_TOKEN"]
    return CommandLine([*argv, *start.extra, *start.program], {"HWLOC_COMPONENTS": _HWLOC} if four else {})
