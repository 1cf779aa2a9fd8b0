"""MPICH, what is built on it, such as MVAPICH, and its launcher hydra, which Intel MPI has too."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.remote.mpi.base import SSH_OPTIONS, CommandLine, Mpi, Start

__all__ = ["Hydra", "Mpich"]


class Hydra(Mpi):
    """An MPI whose ranks hydra starts."""

    library = soname = "libmpi.so.12"
    mpirun_prefixes: tuple[str, ...] = ("HYDRA_", "MPIEXEC_")
    process_prefixes = ("PMI_",)
    launcher_prefixes: tuple[str, ...] = ("HYDRA_", "HYDI_")
    rank_variables = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    abort = re.compile(rb"Abort\(\d+\) on node \d+ \(rank ")
    peer_lost = re.compile(rb"Fatal error in (internal|PMPI)_")
    settled: Mapping[str, str] = {
        **dict.fromkeys(("n", "np"), "ranks"),
        **dict.fromkeys(("f", "host", "hosts", "hostfile", "machine", "machinefile", "rankmap"), "hosts"),
        **{"ppn": "each", "skip-launch-node": "hosts", "configfile": "program"},
    }
    values: Mapping[str, int] = {
        **dict.fromkeys(("genv", "env"), 2),
        **dict.fromkeys(("genvlist", "envlist", "launcher", "launcher-exec", "rmk", "topolib", "demux"), 1),
        **dict.fromkeys(("bind-to", "map-by", "membind", "iface", "wd", "wdir", "path", "umask", "s"), 1),
        **dict.fromkeys(("outfile-pattern", "errfile-pattern", "prepend-pattern", "nameserver", "usize"), 1),
        **dict.fromkeys(("localhost", "gpus-per-proc", "gpu-subdevs-per-proc", "order-nodes", "arch"), 1),
        **dict.fromkeys(("memory-alloc-kinds", "pmi-args", "bootstrap", "bootstrap-exec"), 1),
    }
    flags = frozenset(
        (
            *("l", "prepend-rank", "v", "verbose", "info", "genvall", "genvnone", "envall", "envnone", "dl"),
            *("enable-x", "disable-x", "print-all-exitcodes", "disable-auto-cleanup", "profile", "pmi-port"),
            *("disable-hostname-propagation", "skip-launch-node", "hybrid-hosts", "auto-cleanup"),
            *("ordered-output", "nolocal", "print-rank-map", "prepend-timestamp", "prot"),
            *("aps", "mps", "gdb"),
            *("silent-abort", "rr", "noconf", "localonly"),
        )
    )
    node_lost = (re.compile(r"connection to proxy \d+ at host (\S+) failed"),)

    @staticmethod
    def argv(start: Start, *passed_on: str) -> list[str]:
        """Return mpirun's arguments; the machine file's ``name:n`` lines alone fix which rank is where.

        ``-f`` is the same to MPICH, but Intel MPI then puts the first line's number of ranks on every node.

        Hydra would give every rank the whole environment of the head's mpirun, HOME and PATH among it. With
        ``-genvlist`` it passes on two variables instead, and those named in ``passed_on``, by its own
        connections and never on a command line.
        """
        argv = ["mpirun", "-np", str(start.ranks), "-machinefile", "{machinefile}", "-launcher", "ssh"]
        argv += ["-genvlist", ",".join([*passed_on, "RANKLIFT_SUPERVISOR", "RANKLIFT_TOKEN"])]
        return [*argv, *start.extra, *start.program]

    def pass_on(self, argv: list[str], names: list[str]) -> list[str]:
        """Return the command line with further names in the list of variables.

        >>> Hydra().pass_on(["mpirun", "-genvlist", "B,RANKLIFT_TOKEN", "sh"], ["A"])
        ['mpirun', '-genvlist', 'B,RANKLIFT_TOKEN,A', 'sh']
        """
        return [",".join([word, *names]) if word.endswith(",RANKLIFT_TOKEN") else word for word in argv]


class Mpich(Hydra):
    """MPICH."""

    flavour = "mpich"
    title = "MPICH"
    settled: Mapping[str, str] = {**Hydra.settled, "N": "ranks"}
    version = re.compile(r"HYDRA build details:\s+Version:\s+(\d\S+)")
    modules = ("mpi/mvapich2", "mpi/mvapich")

    def command_line(self, _name: str, start: Start, /) -> CommandLine:
        """Return mpirun's arguments and environment: MPICH takes options for ssh from a variable alone, and
        binds no rank by itself."""
        return CommandLine(self.argv(start), {"HYDRA_LAUNCHER_EXTRA_ARGS": SSH_OPTIONS})
