"""Paramiko's transport as nodes need it: fast, and with bounds on what a node may send."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA, MSG_CHANNEL_REQUEST

__all__ = ["SIGNALLED", "Prompt", "make_transport"]

SIGNALLED = 128
"""Exit status of a command that a signal ended, plus the signal's number where that is known."""


def _on_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Handle the exit-signal request, which paramiko ignores; leave every other request to paramiko."""
    place = message.packet.tell()
    if message.get_text() == "exit-signal":
        message.get_boolean()
        with suppress(KeyError):  # a name of the system's own
            channel.exit_status = SIGNALLED + signal.Signals[f"SIG{message.get_text()}"]
            channel.status_event.set()
        return
    message.packet.seek(place)
    channel._handle_request(message)  # type: ignore[attr-defined]


def _within_window(feed: Callable[[Any, paramiko.Message], None]) -> Callable[[Any, paramiko.Message], None]:
    """Have a node that sends beyond the window it was given refused: paramiko would keep all of it."""

    def take(channel: Any, message: paramiko.Message) -> None:
        if len(channel.in_buffer) + len(channel.in_stderr_buffer) > channel.in_window_size:
            raise paramiko.SSHException("its sshd sends more than it was asked for; see who runs it there")
        feed(channel, message)

    return take


_HANDLERS: dict[int, Any] = paramiko.Transport._channel_handler_table  # type: ignore[attr-defined]


class _Transport(paramiko.Transport):
    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **_HANDLERS,
        **{kind: _within_window(_HANDLERS[kind]) for kind in (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA)},
        MSG_CHANNEL_REQUEST: _on_request,
    }


class Prompt(socket.socket):
    """A socket that acknowledges what it reads at once, where the system can.

    After the log-in sshd sends small packets one at a time (Nagle), each when the one before is acknowledged;
    Linux waits 40 ms with that, and a session opened without this took 45 ms instead of 2.
    """

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return at most ``size`` bytes, as :meth:`socket.socket.recv` does, and acknowledge them."""
        data = super().recv(size, flags)
        if sys.platform == "linux":
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


def make_transport(sock: socket.socket, **options: Any) -> paramiko.Transport:
    """Return a transport with one fast, strong algorithm of each kind, which every current OpenSSH has."""
    # Otherwise each small packet waits for the answer to the one before: 40 ms a command.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = _Transport(Prompt(fileno=sock.detach()), **options)
    wanted = transport.get_security_options()
    wanted.kex = ("curve25519-sha256@libssh.org",)
    wanted.key_types = ("ssh-ed25519",)
    wanted.ciphers = ("aes128-gcm@openssh.com", "aes128-ctr")
    return transport
