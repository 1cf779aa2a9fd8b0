"""A file of any web server, by ranges where the server has them and names the content by an ETag or a date.

Without these, the file is one part, which one node downloads.
"""

from __future__ import annotations

import http.client
from urllib.parse import unquote, urljoin, urlsplit

from launch.remote.data import faults
from launch.remote.data.faults import FetchError
from launch.remote.data.parts import File
from launch.remote.data.requests import Sink, Web, copy_body, read_size
from launch.remote.data.stage_request import StageSource

__all__ = ["WebFile"]

_OK, _PARTIAL, _UNSATISFIABLE, _FOUND = 200, 206, 416, (301, 302, 303, 307, 308)
_GZIP = (".gz", ".tgz")
_REFUSED, _REDIRECTS = (401, 403, 404, 410), 5


class WebFile:
    """The file of a source; ``query`` is part of its address and secret. ``is_cut`` is known after
    :meth:`files`, and has to be set where that was called on another node."""

    def __init__(self, source: StageSource, query: str, web: Web) -> None:
        self._source, self._web = source, web
        self._url = self._address = f"{source['url']}?{query}" if query else source["url"]
        self.is_cut = False

    def files(self) -> list[File]:
        """Return the one file. Raise :class:`FetchError`, and ValueError for a folder."""
        shown = self._source["url"]
        if self._source["kind"] == "folder":
            raise ValueError(f"{shown}: a web address is one file; use type uri_file")
        answer = self._ask({"Range": "bytes=0-0"})
        tag = _tag(answer)
        size = answer.headers.get("Content-Length", "")
        if answer.status in (_PARTIAL, _UNSATISFIABLE):
            size = answer.headers.get("Content-Range", "").rpartition("/")[2]
        elif answer.status != _OK:
            raise FetchError(faults.REFUSED, f"{shown}: the server answers HTTP {answer.status}")
        if size in ("", "*"):
            why = "the server does not say how long it is; download it and use `fab data.put`"
            raise FetchError(faults.REFUSED, f"{shown}: {why}")
        self.is_cut = answer.status == _PARTIAL and bool(tag)
        return [File(unquote(urlsplit(shown).path).rpartition("/")[2] or "file", read_size(size, shown), tag)]

    def read(self, file: File, start: int, size: int, sink: Sink) -> None:
        """Pass a range of the file on. Raise :class:`FetchError`."""
        shown = self._source["url"]
        end = start + size - 1
        answer = self._ask({"Range": f"bytes={start}-{end}"} if self.is_cut else {})
        if answer.status not in (_OK, _PARTIAL):
            raise FetchError(faults.REFUSED, f"{shown}: the server answers HTTP {answer.status}")
        if _tag(answer) != file.etag:
            raise FetchError(faults.REFUSED, f"{shown} was changed while it was staged; launch again")
        if self.is_cut and answer.headers.get("Content-Range") != f"bytes {start}-{end}/{file.size}":
            found = answer.headers.get("Content-Range", "no range")
            raise FetchError(faults.BROKEN, f"{shown}: {found} was sent where {start}-{end} was asked for")
        copy_body(answer, size, sink, shown)

    def _ask(self, headers: dict[str, str]) -> http.client.HTTPResponse:
        answer = self._follow(self._url, headers)
        if answer.status in _REFUSED and self._url != self._address:
            # What a server redirects to is often signed, for some minutes.
            answer = self._follow(self._address, headers)
        return answer

    def _follow(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        shown = self._source["url"]
        for _ in range(_REDIRECTS):
            answer = self._web.ask("GET", url, {"Accept-Encoding": "identity", **headers}, shown)
            if answer.status not in _FOUND:
                self._refuse_encoded(answer)
                self._url = url
                return answer
            found = _joined(url, answer.headers.get("Location", ""))
            if found is None:
                why = "the server leads to what is not an https: address"
                raise FetchError(faults.REFUSED, f"{shown}: {why}")
            url = found
        raise FetchError(faults.REFUSED, f"{shown}: over {_REDIRECTS} redirections")

    def _refuse_encoded(self, answer: http.client.HTTPResponse) -> None:
        """Raise :class:`FetchError` for a file that comes compressed although none was asked for.

        Of one that is itself a gzip file, some servers say so by mistake: its bytes are as they have to be.
        """
        shown, encoding = self._source["url"], answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity" and not urlsplit(shown).path.endswith(_GZIP):
            why = f"the server sends it compressed ({encoding}) only: download it and use `fab data.put`"
            raise FetchError(faults.REFUSED, f"{shown}: {why}")


def _joined(url: str, location: str) -> str | None:
    """Return where a redirection leads; None for what cannot be asked for."""
    try:
        found = urljoin(url, location)
        parts = urlsplit(found)
        is_address = parts.scheme == "https" and bool(parts.hostname)
    except ValueError:
        return None
    return found if is_address and found.isascii() and found.isprintable() and " " not in found else None


def _tag(answer: http.client.HTTPResponse) -> str:
    """Return what names the content; a weak ETag does not."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
