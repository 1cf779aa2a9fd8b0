"""Intel MPI."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.remote.mpi.base import SSH_OPTIONS, CommandLine, Start
from launch.remote.mpi.mpich import Hydra

__all__ = ["IntelMpi"]

_PROVIDER = "FI_PROVIDER"


class IntelMpi(Hydra):
    """Intel MPI. Its mpirun is a script that starts the real one."""

    flavour = "intelmpi"
    title = "Intel MPI"
    version = re.compile(r"Intel\(R\) MPI Library.*Version (\d\S+)")
    modules = ("mpi/impi-2021", "mpi/impi")
    mpirun_prefixes = (*Hydra.mpirun_prefixes, "I_MPI_")
    launcher_prefixes = (*Hydra.launcher_prefixes, "I_MPI_HYDRA_")
    signals_group = True
    settled: Mapping[str, str] = {
        **Hydra.settled,
        **dict.fromkeys(("perhost", "grr"), "each"),
        **dict.fromkeys(("hosts-group", "nolocal", "localonly"), "hosts"),
    }
    values: Mapping[str, int] = {
        **Hydra.values,
        **dict.fromkeys(("gtool", "gtoolfile", "gdb-args", "cpu-bind", "branch-count", "tmpdir", "a"), 1),
    }

    def command_line(self, _name: str, start: Start, /) -> CommandLine:
        """Return mpirun's arguments and environment.

        Pinning is off unless the user sets it: it would give two jobs on one node the same processors. Over
        InfiniBand the provider is ``mlx``, which uses UCX: ``verbs`` is slower and unstable there
        (azure-compute-docs setup-mpi.md; azhpc-images tests/test-definitions.sh). An image's or a user's
        ``FI_PROVIDER`` wins.
        """
        env = {"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH_OPTIONS, "I_MPI_PIN": "off"}
        if not start.infiniband:
            return CommandLine(self.argv(start), env)
        return CommandLine(self.argv(start, _PROVIDER), {**env, _PROVIDER: "mlx"})
