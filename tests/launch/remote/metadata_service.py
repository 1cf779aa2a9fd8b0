"""A metadata service and a resource manager on a loopback port, as a node's watch and the leader ask them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and a body: bytes as they are, anything else as JSON."""


def event(node: str, kind: str = "Preempt", seconds: float = 30, **other: Any) -> dict[str, Any]:
    """An event as the service shows it."""
    fields = {
        "EventId": f"{kind}-{node}",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [node],
        "EventStatus": "Scheduled",
        "NotBefore": formatdate(time.time() + seconds, usegmt=True),
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    return {**fields, **other}


class MetadataService:
    """What it answers is set by the test; ``asked`` has every request: method, path, headers, body."""

    def __init__(self, name: str = "nodes_1") -> None:
        self.events: list[Any] = []
        self.tags: dict[str, str] = {}
        self.name = name
        self.environment = "RankliftRehearsal"
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.instead: dict[str, Reply] = {}
        """By the beginning of a path, what is answered in place of the usual."""
        self.arm: Callable[[str, str, Any], Reply] = lambda method, path, body: (404, {}, {})
        self.headers: dict[str, str] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append((self.command, self.path, headers, body))
                status, more, result = service.reply(self.command, self.path, body)
                data = result if isinstance(result, bytes) else json.dumps(result).encode()
                self.send_response_only(status)
                for header in {"Date": formatdate(usegmt=True), **service.headers, **more}.items():
                    self.send_header(*header)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = do

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def reply(self, method: str, path: str, body: Any) -> Reply:
        for start, reply in self.instead.items():
            if path.startswith(start):
                return reply
        if path.startswith("/metadata/scheduledevents"):
            return (200, {}, b"") if method == "POST" else (200, {}, {"Events": self.events})
        if path.startswith("/metadata/instance"):
            return 200, {}, {"compute": self.compute()}
        if path.startswith("/metadata/identity"):
            return 200, {}, {"access_token": "the token"}
        return self.arm(method, path, body)

    def compute(self) -> dict[str, Any]:
        return {
            "azEnvironment": self.environment,
            "name": self.name,
            "vmScaleSetName": "nodes",
            "subscriptionId": "S",
            "resourceGroupName": "G",
            "tagsList": [{"name": name, "value": value} for name, value in self.tags.items()],
        }

    def approved(self) -> list[str]:
        """Events that were approved."""
        bodies = [body for method, path, _, body in self.asked if method == "POST" and "scheduled" in path]
        return [one["EventId"] for body in bodies for one in body["StartRequests"]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def notice(home: Path) -> dict[str, Any] | None:
    """The one that the watch of a home folder has written."""
    path = home / ".ranklift/agent/notice.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def log(home: Path) -> str:
    """What is in watch.log, without times."""
    path = home / ".ranklift/agent/watch.log"
    return re.sub(r"^\S+ ", "", path.read_text(), flags=re.M) if path.exists() else ""
