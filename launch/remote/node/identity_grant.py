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
    body, socket = signed.encode(), service[len("unix:") :]
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        link.settimeout(timing.GRANT_S)
        link.connect(socket)
        link.sendall(head.encode() + body)
        status, _, said = _answer(link)
        if status != imds.OK:
            raise _without(said.decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        link.close()
        raise _without(f"{socket}: {error}") from error
    except Unfit:
        link.close()
        raise
    return link


def _answer(link: _socket.socket) -> imds.Answer:
    data = b""
    while True:
        piece = link.recv(4096)
        if not piece:
            raise OSError("the node's agent hung up")
        data += piece
        answer = imds.parse(data)
        if answer is not None:
            return answer


def _without(why: str) -> Unfit:
    return Unfit(f"the job may not use the nodes' identity here: {why}")
