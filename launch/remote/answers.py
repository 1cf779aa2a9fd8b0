"""Answers on stdout, in as many pieces as a pipe takes them in."""

from __future__ import annotations

import os

from launch.remote import protocol

__all__ = ["send", "write"]


def write(data: bytes) -> None:
    """Writes all of it. Raises BrokenPipeError when nobody reads any more."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def send(kind: bytes, payload: bytes) -> None:
    """Writes one frame. Raises as :func:`write` does."""
    write(protocol.frame(kind, payload))
