"""The kinds of storage that data come from, looked up by the name in a source."""

from __future__ import annotations

from typing import Protocol

from launch.remote.data.blob import Blobs
from launch.remote.data.parts import File
from launch.remote.data.requests import Sink, Web
from launch.remote.data.stage_request import StageSource
from launch.remote.data.web import WebFile

__all__ = ["Service", "service_of"]


class Service(Protocol):
    """One source in its storage."""

    is_cut: bool
    """Whether ranges of its files can be read; set from outside where :meth:`files` ran on another node."""

    def files(self) -> list[File]:
        """Return the source's files. Raise :class:`~launch.remote.data.faults.FetchError` or ValueError."""

    def read(self, file: File, start: int, size: int, sink: Sink) -> None:
        """Pass a range of a file on. Raise :class:`~launch.remote.data.faults.FetchError`."""


_SERVICES = {"blob": Blobs, "web": WebFile}


def service_of(source: StageSource, query: str, web: Web) -> Service:
    """Return the source as it is read. Raise ValueError for a kind of storage that is not known."""
    kind = _SERVICES.get(source["service"])
    if kind is None:
        raise ValueError(f"{source['url']}: {source['service']!r} is none of {', '.join(_SERVICES)}")
    service: Service = kind(source, query, web)
    return service
