"""One node over ssh, by :class:`fabric.Connection`, with its host key pinned before the first packet.

Fabric accepts unknown host keys silently (it sets paramiko's AutoAddPolicy and loads no known_hosts) and
reads ``~/.ssh``; here a node shows the key that its stack gave it, or the connection is refused, and only the
stack's own user key is offered.
"""

from __future__ import annotations

import logging
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

import paramiko
from fabric import Config, Connection

from infra.inventory import KEY_FILE, KNOWN_HOSTS_FILE, Inventory, Node
from launch.errors import GiveUpError, HostKeyChanged, InputError, NodeUnreachable, StepTimeout
from launch.host import Completed
from launch.remote.base import timing
from launch.remote.login import Login, marked
from playbooks.cli import output
from playbooks.ssh.errors import translated
from playbooks.ssh.exchange import DeadlinePassed, Tail, exchange
from playbooks.ssh.fanout import fan_out
from playbooks.ssh.pins import read_pins
from playbooks.ssh.silence import Silence
from playbooks.ssh.transport import SIGNALLED, make_transport
from playbooks.ssh.user_command import UserCommand

__all__ = ["ANSWER_BYTES", "Cluster", "SshHost", "shell_command"]

SSH_PORT = 22
ANSWER_BYTES = 64 << 20
"""Limit of an answer: the largest, a push's list of a million missing files, has 8 MB."""

# paramiko logs what it also raises; without a handler Python would print that to the terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def shell_command(command: Sequence[str] | str) -> bytes:
    """Return an argv as a shell's command line, which no other function does; a line stays as it is.

    >>> shell_command(["echo", "a b", "it's", "$HOME"]).decode()
    'echo \\'a b\\' \\'it\\'"\\'"\\'s\\' \\'$HOME\\''

    Raises :class:`~launch.errors.InputError` for a NUL byte.
    """
    line = command if isinstance(command, str) else shlex.join(command)
    if "\0" in line:
        raise InputError("command", line, "holds a NUL byte", "pass such data through a file")
    return line.encode("utf-8", "surrogateescape")


class Cluster:
    """The nodes of one saved inventory as hosts, each connected on first use."""

    def __init__(
        self, inventory: Inventory, folder: Path, *, tell: Callable[[str], object] = output.progress
    ) -> None:
        """Read known_hosts and user key from the stack's ``folder``; no others are used.

        ``tell`` gets a line that names the nodes which let the caller wait.

        Raises :class:`~launch.errors.InputError` when one of them is missing or damaged.
        """
        self._inventory = inventory
        try:
            self._pins = read_pins(folder / KNOWN_HOSTS_FILE)
            self._key = paramiko.Ed25519Key(filename=str(folder / KEY_FILE))
        except InputError:
            raise
        # For a file that is not a key paramiko raises exceptions of many types.
        except Exception as error:  # noqa: BLE001
            problem = f"its keys cannot be read ({error or type(error).__name__})"
            raise InputError("stack", inventory.stack, problem, "run `fab status`") from None
        self._silence = Silence(folder / "silent", tell)
        self._hosts: dict[str, SshHost] = {}

    def __enter__(self) -> Cluster:
        """Return the cluster, which closes every connection at the end."""
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def host(self, node: Node) -> SshHost:
        """Return the node's host, not yet connected."""
        if node.name not in self._hosts:
            pin = self._pins.get(node.name)
            self._hosts[node.name] = SshHost(node, self._inventory.user, self._key, pin, self._silence)
        return self._hosts[node.name]

    def close(self) -> None:
        """Close every connection; the cluster may be used again."""
        while self._hosts:
            self._hosts.popitem()[1].close()


class SshHost:
    """Implements :class:`launch.host.Host` over ssh.

    Ending early (a time limit, Ctrl-C) closes the channel only: the remote command continues, unless
    :attr:`command` is ended.
    """

    def __init__(
        self, node: Node, user: str, key: paramiko.PKey, pin: paramiko.PKey | None, silence: Silence
    ) -> None:
        self.name = node.name
        self._node, self._user, self._key, self._pin = node, user, key, pin
        self._silence, self._limit = silence, float(timing.OPERATOR_CONNECT_S)
        self._connection: Connection | None = None
        self._started: list[paramiko.Channel] = []  # paramiko closes a channel that nobody refers to
        self._opening = threading.Lock()
        self.command = UserCommand()
        """What :meth:`run_tail` runs."""
        self.login = Login()
        """What the login for the newest command has printed."""

    def __enter__(self) -> SshHost:
        """Return the host, which closes its connection at the end."""
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        command: Sequence[str] | str,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        """Run an argv to its end; return its whole stdout, and the end of its stderr.

        A ``str`` is a line for the user's own shell there, which saves each node the start of a second one.
        ``timeout`` is in seconds and covers connecting. A command killed by signal n has exit status 128+n,
        and 128 where the protocol has no name for the signal.
        Raises :class:`~launch.errors.NodeUnreachable`, :class:`~launch.errors.HostKeyChanged`,
        :class:`~launch.errors.StepTimeout`, and :class:`~launch.errors.GiveUpError` for an answer of more
        than :data:`ANSWER_BYTES`, which must not be cut.
        """
        answer = bytearray()

        def keep(data: bytes) -> None:
            answer.extend(data)
            if len(answer) > ANSWER_BYTES:
                step = command if isinstance(command, str) else command[0]
                problem = f"{step} writes more than the {ANSWER_BYTES >> 20} MiB that an answer may have"
                raise GiveUpError(f"{self.name}: {problem}; examine it there: fab ssh")

        return replace(self.stream(command, keep, stdin=stdin, timeout=timeout), stdout=bytes(answer))

    def run_tail(
        self,
        line: str,
        *,
        stdin: int | None = None,
        timeout: float | None = None,
        on_stdout: Callable[[bytes], object] | None = None,
    ) -> Completed:
        """Run a line as :meth:`run` does, but keep only the end of either stream, for output to print.

        Keeps :data:`~playbooks.ssh.exchange.KEPT_BYTES`; the result has the number of bytes before. With
        ``on_stdout`` all of stdout goes there instead.
        """
        tail = Tail()
        take = on_stdout or tail.add
        try:
            completed = self.stream(line, take, stdin=stdin, timeout=timeout, on_start=self.command.on_start)
        finally:
            self.command.on_end()
        stdout = tail.end()
        return replace(completed, stdout=stdout, stdout_left_out=tail.left_out)

    def stream(
        self,
        command: Sequence[str] | str,
        on_stdout: Callable[[bytes], object],
        *,
        stdin: bytes | IO[bytes] | int | None = None,
        timeout: float | None = None,
        on_start: Callable[[paramiko.Channel], None] = lambda _: None,
    ) -> Completed:
        """Run as :meth:`run` does, but pass stdout to ``on_stdout`` as it comes; the result has none.

        ``stdin``, which may be a file descriptor, is read as fast as the node takes it; its end is passed on.
        Raises :class:`~launch.errors.GiveUpError` where the login ends before the command.
        """
        line = marked("").encode() + shell_command(command)
        self.login = login = Login()
        step = command if isinstance(command, str) else command[0]
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._translated():
            transport = self._transport()
            channel = transport.open_session(timeout=timing.OPERATOR_CONNECT_S)
        try:
            with self._translated():
                channel.exec_command(line)
                on_start(channel)
            done = self._finish(
                channel, step, lambda data: on_stdout(login.feed(data)), stdin, deadline, timeout
            )
        finally:
            channel.close()
        return self._of_command(done, login)

    def _of_command(self, done: Completed, login: Login) -> Completed:
        if login.problem and done.exit_status < SIGNALLED:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise GiveUpError(f"{self.name}: {login.problem}" + f" ({last})" * bool(last))
        return done

    def _finish(
        self,
        channel: paramiko.Channel,
        step: str,
        on_stdout: Callable[[bytes], object],
        stdin: bytes | IO[bytes] | int | None,
        deadline: float | None,
        timeout: float | None,
    ) -> Completed:
        """Exchange data with a command that runs until it has ended; return how it did."""
        transport = channel.get_transport()
        try:
            stderr = exchange(channel, on_stdout, stdin, deadline, lambda: self._ask_alive(transport))
        except DeadlinePassed:
            raise StepTimeout(self.name, step, timeout or 0.0) from None
        status = channel.exit_status
        if status < 0:
            # Only this distinguishes a lost connection from a command without an exit status.
            if not transport.is_active():
                why = f": {reason}" if (reason := transport.get_exception()) and str(reason) else ""
                self.close()
                raise NodeUnreachable(self.name, f"the connection broke while {step} ran{why}")
            status = SIGNALLED
        return Completed(status, b"", stderr.end(), stderr_left_out=stderr.left_out)

    def start(self, command: Sequence[str], *, timeout: float) -> Completed | None:
        """Start an argv that runs until the connection is closed, when its stdin ends.

        Returns None once it has written something to stdout, else how it ended. Raises as :meth:`run`.
        """
        deadline = time.monotonic() + timeout
        with self._translated():
            channel = self._transport().open_session(timeout=timing.OPERATOR_CONNECT_S)
            channel.exec_command(marked("").encode() + shell_command(command))
            channel.settimeout(timeout)
            self.login = login = Login()
            has_started = False
            try:
                while not has_started and (data := channel.recv(1)):
                    has_started = bool(login.feed(data))
            except TimeoutError:
                channel.close()
                raise StepTimeout(self.name, command[0], timeout) from None
        if has_started:
            self._started.append(channel)
            return None
        try:
            done = self._finish(channel, command[0], login.feed, None, deadline, timeout)
        finally:
            channel.close()
        return self._of_command(done, login)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        self._started.clear()
        if connection is not None:
            transport = connection.client.get_transport()
            if transport is not None:
                with suppress(OSError):
                    # paramiko's thread checks for its end every 100 ms; this wakes it.
                    transport.sock.shutdown(socket.SHUT_RDWR)
            connection.client.close()

    def _transport(self) -> paramiko.Transport:
        with self._opening:
            if self._connection is None or not self._connection.is_connected:
                with self._silence.connecting(self.name) as self._limit:
                    self._connection = self._connect()
            transport: paramiko.Transport = self._connection.transport
            return transport

    def _connect(self) -> Connection:
        node = self._node
        if not node.host or not node.port:
            raise NodeUnreachable(self.name, f"it has no address yet ({node.state})")
        if self._pin is None:
            problem = "no host key is pinned for it, so it is not connected; run `fab status`"
            raise HostKeyChanged(self.name, problem)
        connection = Connection(
            node.host,
            user=self._user,
            port=node.port,
            config=Config(lazy=True, overrides={"load_ssh_configs": False}),
            connect_timeout=self._limit,
            connect_kwargs={
                "pkey": self._key,
                "allow_agent": False,
                "look_for_keys": False,
                "banner_timeout": self._limit,
                "auth_timeout": self._limit,
                "transport_factory": make_transport,
            },
        )
        client = connection.client
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        address = node.host if node.port == SSH_PORT else f"[{node.host}]:{node.port}"
        client.get_host_keys().add(address, "ssh-ed25519", self._pin)
        try:
            connection.open()
        except BaseException:
            client.close()
            raise
        return connection

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.name, f"{self._node.host}:{self._node.port}", self._limit)

    def _ask_alive(self, transport: paramiko.Transport) -> None:
        """Send a keep-alive request: a partitioned node does not close its connection."""

        def ask(_: str) -> object:
            return transport.global_request("keepalive@openssh.com", wait=True)

        answer = fan_out(ask, [self.name], what="keep-alive", timeout=timing.OPERATOR_SILENT_S)[self.name]
        if isinstance(answer, Exception) or not transport.is_active():
            self.close()
            raise NodeUnreachable(self.name, f"silent for {2 * timing.OPERATOR_SILENT_S:g} s")
