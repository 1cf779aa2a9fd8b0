"""Questions to Azure over plain HTTP, and what its refusals mean.

Azure's SDKs take half a second each to import (measured: azure.mgmt.compute 0.4 s, azure.mgmt.network 0.6 s,
azure.identity 0.5 s), which is more than all answers together take. Here a question is one GET; whoever asks
several asks them side by side.
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
from infra.arm.errors import AzureRefused, refusal, sign_in_failed

__all__ = [
    "Answer",
    "Rest",
    "Send",
    "management",
    "retail_prices",
]

MANAGEMENT = "https://management.azure.com"
PRICES = "https://prices.azure.com"
SCOPE = f"{MANAGEMENT}/.default"
REQUEST_S = 15.0
"""How long one request may take."""
TRIES = 4
LONGEST_PAUSE_S = 10.0
"""Azure may ask for more patience than that with ``Retry-After``; then the command says so instead."""
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
"""Makes one GET of an address with these headers; raises ``OSError`` when nobody answers."""


@dataclass(frozen=True, slots=True)
class Rest:
    """One of Azure's endpoints, asked in the name of whoever is signed in."""

    base: str
    token: Callable[[], str] | None = None
    """``None`` where no sign-in is asked for."""
    send: Send = field(default_factory=lambda: _send)
    sleep: Callable[[float], None] = time.sleep

    def get(self, path: str, **query: str) -> Any:
        """What the endpoint has at ``path``.

        Azure is asked again when it is busy, for as long as it asks for. Raises :class:`AzureRefused` or one
        of its kinds in Azure's words with what to do.
        """
        # Azure reads %20 in a filter everywhere and + not everywhere; its own examples leave $ as it is.
        tail = urlencode(query, quote_via=quote, safe="$',:()")
        return self._get(f"{self.base}{path}" + (f"?{tail}" if tail else ""))

    def find(self, path: str, **query: str) -> Any | None:
        """:meth:`get` for what may not be there: ``None`` then."""
        try:
            return self.get(path, **query)
        except AzureRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def pages(self, path: str, **query: str) -> Iterator[Any]:
        """The entries of a list that comes in pages, which are asked for until there is no next.

        ARM's key for them is ``value`` and ``nextLink``, that of the prices ``Items`` and ``NextPageLink``.
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
        """The address of the next page; a token is shown to nobody but the endpoint it is for."""
        url = urljoin(self.base, link)
        ours, theirs = urlsplit(self.base), urlsplit(url)
        defaults = {"https": 443, "http": 80}
        if (theirs.scheme, theirs.hostname, theirs.port or defaults.get(theirs.scheme)) != (
            ours.scheme,
            ours.hostname,
            ours.port or defaults.get(ours.scheme),
        ):
            raise AzureRefused(f"{self.base}: the next page of its list is said to be at {url}: not followed")
        return url

    def _get(self, url: str) -> Any:
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
                    f"{host} does not answer: {_reason(error)}; see whether you are online"
                ) from error
            if answer.status not in _BUSY:
                break
            pause = _pause(answer, TRIES - left)
            if not left or pause > LONGEST_PAUSE_S:
                break
            self.sleep(pause)
        return _read(answer, url)


def management(environment: Mapping[str, str] | None = None, send: Send | None = None) -> Rest:
    """Azure's management API, or the rehearsal's when ``RANKLIFT_ARM_ENDPOINT`` is set."""
    rehearsal = _rehearsal(os.environ if environment is None else environment, send)
    return rehearsal or Rest(MANAGEMENT, _Token(), send or _send)


def retail_prices(environment: Mapping[str, str] | None = None, send: Send | None = None) -> Rest:
    """Azure's price list, or the rehearsal's; asks for no sign-in (Azure Retail Prices REST API overview)."""
    rehearsal = _rehearsal(os.environ if environment is None else environment, send)
    return rehearsal or Rest(PRICES, None, send or _send)


def _rehearsal(environment: Mapping[str, str], send: Send | None) -> Rest | None:
    url = endpoint(environment)
    return Rest(url, partial(rehearsal_token, environment), send or _send) if url else None


class _Token:
    """The token of whoever is signed in, asked for once."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), ""

    def __call__(self) -> str:
        with self._lock:
            if not self._known:
                from azure.core.exceptions import ClientAuthenticationError
                from azure.identity import DefaultAzureCredential

                try:
                    self._known = DefaultAzureCredential().get_token(SCOPE).token
                except ClientAuthenticationError as error:
                    raise sign_in_failed(error.message or str(error)) from None
            return self._known


def _read(answer: Answer, url: str) -> Any:
    try:
        said = json.loads(answer.body or b"{}")
    except ValueError:
        said = None
    if answer.status < 300 and isinstance(said, dict):  # noqa: PLR2004
        return said
    if answer.status < 300:  # noqa: PLR2004
        raise AzureRefused(f"{urlsplit(url).netloc} did not answer in JSON at {urlsplit(url).path}")
    error = said.get("error") if isinstance(said, dict) else None
    error = error if isinstance(error, dict) else {}
    text = str(error.get("message") or answer.body.decode("utf-8", "replace").strip()[:300])
    raise refusal(answer.status, str(error.get("code") or ""), text, answer.headers)


def _pause(answer: Answer, tried: int) -> float:
    """Seconds until the next try: what Azure asks for, else a little more each time."""
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):  # it may also be a date, which Azure's ARM does not send
        return 0.5 * 2.0 ** (tried - 1)


def _reason(error: OSError) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or inner)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Azure's APIs send nobody elsewhere, and a token must not go there."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _send(url: str, headers: Mapping[str, str]) -> Answer:
    # The address is Azure's own or, where the user says so, one on this machine, which no proxy can reach.
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
