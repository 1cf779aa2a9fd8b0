"""Process of a virtual network, inside its namespaces: it boots nodes, links them and forwards ports.

It is the first process (PID 1) of the network's PID namespace, so that the kernel ends every node with it.
The rehearsal daemon sends it requests over an inherited ``SOCK_SEQPACKET`` pair, a JSON object a packet:
``{"id", "op", ...}`` is answered by ``{"id", "result"}`` or ``{"id", "error"}``; sockets come along, both
ways, as file descriptors. End of file there is the end of the network. Standard library only, started by
:mod:`rehearsal.vms.netns_client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rehearsal.callers import forget, may_ask
from rehearsal.hardware.memory import MEMINFO, MemoryFiles
from rehearsal.hardware.preload import set_clock
from rehearsal.vms.boot import NodeSpec, mac, power_on
from rehearsal.vms.forward import Forward
from rehearsal.vms.link_rate import set_rate, tc_lines
from rehearsal.vms.mounts import add_home, change_devices, ip, make_bridge, prepare
from rehearsal.vms.nat_gateway import set_filter

__all__ = ["PACKET", "NetnsProcess", "main"]

PACKET = 150_000
"""Largest packet of the control pair, bytes: below Linux's default socket buffer of 208 KiB."""

_BATCH = 32  # nodes that boot at once: each is a forked interpreter of some MB until it becomes its init
_BOOT_LIMIT = 90.0
_LISTENS = ":0016 00000000:0000 0A"  # a line of /proc/<pid>/net/tcp: port 22, state LISTEN


class NetnsProcess:
    """One network: its nodes' first processes and the ports forwarded to them."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._specs: dict[str, NodeSpec] = {}
        self._gone: dict[int, asyncio.Event] = {}
        self._cut: set[str] = set()
        self._slow: set[str] = set()
        self._forwards: dict[tuple[str, int], Forward] = {}
        self._memory = MemoryFiles()
        self._gateway: int | None = None
        self._open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files[1], self._open_files[1]))

    # Operations: one for each "op"; their keywords are the packet's keys.

    async def op_boot(self, nodes: list[dict[str, Any]]) -> dict[str, str]:
        """Boot nodes; return the errors by name (none: every sshd listens)."""
        specs = [NodeSpec(**node) for node in nodes if node["name"] not in self._pids]
        errors: dict[str, str] = {}
        for user in {spec.admin_user for spec in specs}:
            add_home(user)
        for start in range(0, len(specs), _BATCH):
            errors |= await self._boot_batch(specs[start : start + _BATCH])
        return errors

    async def op_remove(self, names: list[str]) -> None:
        """End nodes; return when none of their processes is left."""
        await self._end(names, unlink_first=False)
        for name in names:
            self._specs.pop(name, None)

    async def op_fault(self, name: str, fault: str) -> None:
        """Inject death, partition or heal of one node."""
        spec = self._specs[name]
        if fault == "death":
            # The link goes down first: peers of a lost VM receive nothing, not even its processes' FINs.
            await self._end([name], unlink_first=True)
            for forward in self._forwards_to(spec):
                forward.reset()
        elif fault == "partition" and name in self._pids:
            ip(f"link set {spec.link} down\n")
            self._cut.add(name)
            for forward in self._forwards_to(spec):
                forward.pause()
        elif fault == "heal" and name in self._cut:
            ip(f"link set {spec.link} up\n")
            self._heal(spec)

    async def op_clock(self, names: list[str], seconds: int) -> None:
        """Shift the clocks of nodes by ``seconds``; 0 is the right time."""
        for name in names:
            if name in self._pids:
                set_clock(Path(f"/proc/{self._pids[name]}/root"), seconds)

    async def op_shape(self, names: list[str], rate: int, source: str) -> None:
        """Let nodes receive ``rate`` MB per second, from node ``source`` if given; 0: as much as comes."""
        for name in names:
            if name in self._pids:
                origin = self._specs[source].private_ip if source else ""
                set_rate(tc_lines(self._specs[name].link, rate, origin, is_set=name in self._slow))
                (self._slow.add if rate else self._slow.discard)(name)

    async def op_devices(self, name: str, changed: dict[str, str | None]) -> None:
        """Change what a node shows of its devices: files below ``/sys``, ``None`` for one that goes."""
        if name in self._pids:
            change_devices(self._pids[name], changed)

    async def op_forward(self, listener: int, listen: list[Any], target: list[Any]) -> None:
        """Start to forward connections of the socket in this packet."""
        address = (str(listen[0]), int(listen[1]))
        if address in self._forwards:
            self._forwards[address].close()
        private = (str(target[0]), int(target[1]))
        forward = Forward(socket.socket(fileno=listener), private, lambda: self._is_running(private[0]))
        self._forwards[address] = forward
        forward.open()
        for name in self._cut:
            if self._specs[name].private_ip == private[0]:
                forward.pause()

    async def op_unforward(self, listen: list[Any]) -> None:
        """Close a port and its connections."""
        forward = self._forwards.pop((str(listen[0]), int(listen[1])), None)
        if forward is not None:
            forward.close()

    async def op_gateway(self, listener: int) -> None:
        """Hold the pipe in this packet until the network ends: the NAT gateway ends with it."""
        self._gateway = listener

    async def op_outbound(self, subnets: list[str], own: list[str]) -> None:
        """Let these subnets reach the world outside, and no others."""
        set_filter(subnets, own)

    async def op_may_ask(self, address: str, port: int) -> bool:
        """Return whether a node lets its process with this port ask the metadata service."""
        for spec in (self._specs[name] for name in self._pids if self._specs[name].private_ip == address):
            return may_ask(self._pids[spec.name], spec.admin_user, address, port)
        return False

    async def op_listen(self, address: str, port: int) -> socket.socket:
        """Return a socket bound to an address that the network takes for its own, for the daemon to serve."""
        ip(f"addr replace {address}/32 dev lo\n")
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        return listener

    async def op_unlisten(self, address: str) -> None:
        """Give up such an address."""
        ip(f"addr del {address}/32 dev lo\n", force=True)

    async def op_status(self) -> dict[str, Any]:
        """Return the names of the nodes that run and of those cut off, and the listening addresses."""
        return {
            "running": sorted(self._pids),
            "cut": sorted(self._cut),
            "listening": [list(address) for address in sorted(self._forwards)],
        }

    # Nodes.

    async def _boot_batch(self, specs: list[NodeSpec]) -> dict[str, str]:
        status, their_status = os.pipe()
        their_go, go = os.pipe()
        for index, spec in enumerate(specs):
            if os.fork() == 0:
                os.close(go)
                power_on(spec, index, their_status, their_go, self._open_files)
        os.close(their_status)
        os.close(their_go)
        batch = _BootBatch(specs)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(status, "rb", buffering=0)
        )
        with contextlib.suppress(TimeoutError), contextlib.ExitStack() as stack:
            stack.callback(transport.close)
            release = stack.enter_context(contextlib.closing(os.fdopen(go, "wb", buffering=0)))
            async with asyncio.timeout(_BOOT_LIMIT):
                while not batch.all_ready and (line := await reader.readline()):
                    batch.on_report(line.decode())
                for spec, pid in batch.booted():
                    self._pids[spec.name], self._specs[spec.name] = pid, spec
                    self._gone[pid] = asyncio.Event()
                    forget(pid)
                    self._memory.add(pid, Path(spec.name, MEMINFO))
                _link_nodes(batch.booted())
                release.close()
                while line := await reader.readline():  # until every child has become its init
                    batch.on_report(line.decode())
                await batch.until_listening()
        errors = batch.errors()
        await self._end([name for name in errors if name in self._pids], unlink_first=False)
        return errors

    async def _end(self, names: Iterable[str], *, unlink_first: bool) -> None:
        names = [name for name in names if name in self._specs]
        links = [self._specs[name].link for name in names]
        if unlink_first:
            ip("".join(f"link set {link} down\n" for link in links), force=True)
        events = []
        for name in names:
            pid = self._pids.get(name)
            if pid is not None:
                events.append(self._gone[pid])
                os.kill(pid, signal.SIGKILL)
            if name in self._cut:
                self._heal(self._specs[name])
        for event in events:
            await event.wait()
        batch = [f"link del {link}\n" for link in links]
        batch += [f"neigh del {self._specs[name].private_ip} dev br0\n" for name in names]
        if batch:
            ip("".join(batch), force=True)
        self._slow.difference_update(names)

    def _heal(self, spec: NodeSpec) -> None:
        self._cut.discard(spec.name)
        for forward in self._forwards_to(spec):
            forward.open()

    def _forwards_to(self, spec: NodeSpec) -> list[Forward]:
        return [f for f in self._forwards.values() if f.target[0] == spec.private_ip]

    def _is_running(self, private_ip: str) -> bool:
        return any(self._specs[name].private_ip == private_ip for name in self._pids)

    async def show_memory(self) -> None:
        """Show on every node, for as long as the network lasts, what its processes use."""
        while True:
            for _ in self._memory.update():
                await asyncio.sleep(0)
            await asyncio.sleep(self._memory.pause_s)

    def reap(self) -> None:
        """Reap ended children: nodes, the parents that forked them, orphans."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            event = self._gone.pop(pid, None)
            if event is not None:
                event.set()
                for name in [name for name, its in self._pids.items() if its == pid]:
                    del self._pids[name]


class _BootBatch:
    """Reports of the nodes that boot at once."""

    def __init__(self, specs: list[NodeSpec]) -> None:
        self._specs = specs
        self._pids: dict[int, int] = {}
        self._ready: set[int] = set()
        self._listening: set[int] = set()
        self._errors: dict[int, str] = {}

    def on_report(self, line: str) -> None:
        """Add one line that :func:`~rehearsal.vms.boot.power_on` wrote."""
        index, word, *rest = line.split(maxsplit=2)
        if word == "pid":
            self._pids[int(index)] = int(rest[0])
        elif word == "ready":
            self._ready.add(int(index))
        else:
            self._errors[int(index)] = "".join(rest).strip()

    @property
    def all_ready(self) -> bool:
        return len((self._ready & self._pids.keys()) | self._errors.keys()) == len(self._specs)

    def booted(self) -> list[tuple[NodeSpec, int]]:
        """Return the nodes without an error so far, with their first process."""
        indexes = sorted(self._ready & self._pids.keys() - self._errors.keys())
        return [(self._specs[index], self._pids[index]) for index in indexes]

    async def until_listening(self) -> None:
        """Return when every booted node's sshd listens or its init has ended."""
        pending = {index for index in self._ready if index not in self._errors}
        while pending:
            for index in tuple(pending):
                try:
                    sockets = Path(f"/proc/{self._pids[index]}/net/tcp").read_text()
                except OSError:
                    self._errors[index] = "its first process ended while it booted"
                    pending.discard(index)
                    continue
                if _LISTENS in sockets:
                    self._listening.add(index)
                    pending.discard(index)
            if pending:
                await asyncio.sleep(0.02)

    def errors(self) -> dict[str, str]:
        """Return why nodes did not come up, by name."""
        found: dict[str, str] = {}
        for index, spec in enumerate(self._specs):
            if index in self._errors:
                found[spec.name] = self._errors[index]
            elif index not in self._listening:
                found[spec.name] = f"no sshd after {_BOOT_LIMIT:g} s{_log_tail(spec.name)}"
        return found


def _log_tail(name: str) -> str:
    log = Path(name, "log", "auth.log")
    lines = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
    return "".join(f"; {line.strip()}" for line in lines)


def _link_nodes(nodes: list[tuple[NodeSpec, int]]) -> None:
    lines = []
    for spec, pid in nodes:
        hardware = mac(spec.private_ip)
        lines += [
            f"link add {spec.link} type veth peer name eth0 address {hardware} netns {pid}\n",
            f"link set {spec.link} master br0 up\n",
            f"neigh replace {spec.private_ip} lladdr {hardware} dev br0 nud permanent\n",
        ]
    ip("".join(lines))


async def _serve(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    process = NetnsProcess()
    loop.add_signal_handler(signal.SIGCHLD, process.reap)
    ended = asyncio.Event()
    tasks = {loop.create_task(process.show_memory())}

    def receive() -> None:
        try:
            packet, files, _flags, _address = socket.recv_fds(control, PACKET, 8)
        except BlockingIOError:
            return
        for file in files:
            # A node that boots later would keep it: a port given to another node could not be listened at.
            # (recv_fds leaves out the flags it is given, MSG_CMSG_CLOEXEC among them: CPython 3.11's source.)
            os.set_inheritable(file, False)
        if not packet:
            loop.remove_reader(control)
            ended.set()
            return
        request = json.loads(packet)
        if files:
            request["listener"] = files[0]
        task = loop.create_task(_answer(process, control, request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_reader(control, receive)
    _reply(control, {"id": 0, "result": None})
    await ended.wait()


async def _answer(process: NetnsProcess, control: socket.socket, request: dict[str, Any]) -> None:
    identity, operation = request.pop("id"), request.pop("op")
    try:
        result = await getattr(process, f"op_{operation}")(**request)
        if isinstance(result, socket.socket):
            with result:
                socket.send_fds(control, [json.dumps({"id": identity}).encode()], [result.fileno()])
        else:
            _reply(control, {"id": identity, "result": result})
    except Exception as error:  # noqa: BLE001 - the daemon raises it in the caller
        _reply(control, {"id": identity, "error": f"{type(error).__name__}: {error}"})


def _reply(control: socket.socket, packet: dict[str, Any]) -> None:
    control.send(json.dumps(packet).encode()[:PACKET])


def main(argv: list[str]) -> None:
    """Run ``netns.py <control fd> <disks>``; end, and the network with it, at end of file.

    The first packet is the settings: a command line would show to everyone what nodes do not see. The
    folder of the disks identifies the process (:mod:`rehearsal.leftovers`).
    """
    control = socket.socket(fileno=int(argv[0]))
    settings = json.loads(control.recv(PACKET))
    control.setblocking(False)
    prepare(argv[1], settings["network"], settings["view"])
    make_bridge(settings["gateway"], settings["prefix_length"])
    set_filter(())
    gc.freeze()  # children share these pages for as long as they run as Python
    asyncio.run(_serve(control))


if __name__ == "__main__":
    main(sys.argv[1:])
