"""What a node sends to Azure Monitor, when, and what it shows of that."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from launch.remote.metrics import monitor_link, monitor_sender
from launch.remote.metrics.monitor_link import MonitorLink, Refused, Unreachable, is_azure_monitor
from launch.remote.metrics.monitor_sender import MONITOR, MonitorSender, monitor_address
from launch.remote.metrics.remote_write import REQUEST_SERIES
from rehearsal.arm.monitor import remote_write_decoder
from rehearsal.arm.monitor.remote_write_decoder import Sample, read_request

NOW = 1_700_000_000.0
RULE = "dataCollectionRules/dcr-1"


@dataclass
class Azure:
    """A metadata service and Azure Monitor in one, at an address of this machine."""

    url: str = ""
    tag: str = ""
    tokens: int = 0
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    """Answers to the next requests; 204 after these."""
    requests: list[tuple[str, dict[str, str], list[Sample]]] = field(default_factory=list)
    has_identity: bool = True
    is_silent: bool = False

    def labels(self, number: int = -1) -> list[dict[str, str]]:
        return [dict(one.labels) for one in self.requests[number][2]]


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Azure]:
    made = Azure()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if made.is_silent:
                self.reply(503)
            elif self.path.startswith("/metadata/instance"):
                tags = [{"name": "ranklift-identity", "value": "client"}] if made.has_identity else []
                tags += [{"name": MONITOR, "value": made.tag}] if made.tag else []
                self.reply(200, json.dumps({"compute": {"tagsList": tags}}).encode())
            else:
                assert "resource=https://monitor.azure.com/&client_id=client" in self.path
                made.tokens += 1
                token = {"access_token": f"token-{made.tokens}", "expires_on": "4000000000"}
                self.reply(200, json.dumps(token).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.requests.append((self.path, dict(self.headers), read_request(body)))
            status, headers, text = made.answers.pop(0) if made.answers else (204, {}, b"")
            self.reply(status, text, headers)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    made.tag = f"{made.url}/{RULE}"
    monkeypatch.setattr(monitor_link, "_REHEARSED", f"{made.url}/")
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def sample(name: str, value: float = 1.0, **labels: str) -> tuple[str, tuple[tuple[str, str], ...], float]:
    return name, tuple(labels.items()), value


def sender(azure: Azure, *samples: Any) -> MonitorSender:
    return MonitorSender(lambda _: list(samples), "10.0.0.4:9500", azure.url)


@contextmanager
def linked(azure: Azure) -> Iterator[tuple[MonitorLink, list[float]]]:
    """A link, and the waits that it would have made."""
    waited: list[float] = []
    made = MonitorLink(azure.tag, azure.url, sleep=waited.append)
    yield made, waited
    made.close()


# -- what is sent ------------------------------------------------------------------------------------------


def test_samples_go_to_the_rules_stream_by_the_nodes_identity(azure: Azure) -> None:
    sender(azure, sample("ranklift_node_cpu_ratio", 0.5, node="node000000")).send_once(NOW)
    ((path, headers, samples),) = azure.requests
    assert path == f"/{RULE}/streams/Microsoft-PrometheusMetrics/api/v1/write?api-version=2023-04-24"
    assert headers["Authorization"] == "Bearer token-1"
    assert headers["Content-Encoding"] == "snappy"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    (found,) = samples
    assert (found.value, found.time_ms) == (0.5, int(NOW * 1000))
    assert found.labels == {
        "__name__": "ranklift_node_cpu_ratio",
        "instance": "10.0.0.4:9500",
        "job": "ranklift",
        "node": "node000000",
    }


def test_a_series_that_is_gone_is_ended_once(azure: Azure) -> None:
    now = [sample("a"), sample("b")]
    made = MonitorSender(lambda _: list(now), "n", azure.url)
    made.send_once(NOW)
    del now[1]
    made.send_once(NOW + 60)
    made.send_once(NOW + 120)
    ended = [one for one in azure.requests[1][2] if one.bits == remote_write_decoder.STALE]
    assert [one.labels["__name__"] for one in ended] == ["b"]
    assert [one["__name__"] for one in azure.labels(2)] == ["a"]


def test_without_the_tag_nothing_is_sent_and_nothing_is_shown(azure: Azure) -> None:
    made = sender(azure, sample("a"))
    made.send_once(NOW)
    assert made.state is not None
    azure.tag = ""
    made.send_once(NOW + 60)
    assert made.state is None
    assert len(azure.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/dataCollectionRules/dcr-1",
        "https://example.com/?a.ingest.monitor.azure.com/dcr",
        "https://a.metrics.ingest.monitor.azure.com@example.com/dcr",
        "https://a.metrics.ingest.monitor.azure.com.example.com/dcr",
        "https://a.metrics.ingest.monitor.azure.com:444/dcr",
        "http://a.eastus-1.metrics.ingest.monitor.azure.com/dcr",
        "https://a.eastus-1.metrics.ingest.monitor.azure.com/dcr\r\nX: y",
    ],
)
def test_a_token_goes_to_azure_monitor_alone(
    azure: Azure, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not is_azure_monitor(url)
    azure.tag = url
    made = sender(azure, sample("a"))
    made.send_once(NOW)
    made.send_once(NOW + 60)
    assert azure.tokens == 0
    assert made.state == {"accepted": False, "sent": 0, "dropped": 0, "last_sent": None}
    assert capsys.readouterr().err.count("not an Azure Monitor address") == 1


# -- what fails --------------------------------------------------------------------------------------------


def test_a_busy_service_is_asked_again_after_the_time_that_it_names(azure: Azure) -> None:
    azure.answers = [(503, {}, b""), (429, {"Retry-After": "7"}, b"")]
    with linked(azure) as (link, waited):
        link.send(b"\x00")
    assert len(azure.requests) == 3
    assert waited == [1.0, 7.0]


def test_a_long_retry_after_is_not_waited_for(azure: Azure) -> None:
    azure.answers = [(429, {"Retry-After": "86400"}, b""), (429, {"Retry-After": "soon"}, b"")]
    with linked(azure) as (link, waited):
        link.send(b"\x00")
    assert waited == [15.0, 4.0]


def test_attempts_are_bounded(azure: Azure) -> None:
    azure.answers = [(500, {}, b"down\x1b[2J for now")] * 9
    with (
        linked(azure) as (link, _),
        pytest.raises(Unreachable, match=r"HTTP 500: down\?\[2J for now"),
    ):
        link.send(b"\x00")
    assert len(azure.requests) == 3


def test_a_refused_request_is_not_repeated(azure: Azure) -> None:
    azure.answers = [(403, {}, b"no role")]
    with linked(azure) as (link, _), pytest.raises(Refused, match="HTTP 403: no role"):
        link.send(b"\x00")
    assert len(azure.requests) == 1


def test_after_401_there_is_another_token(azure: Azure) -> None:
    azure.answers = [(401, {}, b"")]
    with linked(azure) as (link, _):
        link.send(b"\x00")
        link.send(b"\x00")
    assert [headers["Authorization"][-7:] for _, headers, _ in azure.requests] == [
        "token-1",
        "token-2",
        "token-2",
    ]


def test_nodes_without_identity_say_so(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    azure.has_identity = False
    made = sender(azure, sample("a"))
    made.send_once(NOW)
    assert made.state == {"accepted": False, "sent": 0, "dropped": 1, "last_sent": None}
    assert "the nodes have no identity" in capsys.readouterr().err


def test_what_is_not_taken_is_counted_and_logged_once_until_it_is_taken(
    azure: Azure, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sender(azure, sample("a"), sample("b"))
    azure.answers = [(403, {}, b"no role"), (403, {}, b"no role")]
    made.send_once(NOW)
    made.send_once(NOW + 60)
    assert made.state == {"accepted": False, "sent": 0, "dropped": 4, "last_sent": None}
    made.send_once(NOW + 120)
    assert made.state == {"accepted": True, "sent": 2, "dropped": 4, "last_sent": NOW + 120}
    made.send_once(NOW + 180)
    reason = "HTTP 403: no role; a new role takes up to half an hour to count"
    assert capsys.readouterr().err.splitlines() == [
        f"Azure Monitor did not take 2 samples: {reason}",
        "metrics are sent to Azure Monitor every minute",
    ]


def test_after_a_refusal_the_rest_of_the_minute_is_not_tried(azure: Azure) -> None:
    many = [sample("a", n=str(n)) for n in range(2 * REQUEST_SERIES)]
    azure.answers = [(403, {}, b"")]
    made = sender(azure, *many)
    made.send_once(NOW)
    assert len(azure.requests) == 1
    assert made.state is not None
    assert made.state["dropped"] == 2 * REQUEST_SERIES


def test_after_a_request_that_is_refused_for_its_content_the_others_are_sent(azure: Azure) -> None:
    many = [sample("a", n=str(n)) for n in range(2 * REQUEST_SERIES)]
    azure.answers = [(400, {}, b"a label is too long")]
    made = sender(azure, *many)
    made.send_once(NOW)
    state = made.state
    assert state is not None
    assert (state["accepted"], state["sent"], state["dropped"]) == (False, REQUEST_SERIES, REQUEST_SERIES)


def test_what_does_not_fit_into_a_minute_is_dropped(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitor_sender, "INTERVAL_S", 0.0)
    made = sender(azure, sample("a"))
    made.send_once(NOW)
    assert azure.requests == []
    assert made.state == {"accepted": False, "sent": 0, "dropped": 1, "last_sent": None}
    assert "0 s were not enough" in capsys.readouterr().err


def test_a_silent_metadata_service_stops_it_and_is_shown(
    azure: Azure, capsys: pytest.CaptureFixture[str]
) -> None:
    made = sender(azure, sample("a"))
    made.send_once(NOW)
    azure.is_silent = True
    made.send_once(NOW + 60)
    assert len(azure.requests) == 1
    assert made.state is not None
    assert made.state["accepted"] is False
    assert "the metadata service answers HTTP 503" in capsys.readouterr().err
    with pytest.raises(OSError, match="HTTP 503"):
        monitor_address(azure.url)


def test_the_thread_goes_on_after_whatever_fails(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_sender, "_SPREAD_S", 1)
    calls = []
    twice = threading.Event()

    def make(_: object) -> list[Any]:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(monitor_sender, "INTERVAL_S", 0.0)
    made = MonitorSender(make, "n", azure.url)
    made.start()
    assert twice.wait(10)
    made.stop()
