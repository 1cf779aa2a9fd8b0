"""The connection of a rank's runner to the supervisor, which mpirun does not give it."""

from __future__ import annotations

import _socket
import time

from launch.remote.base import timing

__all__ = ["connect"]


def connect(host: str, port: int, hello: bytes) -> _socket.socket | None:
    """Return a connection on which the supervisor has answered ``hello``; None when the supervisor has ended.

    Connect again when the supervisor closes a connection unanswered: strangers may have crowded it out. Raise
    OSError when the supervisor cannot be reached, and without an answer within
    :data:`~launch.remote.base.timing.TETHER_S`.
    """
    until = time.monotonic() + timing.TETHER_S
    is_first = True
    while True:
        channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        channel.settimeout(timing.TETHER_S)
        try:
            channel.connect((host, port))
        except ConnectionRefusedError:
            if is_first:
                raise
            return None
        is_first = False
        channel.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        try:
            channel.sendall(hello)
            if channel.recv(1, _socket.MSG_PEEK):
                return channel
        except (ConnectionResetError, BrokenPipeError):
            pass  # the supervisor closed the connection unanswered
        channel.close()
        if time.monotonic() > until:
            raise OSError("it closed every connection without an answer")
        time.sleep(timing.CONNECT_AGAIN_S)
