"""Queries of Azure over plain HTTP.

Azure's SDKs take half a second each to import (measured: azure.mgmt.compute 0.4 s, azure.mgmt.network 0.6 s,
azure.identity 0.5 s), and azure.core's pipeline 0.16 s, which is more than all answers together take.
A query here is one GET, and callers with several run them side by side.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from infra.arm.clients import endpoint, rehearsal_token
from infra.arm.errors import AzureRefused, refusal
from infra.arm.sign_in import access_token

__all__ = [
    "Answer",
    "Rest",
    "Send",
    "management",
    "retail_prices",
]

MANAGEMENT = "https://management.azure.com"
PRICES = "https://prices.azure.com"
REQUEST_S = 15.0
"""Time limit of one request."""
TRIES = 4
LONGEST_PAUSE_S = 10.0
"""Limit of a pause that Azure asks for with ``Retry-After``; a longer one is an error that names it."""
PAGES = 500
_NOT_FOUND = 404
_BUSY = {429, 500, 502, 503, 504}


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""


Send = Callable[[str, Mapping[str, str]], Answer]
"""Sends one GET with these headers to an address; raises ``OSError`` without an answer."""


@dataclass(frozen=True, slots=True)
class Rest:
    """One of Azure's endpoints, with the token of the signed-in identity."""

    base: str
    token: Callable[[], str] | None = None
    """``None`` for endpoints without sign-in."""
    send: Send = field(default_factory=lambda: _send)
    sleep: Callable[[float], None] = time.sleep

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON object at ``path``.

        While Azure is busy the request is repeated, after the pause that Azure asks for. Raises
        :class:`AzureRefused` or a subclass, in Azure's words with the remedy.
        """
        return self._get(self._url(path, query))

    def find(self, path: str, **query: str) -> Any | None:
        """Like :meth:`get`, but return ``None`` for a path that is not there."""
        return self._find(self._url(path, query), dict)

    def array(self, path: str, **query: str) -> Any:
        """Like :meth:`get` for the few lists that are an array; empty for a path that is not there."""
        return self._find(self._url(path, query), list) or []

    def _url(self, path: str, query: Mapping[str, str]) -> str:
        # Azure reads %20 in a filter everywhere and + not everywhere; its own examples leave $ as it is.
        tail = urlencode(query, quote_via=quote, safe="$',:()")
        return f"{self.base}{path}" + (f"?{tail}" if tail else "")

    def _find(self, url: str, form: type) -> Any | None:
        try:
            return self._get(url, form)
        except AzureRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def pages(self, path: str, **query: str) -> Iterator[Any]:
        """Yield the entries of a list, page by page until there is no next.

        ARM's keys are ``value`` and ``nextLink``, those of the prices ``Items`` and ``NextPageLink``.
        """
        page = self.get(path, **query)
        for _ in range(PAGES):
            yield from page.get("value", page.get("Items")) or ()
            link = page.get("nextLink") or page.get("NextPageLink")
            if not link:
                return
            page = self._get(self._own(link))
        raise AzureRefused(f"{self.base}{path}: the list has more than {PAGES} pages; narrow it down")

    def _own(self, link: str) -> str:
        """Return the address of the next page; refuse one elsewhere, which must not see the token."""
        url = urljoin(self.base, link)
        ours, theirs = urlsplit(self.base), urlsplit(url)
        defaults = {"https": 443, "http": 80}
        if (theirs.scheme, theirs.hostname, theirs.port or defaults.get(theirs.scheme)) != (
            ours.scheme,
            ours.hostname,
            ours.port or defaults.get(ours.scheme),
        ):
            raise AzureRefused(f"{self.base}: its list continues at {url}, another endpoint: not followed")
        return url

    def _get(self, url: str, form: type = dict) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "ranklift"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token()}"
        for left in reversed(range(TRIES)):
            try:
                answer = self.send(url, headers)
            except OSError as error:
                if left:
                    self.sleep(0.2)
                    continue
                host = urlsplit(url).netloc
                raise AzureRefused(
                    f"{host} does not answer: {_reason(error)}; check that you are online"
                ) from error
            if answer.status not in _BUSY:
                break
            pause = _pause(answer, TRIES - left)
            if not left or pause > LONGEST_PAUSE_S:
                break
            self.sleep(pause)
        return _read(answer, url, form)


def management(environment: Mapping[str, str] | None = None, send: Send | None = None) -> Rest:
    """Return Azure's management API, or the rehearsal's when ``RANKLIFT_ARM_ENDPOINT`` is set."""
    environment = os.environ if environment is None else environment
    return _rehearsal(environment, send) or Rest(MANAGEMENT, _Token(environment), send or _send)


def retail_prices(environment: Mapping[str, str] | None = None, send: Send | None = None) -> Rest:
    """Return Azure's price list, or the rehearsal's; it needs no sign-in (Azure Retail Prices overview)."""
    rehearsal = _rehearsal(os.environ if environment is None else environment, send)
    return rehearsal or Rest(PRICES, None, send or _send)


def _rehearsal(environment: Mapping[str, str], send: Send | None) -> Rest | None:
    url = endpoint(environment)
    return Rest(url, partial(rehearsal_token, environment), send or _send) if url else None


class _Token:
    """The token of the signed-in identity, requested once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment, self._lock, self._known = environment, threading.Lock(), ""

    def __call__(self) -> str:
        with self._lock:
            if not self._known:
                self._known = access_token(self._environment)
            return self._known


def _read(answer: Answer, url: str, form: type) -> Any:
    try:
        said = json.loads(answer.body or b"{}")
    except ValueError:
        said = None
    if answer.status < 300 and isinstance(said, form):  # noqa: PLR2004
        return said
    if answer.status < 300:  # noqa: PLR2004
        raise AzureRefused(f"{urlsplit(url).netloc} did not answer in JSON at {urlsplit(url).path}")
    error = said.get("error") if isinstance(said, dict) else None
    error = error if isinstance(error, dict) else {}
    text = str(error.get("message") or answer.body.decode("utf-8", "replace").strip()[:300])
    raise refusal(answer.status, str(error.get("code") or ""), text, answer.headers)


def _pause(answer: Answer, tried: int) -> float:
    """Return seconds until the next try: what Azure asks for, else a little more each time."""
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):  # it could be a date, which ARM does not send
        return 0.5 * 2.0 ** (tried - 1)


def _reason(error: OSError) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: Azure's APIs send none, and a token must not follow one."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _send(url: str, headers: Mapping[str, str]) -> Answer:
    # The address is Azure's own or the rehearsal's on this machine, which no proxy can reach.
    proxies: dict[str, str] | None = {} if url.startswith("http://") else None
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(proxies))
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310
    try:
        with opener.open(request, timeout=REQUEST_S) as answer:
            return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()})
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), {k.lower(): v for k, v in error.headers.items()})
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer broke off ({type(error).__name__})") from error
