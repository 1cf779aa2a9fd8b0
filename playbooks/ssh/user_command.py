"""The user's command that runs on a node, which another thread may end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

__all__ = ["UserCommand"]


class UserCommand:
    """At most one command; paramiko's channel of it while it runs."""

    def __init__(self) -> None:
        self._channel: paramiko.Channel | None = None
        self._is_ended = False
        """Whether it has to end as soon as it is started."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._channel is not None

    def on_start(self, channel: paramiko.Channel) -> None:
        """Note the channel on which it was started."""
        self._channel = channel
        if self._is_ended:
            self.end("TERM")

    def on_end(self) -> None:
        """Note that it has ended."""
        self._channel = None

    def end(self, signal: Literal["TERM", "KILL"]) -> None:
        """Send a signal to the command's processes, or send it once it is started.

        The request is "signal" of RFC 4254, section 6.9, for which paramiko has no call. OpenSSH's server
        obeys it since release 7.9, by a signal to the command's process group (its release notes; session.c).
        """
        self._is_ended = True
        channel = self._channel
        if channel is None:
            return
        request = paramiko.Message()
        request.add_byte(bytes([MSG_CHANNEL_REQUEST]))
        request.add_int(channel.remote_chanid)
        request.add_string("signal")
        request.add_boolean(False)
        request.add_string(signal)
        transport: Any = channel.get_transport()
        with suppress(OSError, EOFError, paramiko.SSHException):  # a broken connection: nothing answers
            transport._send_user_message(request)  # as all of its own requests
