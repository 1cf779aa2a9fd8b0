"""A job's grant of the nodes' identity on this node, over one connection to the node's agent."""

from __future__ import annotations

import _socket
import os
import time

from launch.remote.agent import imds
from launch.remote.agent.entry import GRANT, GRANTED, STATE, VERIFY
from launch.remote.agent.identity_token import SERVICE
from launch.remote.base import timing
from launch.remote.node.prepare import Unfit

__all__ = ["begin", "end", "verify", "wait_for"]

_LOOK_S = 0.02


def verify(signed: str, service: str = SERVICE) -> None:
    """Have the agent verify the ``signed`` request. Nothing is granted yet: a job that goes back to the queue
    may ask again. Raise :class:`~launch.remote.node.prepare.Unfit`."""
    _ask(VERIFY, signed, service).close()


def begin(signed: str, service: str = SERVICE) -> _socket.socket:
    """Return a connection until whose end the request is granted. Raise
    :class:`~launch.remote.node.prepare.Unfit`."""
    return _ask(GRANT, signed, service)


def end(connection: _socket.socket) -> None:
    """End the grant; return once the agent has taken it back, or has ended."""
    try:
        connection.shutdown(_socket.SHUT_WR)
        connection.recv(1)
    except OSError:
        pass  # what the agent does about it does not depend on this runner
    connection.close()


def wait_for(job: str, state: str = STATE) -> None:
    """Wait until the node's first runner holds the job's grant. Raise
    :class:`~launch.remote.node.prepare.Unfit`."""
    until = time.monotonic() + timing.GRANT_S
    while True:
        try:
            if os.stat(f"{state}/{GRANTED}/{job}").st_size:
                return
        except OSError:
            pass  # not yet
        if time.monotonic() > until:
            raise _without(
                f"the runner of this node's first rank was not granted it within {timing.GRANT_S:g} s"
            )
        time.sleep(_LOOK_S)


def _ask(path: str, signed: str, service: str) -> _socket.socket:
    """Return the connection on which the agent has agreed."""
    try:
        (status, _, said), link = imds.ask_and_stay("POST", service, path, signed.encode(), timing.GRANT_S)
    except (OSError, ValueError) as error:
        raise _without(f"{service[len('unix:') :]}: {error}") from error
    if status != imds.OK:
        link.close()
        raise _without(said.decode("utf-8", "replace"))
    return link


def _without(why: str) -> Unfit:
    return Unfit(f"the job may not use the nodes' identity here: {why}")
