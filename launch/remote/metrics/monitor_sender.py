"""Sends a node's metrics to Azure Monitor every minute, where the scale set's tag names an address for them.

The stack's setting ``monitor`` sets the tag, and a running node reads it within a minute. Series have the
labels ``job`` and ``instance`` that a Prometheus which scrapes the node would give them. What is not taken is
dropped and counted: memory has the samples of one minute, and a restart begins without any.
"""

from __future__ import annotations

import json
import threading
import time
import zlib

from launch.remote.agent import imds
from launch.remote.agent.identity_token import SERVICE
from launch.remote.metrics.monitor_link import MonitorLink, Refused, Unreachable, is_azure_monitor, log
from launch.remote.metrics.remote_write import STALE, encode_requests, labels_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.metrics.exposition import Sample
    from launch.remote.metrics.metrics_records import SendingState
    from launch.remote.metrics.remote_write import Labels, Series

    MakeSamples = Callable[["SendingState | None"], "list[Sample]"]

__all__ = ["INTERVAL_S", "MONITOR", "MonitorSender", "monitor_address"]

MONITOR = "ranklift-monitor"
"""The scale set's tag with the address of the rule that takes the metrics of its nodes."""
JOB = "ranklift"
"""Label ``job`` of all series, as in the scrape configuration of docs/observing.md."""
INTERVAL_S = 60.0
_SPREAD_S = 10
"""Nodes that start together send at different seconds of this span."""
_LIMIT_S = 10.0
_INSTANCE = "/metadata/instance?api-version=2021-02-01"
_BAD_REQUEST = 400


def monitor_address(service: str = SERVICE) -> str:
    """Return the address in the scale set's tag; empty without one.

    Raise OSError and ValueError when the metadata service does not answer as one.
    """
    status, _, body = imds.ask("GET", service, _INSTANCE, b"", _LIMIT_S)
    if status != imds.OK:
        raise OSError(f"the metadata service answers HTTP {status}")
    try:
        tags = json.loads(body)["compute"]["tagsList"]
        found = [one["value"] for one in tags if one["name"] == MONITOR]
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"the metadata service shows no tags: {error!r:.100}") from None
    return str(found[0]).strip() if found else ""


class MonitorSender:
    """The thread that sends; :attr:`state` is what it has come to, None while there is no address."""

    def __init__(self, make: MakeSamples, instance: str, service: str = SERVICE) -> None:
        """``make`` returns the node's samples, ``instance`` is the label of that name."""
        self._make, self._instance, self._service = make, instance, service
        self.state: SendingState | None = None
        self._link: MonitorLink | None = None
        self._last: frozenset[Labels] = frozenset()
        self._logged = ""
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin, in a thread that ends with the process."""
        threading.Thread(target=self._run, name="azure-monitor", daemon=True).start()

    def stop(self) -> None:
        """Send nothing more after what is being sent."""
        self._ended.set()

    def _run(self) -> None:
        wait = float(zlib.crc32(self._instance.encode()) % _SPREAD_S)
        while not self._ended.wait(wait):
            began = time.monotonic()
            try:
                self.send_once(time.time())
            except Exception as error:  # noqa: BLE001  whatever it was, the next minute may go well
                self._log(f"metrics are not sent to Azure Monitor: {error!r:.200}")
            wait = max(1.0, INTERVAL_S - (time.monotonic() - began))

    def send_once(self, now: float) -> None:
        """Send the node's samples of now, if the stack has an address for them."""
        try:
            url = monitor_address(self._service)
        except (OSError, ValueError) as error:
            # Not sent elsewhere than the tag says: the stack may have been changed meanwhile.
            self._log(f"metrics are not sent to Azure Monitor: {error}")
            if self.state is not None:
                self.state = {**self.state, "accepted": False}
            return
        if not url:
            self._forget()
            return
        if self._link is None or self._link.url != url:
            self._forget()
            self._link = MonitorLink(url, self._service)
        state = self.state or {"accepted": False, "sent": 0, "dropped": 0, "last_sent": None}
        if is_azure_monitor(url):
            self.state = self._send(self._link, self._series(self._make(self.state)), state, now)
        else:
            self.state = state
            self._log(
                f"metrics are not sent: the tag {MONITOR} has {url!r:.100}, not an Azure Monitor address"
            )

    def _forget(self) -> None:
        if self._link is not None:
            self._log("metrics are not sent to Azure Monitor any more: the stack has no address for them")
        self.state, self._link, self._last, self._logged = None, None, frozenset(), ""

    def _series(self, samples: list[Sample]) -> list[Series]:
        """Return the series with this node's labels, and an end for each that was there a minute ago."""
        fixed = (("job", JOB), ("instance", self._instance))
        found = [(labels_of(name, (*labels, *fixed)), value) for name, labels, value in samples]
        now = frozenset(labels for labels, _ in found)
        ended = [(labels, STALE) for labels in sorted(self._last - now)]
        self._last = now
        return [*found, *ended]

    def _send(self, link: MonitorLink, series: list[Series], state: SendingState, now: float) -> SendingState:
        sent = dropped = 0
        problem = ""
        until = time.monotonic() + INTERVAL_S
        for body, count in encode_requests(series, int(now * 1000)):
            if time.monotonic() > until:
                problem = problem or f"{INTERVAL_S:g} s were not enough"
            if problem and not problem.startswith(f"HTTP {_BAD_REQUEST}"):
                dropped += count
                continue
            try:
                link.send(body)
                sent += count
            except (Refused, Unreachable) as error:
                problem = str(error)
                dropped += count
        link.close()  # the service would close it before the next minute
        self._report(problem, dropped)
        return {
            "accepted": not problem,
            "sent": state["sent"] + sent,
            "dropped": state["dropped"] + dropped,
            "last_sent": now if sent else state["last_sent"],
        }

    def _report(self, problem: str, dropped: int) -> None:
        """Write to the log when sending begins, fails in another way, or goes well again."""
        if problem:
            hint = ""
            if problem.startswith("HTTP 403"):
                hint = "; a new role takes up to half an hour to count"
            self._log(f"Azure Monitor did not take {dropped} samples: {problem}{hint}", problem)
        else:
            self._log("metrics are sent to Azure Monitor every minute")

    def _log(self, text: str, kind: str = "") -> None:
        if (kind or text) != self._logged:
            self._logged = kind or text
            log(text)
