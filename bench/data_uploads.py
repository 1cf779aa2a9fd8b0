"""Outputs of 16 nodes on their way to storage: from all nodes at once, beside one client, node after node.

The client is Microsoft's Python SDK with eight files at a time in blocks of 4 MiB, on one machine that has
all files already: what it would take to bring them there is not counted. The nodes' time has the start of
their processes in it. Nodes are processes on loopback, storage is a server of this machine: it is unshaped,
behind a link of a set rate in all, or reached by each machine over a link of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.core.credentials import AzureSasCredential
from azure.storage.blob import ContainerClient

from bench.report import Claim, save, table
from tests.launch.remote.data.storage_server import Storage, serve
from tests.launch.remote.head.upload_nodes import Nodes

__all__ = ["main"]

NODES, AT_ONCE = 16, 8
LARGE, SMALL, SMALL_FILES = 12 << 20, 64 << 10, 16
TOTAL = NODES * (LARGE + SMALL_FILES * SMALL)
BLOCK = 4 << 20
LINK, OWN_LINK = 32e6, 8e6
OURS, PLAIN = "the job's end, or fab upload", "one client, node after node"
NEAR, FASTER = 1.25, 0.5


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    if sys.argv[1:]:
        return send(*sys.argv[1:])
    links: dict[str, tuple[float | None, float | None]] = {
        "unshaped": (None, None),
        f"{LINK / 1e6:g} MB/s in all": (LINK, None),
        f"{OWN_LINK / 1e6:g} MB/s each machine": (None, OWN_LINK),
    }
    found = {name: (measure(*link, by_nodes), measure(*link, by_client)) for name, link in links.items()}
    rows = [(name, ours, plain, ours / plain) for name, (ours, plain) in found.items()]
    title = f"{TOTAL >> 20} MiB of {NODES} nodes, {NODES * (SMALL_FILES + 1)} files"
    table(title, ("link", f"{OURS}, s", f"{PLAIN}, s", "of the client's"), rows)
    in_all, own = (found[name] for name in list(links)[1:])
    claims = [
        Claim("16 nodes beside the link's own time", in_all[0] / (TOTAL / LINK), NEAR, "x"),
        Claim("16 nodes beside one client, each machine with a link", own[0] / own[1], FASTER, "x"),
    ]
    return save("data-uploads", {name: {OURS: a, PLAIN: b} for name, (a, b) in found.items()}, claims)


def measure(
    rate: float | None, machine_rate: float | None, way: Callable[[Storage, Path, pytest.MonkeyPatch], float]
) -> float:
    """Returns the seconds until storage has all files of all nodes."""
    shared = Path("/dev/shm")  # noqa: S108  the disk would be measured otherwise
    with (
        tempfile.TemporaryDirectory(dir=shared) as folder,
        serve(Path(folder)) as storage,
        pytest.MonkeyPatch.context() as patch,
    ):
        storage.rate, storage.machine_rate = rate, machine_rate
        seconds = way(storage, Path(folder), patch)
        stored = sum(len(content) for content in storage.blobs.values() if isinstance(content, bytes))
        if (len(storage.blobs), stored) != (NODES * (SMALL_FILES + 1), TOTAL):
            raise RuntimeError(f"storage has {len(storage.blobs)} files, {stored} bytes")
        return seconds


def made(storage: Storage, folder: Path, patch: pytest.MonkeyPatch) -> Nodes:
    """Nodes with what their job left."""
    nodes = Nodes(folder, storage, patch, NODES)
    for number in range(NODES):
        nodes.write(number, f"weights-{number}", os.urandom(LARGE))
        for small in range(SMALL_FILES):
            nodes.write(number, f"small-{number}-{small}", os.urandom(SMALL))
    return nodes


def by_nodes(storage: Storage, folder: Path, patch: pytest.MonkeyPatch) -> float:
    nodes = made(storage, folder, patch)
    storage.machine_of = lambda path: path.rpartition("/")[2].split("-")[1]
    started = time.monotonic()
    event = nodes.upload()
    if event["errors"]:
        raise RuntimeError(f"the upload failed: {event}")
    return time.monotonic() - started


def by_client(storage: Storage, folder: Path, patch: pytest.MonkeyPatch) -> float:
    nodes = made(storage, folder, patch)
    homes = [str(nodes.home(number)) for number in range(NODES)]
    argv = [sys.executable, "-m", "bench.data_uploads", storage.url, str(storage.certificate), *homes]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def send(url: str, certificate: str, *homes: str) -> int:
    """Sends the files of each folder in turn by the SDK; prints the seconds."""
    client = ContainerClient(
        url,
        "results",
        credential=AzureSasCredential("sig=none"),
        connection_verify=certificate,
        max_block_size=BLOCK,
        max_single_put_size=BLOCK,
    )
    started = time.monotonic()
    found = [path for home in homes for path in sorted(Path(home).rglob("outputs/*")) if path.is_file()]
    with client, ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda path: _send(client, path), found):
            pass
    sys.stdout.write(f"{time.monotonic() - started}\n")
    return 0


def _send(client: ContainerClient, path: Path) -> None:
    with path.open("rb") as stream:
        client.upload_blob(
            path.name,
            stream,
            length=path.stat().st_size,
            overwrite=True,
            validate_content=True,
            max_concurrency=AT_ONCE,
        )


if __name__ == "__main__":
    sys.exit(main())
