"""mpirun while it runs on the head, and the door at which its runners knock."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from launch.remote import launchers
from launch.remote.links import Link

if TYPE_CHECKING:
    from launch.remote.jobs import Folder

__all__ = ["Mpirun"]

_BACKLOG = 1024


class Mpirun:
    """Starts mpirun for a plan; every rank's runner connects to :attr:`listener` and shows :attr:`token`.

    Raises :class:`~launch.remote.launchers.CannotLaunch` when the head has no Open MPI it can use.
    """

    def __init__(self, folder: Folder, plan: dict[str, Any]) -> None:
        mpi = launchers.find_mpi(sorted(plan["mpirun"]))
        with open(folder.file("hostfile"), "w", encoding="utf-8") as file:
            file.write(plan["hostfile"])
        self.token = os.urandom(16).hex()
        self.listener = socket.socket()
        self.listener.bind((plan["nodes"][0]["private_ip"], 0))
        self.listener.listen(_BACKLOG)
        self.listener.setblocking(False)
        host, port = self.listener.getsockname()
        argv = [word.replace("{hostfile}", folder.file("hostfile")) for word in plan["mpirun"][mpi.major]]
        hidden = {"RANKLIFT_TOKEN": self.token, "RANKLIFT_SUPERVISOR": f"{host}:{port}"}
        self.process: subprocess.Popen[bytes] = launchers.start_mpirun(argv, mpi, hidden)

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    @property
    def status(self) -> int:
        """Its exit status, 128+n for signal n."""
        code = self.process.wait()
        return 128 - code if code < 0 else code

    def accept(self) -> Link | None:
        """The next runner at the door; nothing is known of it before its HELLO."""
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Link(None, connection=connection)

    def signal(self, number: int) -> None:
        """Sends a signal to mpirun itself."""
        if self.runs:
            self.process.send_signal(number)

    def close(self) -> None:
        """Ends it if it still runs, and closes the door."""
        if self.runs:
            self.process.kill()
        self.process.wait()
        self.listener.close()
