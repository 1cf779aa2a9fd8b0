"""mpirun while it runs on the head, and the port to which its runners connect."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING

from launch.remote.base.encryption import CLUSTER_KEY, SharedKey
from launch.remote.base.paths import python_folder
from launch.remote.base.processes import RUNNER_OF, SIGKILL
from launch.remote.head.runners import ssh_start
from launch.remote.mpi.detect import CannotLaunch, find_mpi

if TYPE_CHECKING:
    from launch.remote.base.job_dir import Folder
    from launch.remote.base.records import Plan

__all__ = ["Mpirun", "exporting"]

_BACKLOG = 1024
_FOR_MPIRUN = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "HYDRA_", "MPIEXEC_", "I_MPI_")
"""Beginnings of variables that mean something to mpirun itself. It gets the user's, in its environment."""


class Mpirun:
    """Starts mpirun for a plan; every rank's runner connects to :attr:`listener` and shows :attr:`token`.
    What it is sent is encrypted with :attr:`key`.

    Raises :class:`~launch.remote.mpi.detect.CannotLaunch` when the head has no MPI that the job can use, or
    no key.
    """

    def __init__(self, folder: Folder, plan: Plan) -> None:
        self._plan, self._known = plan, list(plan["mpirun"])
        python = python_folder(plan["python"])
        self._first = f"{python}/bin" if python else ""
        try:
            self._mpi = find_mpi(self._known, self._first)
        except CannotLaunch as error:
            raise CannotLaunch(
                f"{plan['nodes'][0]['name']}, the head: {error}: use an image that brings it, or name as the "
                "job's python an environment on the nodes that does"
            ) from error
        for name in ("hostfile", "machinefile"):
            try:
                with open(folder.file(name), "w", encoding="utf-8") as file:
                    file.write(plan[name])
            except OSError as error:
                head = plan["nodes"][0]["name"]
                raise CannotLaunch(
                    f"{head}, the head: {folder.path} cannot be written: {error.strerror}"
                ) from error
        self.token = os.urandom(16).hex()
        try:
            self.key = SharedKey.of_cluster(self.token)
        except OSError as error:
            head = plan["nodes"][0]["name"]
            raise CannotLaunch(
                f"{head}, the head: the cluster's key {CLUSTER_KEY} cannot be read: {error.strerror}; MPI "
                "jobs encrypt with it what they send: copy it there from another node, with mode 0600"
            ) from error
        self.listener = socket.socket()
        self.listener.bind((plan["nodes"][0]["private_ip"], 0))
        self.listener.listen(_BACKLOG)
        self.listener.setblocking(False)
        host, port = self.listener.getsockname()
        line = plan["mpirun"][self._mpi.name]
        files = {f"{{{name}}}": folder.file(name) for name in ("hostfile", "machinefile")}
        exports = [*self._mpi.exports, "RANKLIFT_LIBRARY_PATH", RUNNER_OF]
        argv = exporting([files.get(word, word) for word in line["argv"]], exports)
        given = {key: value for key, value in line["env"].items() if key not in self._mpi.env}
        given.update((key, value) for key, value in plan["user_env"].items() if key.startswith(_FOR_MPIRUN))
        given.update(RANKLIFT_TOKEN=self.token, RANKLIFT_SUPERVISOR=f"{host}:{port}")
        given.update({"RANKLIFT_LIBRARY_PATH": self._mpi.library_path, RUNNER_OF: plan["id"]})
        self.process: subprocess.Popen[bytes] = ssh_start.start_mpirun(argv, self._mpi, given)

    def unfit(self) -> dict[int, str]:
        """Why nodes cannot start ranks for this mpirun, by node; for when it ended before every rank began.

        Asks them all, which takes as long as ssh to them does. Empty when the reason is another one.
        """
        return ssh_start.other_mpis(self._plan, self._known, self._first, self._mpi)

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    @property
    def status(self) -> int:
        """Its exit status, 128+n for signal n."""
        code = self.process.wait()
        return 128 - code if code < 0 else code

    @property
    def was_killed(self) -> int:
        """The signal that ended it, when that was how it ended; else 0."""
        code = self.process.poll()
        return -code if code is not None and code < 0 else 0

    def signal(self, number: int) -> None:
        """Sends a signal to mpirun itself, which with Intel MPI is what the script of that name started."""
        if self.runs:
            send = os.killpg if self._mpi.name == "intelmpi" else os.kill
            send(self.process.pid, number)

    def close(self) -> None:
        """Ends it if it still runs, and closes the port."""
        if self.runs:
            os.killpg(self.process.pid, SIGKILL)
        self.process.wait()
        self.listener.close()


def exporting(argv: list[str], names: list[str]) -> list[str]:
    """The command line with further variables to pass on beside our own.

    >>> exporting(["mpirun", "-x", "RANKLIFT_TOKEN", "sh"], ["A"])
    ['mpirun', '-x', 'RANKLIFT_TOKEN', '-x', 'A', 'sh']
    >>> exporting(["mpirun", "-genvlist", "B,RANKLIFT_TOKEN", "sh"], ["A"])
    ['mpirun', '-genvlist', 'B,RANKLIFT_TOKEN,A', 'sh']
    """
    words: list[str] = []
    for word in argv:
        words.append(",".join([word, *names]) if word.endswith(",RANKLIFT_TOKEN") else word)
        if word == "RANKLIFT_TOKEN":
            words += [part for name in names for part in ("-x", name)]
    return words
