"""Client of a network's :mod:`~rehearsal.vms.netns` process: starts it and sends it requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.errors import GiveUpError
from rehearsal.vms.boot import INNER_ID
from rehearsal.vms.nat_gateway import start_nat_gateway
from rehearsal.vms.netns import PACKET

__all__ = ["UNSHARE", "NetnsClient", "start_netns"]

_START_LIMIT = 60.0
_END_LIMIT = 30.0

UNSHARE = tuple(
    "unshare --user --map-root-user --keep-caps "
    f"unshare --user --map-user={INNER_ID} --map-group={INNER_ID} --keep-caps --net --mount --uts --pid "
    "--ipc --fork --kill-child --mount-proc".split()
)
"""Command that makes a network's namespaces, as root and as an ordinary user alike.

The user namespace around the network's has a root, as whom an ordinary user's NAT gateway can lock itself in.
"""


class NetnsClient:
    """Requests to one netns process; answers come in any order. :func:`start_netns` makes it."""

    def __init__(self, control: socket.socket, process: asyncio.subprocess.Process, log: Path) -> None:
        self._control, self._process, self._log = control, process, log
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._open = True
        self._gateway: asyncio.subprocess.Process | None = None
        self.user_namespace = ""
        """The network's user namespace as ``/proc/<pid>/ns/user`` names it."""
        self.first_process = 0
        """The network's PID 1, as it is numbered here."""
        self.started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Done when the network exists, or with the error that prevented it."""
        self._waiting[0] = self.started
        asyncio.get_running_loop().add_reader(control, self._receive)

    async def request(self, operation: str, *, files: Sequence[int] = (), **arguments: Any) -> Any:
        """Send a request and return its result, an open file as its number; ``files`` are sent along.

        Raises :class:`~launch.errors.GiveUpError` when the operation failed or the network is gone.
        """
        if not self._open:
            raise GiveUpError(f"the virtual network ended: {self._last_log_line()}")
        self._last += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        packet = json.dumps({"id": self._last, "op": operation, **arguments}).encode()
        if len(packet) > PACKET:
            raise GiveUpError(f"{operation}: {len(packet)} bytes are more than one packet holds")
        while True:
            try:
                socket.send_fds(self._control, [packet], list(files))
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError as error:
                self._fail(str(error))
                break
            else:
                break
        return await future

    async def open_gateway(self) -> None:
        """Start the network's NAT gateway, if it does not run."""
        if self._gateway is not None:
            return
        here, there = os.pipe()
        try:
            await self.request("gateway", files=[there])
        finally:
            os.close(there)
        try:
            self._gateway = await start_nat_gateway(self.first_process, here, self._log)
        finally:
            os.close(here)

    async def close(self) -> None:
        """End the network; return when the kernel has ended every process in it."""
        if self._open:
            self._fail("closed")
        self._control.close()
        try:
            async with asyncio.timeout(_END_LIMIT):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._gateway is not None:  # it ends by itself: its pipe has no other end by now
            try:
                async with asyncio.timeout(_END_LIMIT):
                    await self._gateway.wait()
            except TimeoutError:
                self._gateway.kill()
                await self._gateway.wait()

    def _receive(self) -> None:
        try:
            packet, files, _flags, _address = socket.recv_fds(self._control, PACKET, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, files = b"", []
        if not packet:
            self._fail(self._last_log_line())
            return
        answer = json.loads(packet)
        future = self._waiting.pop(answer["id"], None)
        if future is None or future.done():
            for file in files:
                os.close(file)
            return
        if "error" in answer:
            future.set_exception(GiveUpError(answer["error"]))
        else:
            future.set_result(files[0] if files else answer["result"])

    def _fail(self, reason: str) -> None:
        self._open = False
        asyncio.get_running_loop().remove_reader(self._control)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(GiveUpError(f"the virtual network ended: {reason}"))
        self._waiting.clear()

    def _last_log_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1] if lines else "its log is empty"


async def start_netns(disks: Path, settings: Mapping[str, Any], log: Path) -> NetnsClient:
    """Start a netns process with its namespaces and wait until its network exists.

    It dies with this process's main thread. Raises :class:`~launch.errors.GiveUpError`
    with its last log line.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.send(json.dumps(settings, default=str).encode())  # paths are text there
    code_root = str(Path(__file__).resolve().parents[2])
    with theirs, log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            # Not by preexec_fn: that would fork this process with the threads of its gRPC server.
            *("setpriv", "--pdeathsig", "KILL", "--"),
            *UNSHARE,
            sys.executable,
            "-m",
            "rehearsal.vms.netns",
            str(theirs.fileno()),
            str(disks),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd=code_root,
            env={**os.environ, "PYTHONPATH": code_root, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    client = NetnsClient(ours, process, log)
    try:
        async with asyncio.timeout(_START_LIMIT):
            await client.started
        first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        client.user_namespace = str(Path(f"/proc/{first}/ns/user").readlink())
        client.first_process = first
    except BaseException:
        await client.close()
        raise
    return client
