"""TCP ports of this node, each reserved for one job at a time."""

from __future__ import annotations

import fcntl
import os

from launch.remote.base.files import expand_home

__all__ = ["LAST_PORT", "is_free", "take_ports"]

LAST_PORT = 65535


def take_ports(first: int, count: int, held: list[int]) -> list[int]:
    """Reserve ``count`` ports from ``first`` that nobody listens on and no other job holds, until the
    descriptors added to ``held`` are closed. Raise OSError when fewer are free."""
    if not count:
        return []
    folder = expand_home("~/.ranklift/ports")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    ports: list[int] = []
    for port in range(first, LAST_PORT + 1):
        fd = os.open(f"{folder}/{port}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = not is_free(port)
        except OSError:
            taken = True
        if taken:
            os.close(fd)
            continue
        held.append(fd)
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports from {first}")


def is_free(port: int) -> bool:
    """Return whether nothing on this node listens on the port."""
    import _socket  # importing socket takes as long as the rest of a runner's start

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.setsockopt(
            _socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1
        )  # TIME_WAIT sockets do not block the port
        probe.bind(("", port))
        probe.listen(1)
    except OSError:
        return False
    finally:
        probe.close()
    return True
