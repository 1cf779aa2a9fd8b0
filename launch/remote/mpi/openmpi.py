"""Open MPI, versions 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.remote.base.processes import RUNNER_OF
from launch.remote.mpi.base import SSH_OPTIONS, CommandLine, Mpi, Start

__all__ = ["FROM_HOSTS_ON_NO_TREE", "OpenMpi"]

FROM_HOSTS_ON_NO_TREE = 64
"""With so many hosts ssh is started by mpirun alone instead of in a tree, which hangs at odd counts above
(open-mpi/ompi#4578, #7087); Horovod draws the line at the same place."""

FRONT_END = "eth0"
"""The front-end interface of every Azure VM, whatever other adapters it has."""

_HWLOC = "-gl,-opencl"
"""What Open MPI 4's daemons leave out when they look at a node: X displays and OpenCL devices, for which MPI
has no use. The first can deadlock in NVIDIA's driver (open-mpi/ompi#10025; PRRTE leaves it out since
openpmix/prrte#1809), and both together are 4 of the 18 ms of a look (hwloc 2.9, no GPU)."""


class OpenMpi(Mpi):
    """Open MPI. Its runtime is ORTE in version 4 and PRRTE in 5, where parameters have other names."""

    flavour = "openmpi"
    title = "Open MPI"
    version = re.compile(r"\(Open MPI\) (\d\S+)")
    modules = ("mpi/hpcx", "mpi/openmpi")
    soname = "libmpi.so.40"
    mpirun_prefixes = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")
    process_prefixes = ("OMPI_", "PMIX_", "PRTE_")
    rank_variables = (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )
    peer_lost_statuses = (14, 15, 16, 17)  # MPI_ERR_UNKNOWN to MPI_ERR_INTERN
    settled: Mapping[str, str] = {
        **dict.fromkeys(("n", "np", "c"), "ranks"),
        **dict.fromkeys(("N", "npernode", "pernode"), "each"),
        **dict.fromkeys(("H", "host", "hostfile", "machinefile", "default-hostfile"), "hosts"),
        **dict.fromkeys(("rf", "rankfile", "add-host", "add-hostfile", "nolocal"), "hosts"),
        **{"map-by": "map", "ppr": "ppr", "app": "program"},
    }
    values: Mapping[str, int] = {
        **dict.fromkeys(("mca", "gmca", "omca", "prtemca", "pmixmca", "gpmixmca"), 2),
        **dict.fromkeys(("x", "am", "tune", "wd", "wdir", "path", "prefix", "timeout", "stdin", "xterm"), 1),
        **dict.fromkeys(("bind-to", "rank-by", "cpu-set", "cpu-list", "output", "display"), 1),
        **dict.fromkeys(("cpus-per-proc", "cpus-per-rank", "npersocket", "rtos", "runtime-options"), 1),
        **dict.fromkeys(("output-filename", "output-directory", "preload-files", "xml-file", "debugger"), 1),
        **dict.fromkeys(("cf", "cartofile", "max-restarts", "max-vm-size", "personality", "hnp"), 1),
        **dict.fromkeys(("ompi-server", "report-events", "report-pid", "report-uri", "launch-agent"), 1),
    }
    flags = frozenset(
        (
            *("q", "quiet", "v", "verbose", "s", "preload-binary"),
            *("d", "debug-devel", "debug", "debug-daemons"),
            *("allow-run-as-root", "report-bindings", "bind-to-core", "bind-to-socket", "bind-to-none"),
            *("display-map", "display-allocation", "display-topo", "display-devel-map", "show-progress"),
            *("bycore", "byslot", "bynode", "bysocket", "oversubscribe", "nooversubscribe", "noprefix"),
            *("tag-output", "timestamp-output", "merge-stderr-to-stdout", "xml", "leave-session-attached"),
            *("use-hwthread-cpus", "enable-recovery", "disable-recovery", "continuous", "novm", "tv"),
            *("pernode", "nolocal", "get-stack-traces", "report-state-on-timeout", "do-not-launch"),
        )
    )
    node_lost = (re.compile(r"Remote daemon: .* on node (\S+)"),)

    def open_files(self, name: str, hosts: int, ranks: int, /) -> int | None:
        """Return the most files that version 4's mpirun may open. It had 24 open, one for each host and two
        to five for each of its own node's ranks.

        Each of its children closes every descriptor that it may have before it becomes ssh: 144 ms of
        processor time for the 1,048,576 of a node on Azure. PRRTE closes those that are open. What a rank
        starts on the head by MPI_Comm_spawn has this limit too.

        >>> OpenMpi().open_files("openmpi-4", 64, 8), OpenMpi().open_files("openmpi-5", 64, 8)
        (1600, None)
        """
        return 1024 + 8 * (hosts + ranks) if name == "openmpi-4" else None

    @property
    def names(self) -> tuple[str, ...]:
        """One command line for each major version."""
        return ("openmpi-4", "openmpi-5")

    def name(self, version: str, /) -> str:
        """Return the name of the command line for that version.

        >>> OpenMpi().name("4.1.4")
        'openmpi-4'
        """
        return f"{self.flavour}-{version.partition('.')[0]}"

    def command_line(self, name: str, start: Start, /) -> CommandLine:
        """Return mpirun's arguments and environment. Ranks are not bound to processors: two jobs on one node
        would be bound to the same ones.

        >>> from launch.remote.mpi.base import Start
        >>> start = Start(8, 64, "10.0.0.0/24", ".ranklift/remote/0123")
        >>> argv = OpenMpi().command_line("openmpi-4", start).argv
        >>> argv[argv.index("plm_rsh_no_tree_spawn") + 1]
        '1'
        """
        four = name == "openmpi-4"
        launcher, runtime = ("plm_rsh", "--mca") if four else ("plm_ssh", "--prtemca")
        argv = ["mpirun", "-np", str(start.ranks), "--hostfile", "{hostfile}"]
        argv += ["--map-by", "slot", "--bind-to", "none"]
        argv += [runtime, f"{launcher}_agent", f"ssh {SSH_OPTIONS}"]
        if four:  # the remote shell assigns the variables: env would be one more program on each host
            argv += [runtime, "orte_launch_agent", f"HWLOC_COMPONENTS={_HWLOC} {RUNNER_OF}={{job}} orted"]
        if start.hosts >= FROM_HOSTS_ON_NO_TREE:
            argv += [runtime, f"{launcher}_no_tree_spawn", "1"]
            argv += [runtime, f"{launcher}_num_concurrent", str(start.hosts)]
        # PRRTE takes networks too, but does not find the interface that belongs to one (seen with 5.0.11)
        mine = ["oob_tcp_if_include", start.network] if four else ["prte_if_include", FRONT_END]
        argv += [runtime, *mine]
        argv += ["--mca", "btl_tcp_if_include", start.network]
        argv += ["-x", "RANKLIFT_SUPERVISOR", "-x", "RANKLIFT_TOKEN"]
        return CommandLine(
            [*argv, *start.extra, *start.program], {"HWLOC_COMPONENTS": _HWLOC} if four else {}
        )

    def pass_on(self, argv: list[str], names: list[str]) -> list[str]:
        """Return the command line with an ``-x`` for each further variable.

        >>> OpenMpi().pass_on(["mpirun", "-x", "RANKLIFT_TOKEN", "sh"], ["A"])
        ['mpirun', '-x', 'RANKLIFT_TOKEN', '-x', 'A', 'sh']
        """
        place = argv.index("RANKLIFT_TOKEN") + 1
        return [*argv[:place], *(part for name in names for part in ("-x", name)), *argv[place:]]
