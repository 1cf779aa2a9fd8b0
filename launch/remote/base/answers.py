"""Answers on stdout, in as many pieces as a pipe takes them in."""

from __future__ import annotations

from launch.remote.base import frames
from launch.remote.base.whole_file import write_all

__all__ = ["send", "write"]


def write(data: bytes) -> None:
    """Writes all of it. Raises BrokenPipeError when nobody reads any more."""
    write_all(1, data)


def send(kind: bytes, payload: bytes) -> None:
    """Writes one frame. Raises as :func:`write` does."""
    write(frames.frame(kind, payload))
