"""The requests to Azure Monitor: one POST at a time, by the nodes' identity, with bounded waits.

"Connect self-managed Prometheus to Azure Monitor managed service for Prometheus" (learn.microsoft.com) has
the form of the address; the audience is that of the authorization proxy for Azure Monitor workspaces (same
site).
"""

from __future__ import annotations

import http.client
import re
import ssl
import sys
import time
from urllib.parse import urlsplit

from launch.remote.agent.identity_token import SERVICE, identity_token
from launch.remote.metrics.remote_write import HEADERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Connection = http.client.HTTPConnection

__all__ = ["STREAM", "MonitorLink", "Refused", "Unreachable", "is_azure_monitor", "log"]

AUDIENCE = "https://monitor.azure.com/"
STREAM = "/streams/Microsoft-PrometheusMetrics/api/v1/write?api-version=2023-04-24"
"""What Azure's addresses of a rule's metrics end in."""
_REHEARSED = "http://169.254.169.254/ingest/"
"""The metadata service of a rehearsal stands for Azure Monitor: its nodes have no way to any other host."""
_AZURE = re.compile(r"https://[A-Za-z0-9-]+(\.[a-z0-9-]+)+\.ingest\.monitor\.azure\.com/[!-~]+\Z")
LIMIT_S = 10.0
"""Limit of connecting, of sending and of each wait for an answer."""
WAITS_S = (1.0, 4.0)
"""Waits before a request is repeated: three attempts in all."""
LONGEST_WAIT_S = 15.0
"""Most seconds of a Retry-After that are waited for."""
_TOKEN_MARGIN_S = 300.0
_ANSWER_BYTES = 4096
_SHOWN = 300
_UNKNOWN, _BUSY, _SERVER_ERROR, _OK, _REDIRECT = 401, 429, 500, 200, 300


class Refused(Exception):
    """Azure Monitor refuses a request, or the nodes have no identity: the same one will be refused again."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(Exception):
    """No request can be answered now."""


def is_azure_monitor(url: str) -> bool:
    """Whether a token for Azure Monitor may be sent to this address of a rule.

    >>> is_azure_monitor("https://a-1x2y.eastus-1.metrics.ingest.monitor.azure.com/dataCollectionRules/dcr-1")
    True
    >>> is_azure_monitor("https://example.com/x.ingest.monitor.azure.com/"), is_azure_monitor("")
    (False, False)
    """
    return bool(_AZURE.match(url)) or url.startswith(_REHEARSED)


class MonitorLink:
    """The connection to one rule; a token is asked for when the last one is about to end."""

    def __init__(
        self,
        url: str,
        service: str = SERVICE,
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.url = url
        self._service, self._context, self._sleep = service, context, sleep
        self._token, self._ends = "", 0.0
        self._connection: Connection | None = None

    def send(self, body: bytes) -> None:
        """Send a request, and repeat it twice where that can help.

        Raise :class:`Refused`, and :class:`Unreachable` after the last attempt.
        """
        for wait in (*WAITS_S, None):
            try:
                status, asked, text = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                problem, asked = f"no answer: {str(error) or type(error).__name__}", 0.0
            else:
                if _OK <= status < _REDIRECT:
                    return
                problem = f"HTTP {status}: {text}"
                if status == _UNKNOWN:
                    self._ends = 0.0  # a token of this node may have been withdrawn; the next one is new
                elif status != _BUSY and status < _SERVER_ERROR:
                    raise Refused(problem, status)
            if wait is None:
                raise Unreachable(problem)
            self._sleep(max(wait, min(asked, LONGEST_WAIT_S)))

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes) -> tuple[int, float, str]:
        """Return status, seconds of Retry-After and the beginning of the answer."""
        address = urlsplit(self.url + STREAM)
        headers = {**HEADERS, "Authorization": f"Bearer {self._bearer()}", "User-Agent": "ranklift"}
        target = address.path + (f"?{address.query}" if address.query else "")
        if self._connection is None:
            self._connection = self._connect(address.scheme, address.netloc)
        self._connection.request("POST", target, body, headers)
        answer = self._connection.getresponse()
        text = answer.read(_ANSWER_BYTES)
        if answer.read(1) or answer.will_close:
            self.close()
        return answer.status, _seconds(answer.headers.get("Retry-After", "")), _plain(text)

    def _connect(self, scheme: str, host: str) -> Connection:
        if scheme == "http":
            return http.client.HTTPConnection(host, timeout=LIMIT_S)
        context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(host, timeout=LIMIT_S, context=context)

    def _bearer(self) -> str:
        if time.time() > self._ends - _TOKEN_MARGIN_S:
            found = identity_token(AUDIENCE, self._service)
            if found is None or not found[0]:
                raise Refused("the nodes have no identity")
            self._token, self._ends = found
        return self._token


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def _plain(text: bytes) -> str:
    """Return the beginning of an answer as one line for the log."""
    words = " ".join(text.decode("utf-8", "replace").split())
    return "".join(one if one.isprintable() else "?" for one in words)[:_SHOWN]


def log(text: str) -> None:
    """Write a line to the service's log."""
    sys.stderr.write(f"{text}\n")
