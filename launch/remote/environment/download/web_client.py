"""HTTP to a host that the user has named, and to the addresses to which its answers lead.

A registry names a token service, redirects to its storage, and an index links to files: each could name a
service that only this node reaches, such as the metadata service or a port of loopback. So an answer leads by
TLS, no nearer to this node than the host that gave it is, and never to link-local addresses or Azure's own.
The address counts that a connection has, not what the name resolves to at another time.

The exceptions: a host that the user named without TLS may lead to itself without TLS, and one on loopback to
others there. Behind a proxy, which the node's administrator has chosen, only literal addresses are checked.
"""

from __future__ import annotations

import functools
import http.client
import ipaddress
import json
import re
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["Answer", "Misled", "Reach", "Refusal", "WebClient", "load_object", "reach_of"]

_REDIRECTS = 5
_REDIRECTING = (301, 302, 303, 307, 308)
_LONGEST_URL = 8192
"""Characters of an address: signed ones of storage have some 2000."""
_EXCERPT = 1 << 16
"""Bytes of an error's answer that are read."""
_LONGEST_NUMBER = 20
_AZURE = ipaddress.ip_address("168.63.129.16")
"""The platform's own address in each virtual network (learn.microsoft.com, what is IP address
168.63.129.16)."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOOPBACK_NAME = re.compile(r"localhost|127(\.\d+){3}|::1")


class Misled(ValueError):
    """An address to which an answer leads and that is not asked: a clause that follows the host's name."""


class Refusal(OSError):
    """An answer other than success."""

    def __init__(self, status: int, challenge: str, body: bytes, reach: Reach, host: str = "") -> None:
        super().__init__(f"HTTP {status} from {host}" if host else f"HTTP {status}")
        self.status, self.challenge, self.body, self.reach = status, challenge, body, reach


class Reach(IntEnum):
    """How near an address is to this node; an answer leads no nearer than it came from."""

    PUBLIC = 0
    PRIVATE = 1
    LOOPBACK = 2
    NEVER = 3


class Answer(NamedTuple):
    """An open answer, and how near the host is that gave it."""

    response: http.client.HTTPResponse
    reach: Reach


def reach_of(address: str) -> Reach:
    """Return how near an IP address is; one that stands for an IPv4 address counts as that.

    >>> [reach_of(one).name for one in ("93.184.215.14", "10.0.0.4", "::1", "::ffff:169.254.169.254")]
    ['PUBLIC', 'PRIVATE', 'LOOPBACK', 'NEVER']
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    if found.is_loopback:
        return Reach.LOOPBACK
    if found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved:
        return Reach.NEVER
    if found == _AZURE:
        return Reach.NEVER
    return Reach.PUBLIC if found.is_global else Reach.PRIVATE


class _Request(urllib.request.Request):
    """A request that may go to addresses as near as ``most``; ``reach`` is that of the answer."""

    def __init__(self, url: str, data: bytes | None, headers: Mapping[str, str], most: Reach) -> None:
        super().__init__(url, data, dict(headers))
        self.most, self.reach = most, Reach.PUBLIC


def _check_peer(connection: http.client.HTTPConnection, asked: _Request) -> None:
    """Refuse a connection's address before anything is sent. Raise :class:`Misled`."""
    address = str(connection.sock.getpeername()[0])
    asked.reach = reach_of(address)
    if asked.reach > asked.most:
        raise _misled(asked.full_url, f"which is {address} here")


class _Plain(http.client.HTTPConnection):
    def __init__(self, host: str, *, asked: _Request, **words: Any) -> None:
        super().__init__(host, **words)
        self._asked = asked

    def connect(self) -> None:
        super().connect()
        if not self._asked.has_proxy():
            _check_peer(self, self._asked)


class _Tls(http.client.HTTPSConnection):
    def __init__(self, host: str, *, asked: _Request, context: ssl.SSLContext, **words: Any) -> None:
        super().__init__(host, context=context, **words)
        self._asked, self._trust, self._is_tunnel = asked, context, False

    def set_tunnel(self, *words: Any, **named: Any) -> None:
        super().set_tunnel(*words, **named)
        self._is_tunnel = True

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        if not self._is_tunnel:
            _check_peer(self, self._asked)
        host = urllib.parse.urlsplit(self._asked.full_url).hostname
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=host)


class _PlainHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        assert isinstance(req, _Request)  # noqa: S101  (the client makes no other)
        return self.do_open(functools.partial(_Plain, asked=req), req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._trust = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        assert isinstance(req, _Request)  # noqa: S101  (the client makes no other)
        return self.do_open(functools.partial(_Tls, asked=req, context=self._trust), req)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirections to :class:`WebClient`."""

    def http_error_302(self, *_: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302  # type: ignore[assignment]


class WebClient:
    """A client for the host of ``url``, whose certificates are checked by ``context``."""

    def __init__(self, url: str, context: ssl.SSLContext, timeout: float) -> None:
        """``timeout`` are the seconds of silence after which a connection is given up. Raise
        :class:`Misled` for what is no address."""
        parts = _split(url)
        self._host, self._is_plain, self._timeout = parts.hostname, parts.scheme == "http", timeout
        self._opener = urllib.request.build_opener(_PlainHandler, _TlsHandler(context), _NoRedirects)

    def open(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        authorization: str = "",
        body: bytes | None = None,
        led_by: Reach | None = None,
    ) -> Answer:
        """Return the open answer to a GET, with a ``body`` to a POST; ``led_by`` is the reach of the answer
        that named ``url``, None where the user did.

        ``authorization`` goes to the host of ``url`` alone, a body nowhere else, and the challenge of another
        host that a redirection leads to is left out: its token service would get the login. Raise
        :class:`Misled`, :class:`Refusal`, and URLError where there is no answer.
        """
        own = _origin(url)
        for _ in range(_REDIRECTS + 1):
            request = _Request(url, body, headers, self._most(url, led_by))
            if authorization:
                request.add_unredirected_header("Authorization", authorization)
            try:
                return Answer(self._opener.open(request, timeout=self._timeout), request.reach)
            except urllib.error.HTTPError as error:
                with error:
                    target = error.headers.get("Location", "")
                    if error.code not in _REDIRECTING or not target or body is not None:
                        if _origin(url) == own:
                            challenge, host = error.headers.get("WWW-Authenticate", ""), ""
                        else:
                            challenge, host = "", urllib.parse.urlsplit(url).netloc
                        raise Refusal(error.code, challenge, _excerpt(error), request.reach, host) from None
            except urllib.error.URLError:
                raise
            except (http.client.HTTPException, OSError) as error:
                raise urllib.error.URLError(error) from None
            before, url = url, _joined(url, target)
            led_by = request.reach if led_by is None else min(led_by, request.reach)
            if _origin(url) != _origin(before):
                authorization = ""
        raise _misled(url, f"over {_REDIRECTS} redirections")

    def _most(self, url: str, led_by: Reach | None) -> Reach:
        """Return how near the address of ``url`` may be. Raise :class:`Misled`."""
        parts = _split(url)
        host = str(parts.hostname)
        is_named = host == self._host
        are_here = bool(_LOOPBACK_NAME.fullmatch(host) and _LOOPBACK_NAME.fullmatch(str(self._host)))
        if parts.scheme == "http" and not (self._is_plain and (is_named or are_here)):
            raise _misled(url, "without TLS")
        if led_by is None:
            return Reach.LOOPBACK
        most = max(led_by, Reach.PRIVATE) if is_named else led_by
        literal = _literal(host)  # a proxy connects to it unchecked
        if literal and reach_of(literal) > most:
            raise _misled(url, "an address of another network")
        return most


def _split(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        is_address = is_address and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    is_text = url.isascii() and url.isprintable() and " " not in url and len(url) <= _LONGEST_URL
    if not (is_address and is_text):
        raise _no_address(url)
    return parts


def _joined(url: str, target: str) -> str:
    try:
        return urllib.parse.urljoin(url, target)
    except ValueError:
        raise _no_address(target) from None


def _no_address(text: str) -> Misled:
    return Misled(f"leads to {text.rpartition('@')[2][:40]!r}, which is no address of a web server")


def _origin(url: str) -> tuple[str, str]:
    parts = _split(url)
    return parts.scheme, parts.netloc.lower()


def _misled(url: str, why: str) -> Misled:
    """Return the error, without the path and query, which may be signed."""
    parts = _split(url)
    return Misled(f"leads to {parts.scheme}://{parts.netloc}, {why}: that is not asked")


def _literal(host: str) -> str:
    """Return the address that a host is in any of its forms, such as 0x7f.1; empty for a name.

    >>> _literal("2852039166"), _literal("0251.0376.0251.0376"), _literal("::1"), _literal("a.io")
    ('169.254.169.254', '169.254.169.254', '::1', '')
    """
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return ""


def _excerpt(error: urllib.error.HTTPError) -> bytes:
    try:
        return bytes(error.read(_EXCERPT))
    except (OSError, http.client.HTTPException):
        return b""


def load_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raise ValueError for anything else, for one that is nested too deep, and for
    numbers of more than 20 digits.

    >>> load_object(b'{"size": 7}')
    {'size': 7}
    """
    try:
        found = json.loads(data, parse_int=_short_int)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is no object but {type(found).__name__}")  # noqa: TRY004  (what was sent is wrong)
    return found


def _short_int(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)
