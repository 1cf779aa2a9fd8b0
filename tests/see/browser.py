"""A page as headless Chromium shows it, without any way to a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.workplace import ROOT

__all__ = ["Opened", "draw_page", "open_page"]

_OWN = (".googleapis.com", ".google.com")
"""Hosts of Chromium's own queries: for updates, and for the time."""
_CONSOLE = re.compile(r":CONSOLE:\d+\] (.*), source: file://")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-extensions", "--disable-default-apps", "--no-first-run"),
    *("--enable-logging=stderr", "--hide-scrollbars"),
)


@dataclass(frozen=True, slots=True)
class Opened:
    """What came of a page."""

    console: tuple[str, ...]
    """Messages of the page, errors among them."""
    requests: tuple[str, ...]
    """Addresses that it asked the network for."""
    document: str
    """The document after its load, as HTML."""


def open_page(page: Path, folder: Path, picture: Path | None = None, size: str = "1000,1400") -> Opened:
    """Open a file; draw ``picture`` of it. Chromium's files go to ``folder``."""
    log = folder / "network.json"
    shown = ["--dump-dom"] if picture is None else [f"--screenshot={picture}"]
    argv = [
        *(
            "unshare",
            "--map-root-user",
            "--net",
            "chromium",
            *_FLAGS,
            f"--user-data-dir={folder / 'profile'}",
        ),
        *(f"--log-net-log={log}", f"--window-size={size}", *shown, page.resolve().as_uri()),
    ]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
    )
    shutil.rmtree(folder / "profile", ignore_errors=True)
    return Opened(tuple(_CONSOLE.findall(done.stderr)), tuple(_requests(log)), done.stdout)


def draw_page(page: Path, folder: Path, name: str, size: str) -> None:
    """Draw a picture of a file and see that it is one; keep it in docs/images where WRITE_PICTURES is set."""
    drawn = (ROOT / "docs/images" if os.environ.get("WRITE_PICTURES") else folder) / f"{name}.png"
    drawn.parent.mkdir(exist_ok=True)
    opened = open_page(page, folder, drawn, size)
    assert opened.console == ()
    assert drawn.read_bytes().startswith(b"\x89PNG")


def _requests(log: Path) -> list[str]:
    found = json.loads(log.read_text())
    (begun,) = (
        number
        for name, number in found["constants"]["logEventTypes"].items()
        if name == "URL_REQUEST_START_JOB"
    )
    urls = {event.get("params", {}).get("url", "") for event in found["events"] if event["type"] == begun}
    return sorted(url for url in urls if url and not (urlsplit(url).hostname or "").endswith(_OWN))
