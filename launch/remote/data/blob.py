"""Azure's Blob service over REST: the blobs of a container, and ranges of a blob.

Versions, headers and error codes: learn.microsoft.com/rest/api/storageservices (List Blobs, Get Blob, Common
REST API error codes).
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from launch.remote.agent.identity_token import identity_token
from launch.remote.data import faults
from launch.remote.data.faults import FetchError
from launch.remote.data.parts import File
from launch.remote.data.requests import BODY_BYTES, Sink, Web, copy_body, read_size
from launch.remote.data.stage_request import StageSource

__all__ = ["CONTRIBUTOR", "Blobs", "next_marker"]

_VERSION = "2021-12-02"
AUDIENCE = "https://storage.azure.com/"
_PAGE = 5000
_MOST_FILES = 5_000_000
"""Files of a folder: their names and ETags take 2.5 GB of memory on the head."""
_MOST_PAGES, _LONGEST_MARKER, _LONGEST_ETAG = 20_000, 8192, 256
"""Pages of a list, of which some may be short or empty; characters that fit an address, and a header."""
_OK, _PARTIAL, _UNAUTHORIZED, _NOT_FOUND, _CHANGED = 200, 206, 401, 404, 412
_SPARE_S = 300.0
"""Time before a token's end from which another one is fetched."""
_READER, CONTRIBUTOR = "Storage Blob Data Reader", "Storage Blob Data Contributor"
"""Azure's built-in roles for who reads, and for who writes too."""
_REMEDIES = {
    "AuthorizationPermissionMismatch": "give the nodes' identity the role {role} there; it counts after some "
    "minutes",
    "AuthorizationFailure": "the account's firewall refuses the nodes: allow their subnet in it",
    "AuthenticationFailed": "the SAS has expired, allows no reading and listing, or its key was replaced",
    "InvalidAuthenticationInfo": "the token of the nodes' identity is of another tenant",
    "NoAuthenticationInformation": "the container is not public",
    "PublicAccessNotPermitted": "the account allows no public access: use the nodes' identity, or a SAS",
    "ResourceNotFound": "there is no such container, or it is not public",
    "ContainerNotFound": "there is no such container; `fab data.ls` lists what is there",
    "BlobNotFound": "there is no such blob; `fab data.ls` lists what is there",
}
_identity_lock = threading.Lock()
_identity: list[tuple[str, float]] = []


class Blobs:
    """The blobs of a source, read as the source says; ``query`` is its SAS."""

    def __init__(
        self,
        source: StageSource,
        query: str,
        web: Web,
        token: Callable[[str], tuple[str, float] | None] = identity_token,
    ) -> None:
        self._source, self._query, self._web, self._token = source, query, web, token
        address = urlsplit(source["url"])
        container, _, path = address.path.lstrip("/").partition("/")
        self._root = f"https://{address.netloc}/{container}"
        self._path = unquote(path)
        self.is_cut = True

    def files(self) -> list[File]:
        """Return the files of the source, a folder's without the path of the folder.

        Raise :class:`FetchError`, and ValueError where there is none.
        """
        return [self._one()] if self._source["kind"] == "file" else self._folder()

    def read(self, file: File, start: int, size: int, sink: Sink) -> None:
        """Pass a range of a file on. Raise :class:`FetchError`."""
        folder = self._path.rstrip("/") if self._source["kind"] == "folder" else ""
        name = self._path if self._source["kind"] == "file" else f"{folder}/{file.path}".lstrip("/")
        url = self._url(name)
        headers = {"Range": f"bytes={start}-{start + size - 1}", "If-Match": file.etag}
        answer = self.request("GET", name, headers=headers)
        if answer.status == _CHANGED:
            raise FetchError(faults.REFUSED, f"{url} was changed while it was staged; launch again")
        if answer.status != _PARTIAL:
            raise self.refusal(name, answer)
        found, expected = answer.headers.get("Content-Range"), f"bytes {start}-{start + size - 1}/{file.size}"
        if found != expected:
            raise FetchError(faults.BROKEN, f"{url}: {found} was sent where {expected} was asked for")
        copy_body(answer, size, sink, url)

    def _one(self) -> File:
        url = self._url(self._path)
        if not self._path.rstrip("/"):
            raise ValueError(f"{url}: this is a container; a file has a path in it, a folder is a uri_folder")
        answer = self.request("HEAD", self._path)
        if answer.status != _OK:
            raise self.refusal(self._path, answer)
        answer.read()
        if answer.headers.get("x-ms-meta-hdi_isfolder") == "true":  # of a hierarchical account, or Hadoop's
            raise ValueError(f"{url}: is a folder: make it a uri_folder, or end its address with a slash")
        size, etag = answer.headers.get("Content-Length"), answer.headers.get("ETag")
        if not size or not etag:
            raise FetchError(faults.REFUSED, f"{url}: the answer has no Content-Length, or no ETag")
        return File(self._path.rpartition("/")[2], read_size(size, url), _checked_etag(etag, url))

    def _folder(self) -> list[File]:
        prefix = f"{self._path.rstrip('/')}/" if self._path.rstrip("/") else ""
        files: list[File] = []
        found_any = False
        marker = ""
        markers: set[str] = set()
        while True:
            query = f"restype=container&comp=list&maxresults={_PAGE}&prefix={quote(prefix, safe='')}"
            page = self._page(f"{query}&marker={quote(marker, safe='')}" if marker else query)
            for blob in page.iter("Blob"):
                found_any = True
                file = _file_of(blob, prefix)
                if file is not None:
                    files.append(file)
            if len(files) > _MOST_FILES:
                remedy = "pack them into fewer, larger files, such as tar archives"
                raise ValueError(f"{self._source['url']}: more than {_MOST_FILES:,} files: {remedy}")
            marker = next_marker(page, markers, self._root)
            if not marker:
                break
        if not found_any:
            remedy = "a single file is a uri_file; `fab data.ls` lists what is there"
            raise ValueError(f"{self._source['url']}: no blob is below {prefix or 'it'}: {remedy}")
        # Some tools mark a folder by an empty blob of its name.
        folders = {file.path.rpartition("/")[0] for file in files}
        return sorted(file for file in files if file.size or file.path not in folders)

    def _page(self, query: str) -> ElementTree.Element:
        answer = self.request("GET", "", query)
        if answer.status != _OK:
            raise self.refusal("", answer)
        try:
            return ElementTree.fromstring(answer.read(BODY_BYTES))  # noqa: S314  (the storage's own, over TLS)
        except (OSError, http.client.HTTPException, ElementTree.ParseError) as error:
            raise FetchError(faults.BROKEN, f"{self._root}: the list is not whole: {error}") from None

    def request(
        self,
        method: str,
        name: str,
        query: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
        body: bytes = b"",
    ) -> http.client.HTTPResponse:
        """Return the answer about the blob of this name, the container itself without a name.

        Raise :class:`FetchError` where there is no answer, or one that asks to come later.
        """
        url = self._url(name)
        if self._source["auth"] == "sas":
            query = "&".join(filter(None, (query, self._query)))
        full = f"{url}?{query}" if query else url
        for is_fresh in (False, True):
            given = {"x-ms-version": _VERSION, **self._authorization(fresh=is_fresh), **headers}
            answer = self._web.ask(method, full, given, url, body)
            if answer.status != _UNAUTHORIZED or self._source["auth"] != "identity":
                break
        return answer

    def _url(self, name: str) -> str:
        return f"{self._root}/{quote(name)}" if name else self._root

    def _authorization(self, *, fresh: bool) -> dict[str, str]:
        if self._source["auth"] != "identity":
            return {}
        with _identity_lock:
            if fresh or not _identity or _identity[0][1] - _SPARE_S < time.time():
                try:
                    found = self._token(AUDIENCE)
                except OSError as error:
                    raise FetchError(faults.BROKEN, str(error)) from None
                if found is None:
                    why = "the nodes have no identity: set ranklift:storage and run `fab up`, or use a SAS"
                    raise FetchError(faults.REFUSED, f"{self._root}: {why}")
                _identity[:] = [found]
            return {"Authorization": f"Bearer {_identity[0][0]}"}

    def refusal(self, name: str, answer: http.client.HTTPResponse, role: str = _READER) -> FetchError:
        """Return what an answer other than the expected one means, with Azure's code and the remedy; ``role``
        is the one that the work as a whole needs."""
        url = self._url(name)
        code = answer.headers.get("x-ms-error-code", "")
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(BODY_BYTES)
        if not code and answer.status == _NOT_FOUND:
            code = "BlobNotFound"
        remedy = _REMEDIES.get(code)
        text = f"{url}: Azure answers {answer.status} {code}".rstrip()
        return FetchError(faults.REFUSED, f"{text}: {remedy.format(role=role)}" if remedy else text)


def next_marker(page: ElementTree.Element, markers: set[str], url: str) -> str:
    """Return where the list at ``url`` goes on after ``page``, empty at its end; ``markers`` are those of the
    pages before, and gain this one. Raise :class:`FetchError` for a list that does not end."""
    marker = page.findtext("NextMarker") or ""
    if marker in markers:
        raise FetchError(faults.BROKEN, f"{url}: the list goes on where it went on before")
    if len(marker) > _LONGEST_MARKER:
        raise FetchError(faults.REFUSED, f"{url}: the list goes on at a marker of {len(marker)} characters")
    if len(markers) >= _MOST_PAGES:
        raise FetchError(faults.REFUSED, f"{url}: the list has more than {_MOST_PAGES} pages")
    if marker:
        markers.add(marker)
    return marker


def _checked_etag(etag: str, url: str) -> str:
    """Return what becomes a header of later requests. Raise :class:`FetchError` where it cannot."""
    if len(etag) > _LONGEST_ETAG or not all("!" <= letter <= "~" for letter in etag):
        raise FetchError(faults.REFUSED, f"{url}: {etag[:40]!a} is not an ETag")
    return etag


def _file_of(blob: ElementTree.Element, prefix: str) -> File | None:
    """Return a blob of a list as a file; None for what only marks a folder."""
    name = blob.find("Name")
    text = "" if name is None else name.text or ""
    if name is not None and name.get("Encoded") == "true":
        text = unquote(text)
    properties = blob.find("Properties")
    if properties is None or not text.startswith(prefix):
        raise FetchError(faults.BROKEN, f"the list of blobs below {prefix!r} has {text!r}")
    if text.endswith("/") or text == prefix or properties.findtext("ResourceType") == "directory":
        return None
    etag = properties.findtext("Etag") or ""
    # The list has it without the quotes that If-Match needs.
    etag = etag if etag.startswith('"') else f'"{etag}"'
    path = text[len(prefix) :]
    etag = _checked_etag(etag, path)
    return File(path, read_size(properties.findtext("Content-Length") or "0", path), etag)
