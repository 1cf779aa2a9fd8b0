"""A Prometheus that takes what a sender writes, and answers queries about it."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.playbooks.server import free_port

__all__ = ["Receiver", "receiver"]

_LIMIT_S = 60.0


@dataclass(frozen=True)
class Receiver:
    """Where it listens."""

    url: str

    def write(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        """Status and text of a request of remote write."""
        request = urllib.request.Request(f"{self.url}/api/v1/write", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def query(self, expression: str, at: float) -> list[dict[str, Any]]:
        """The series of an instant query, as Prometheus returns them."""
        words = urllib.parse.urlencode({"query": expression, "time": at})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    """Debian's Prometheus, which scrapes nothing."""
    (folder / "prometheus.yml").write_text("{}")
    url = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={url}",
                "--web.enable-remote-write-receiver",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + _LIMIT_S
        while not _is_ready(f"http://{url}"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, "Prometheus does not become ready"
            time.sleep(0.1)
        yield Receiver(f"http://{url}")
    finally:
        process.terminate()
        process.wait(20)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
