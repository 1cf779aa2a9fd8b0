"""Data on their way to rehearsed nodes, and what is killed, cut off, filled, refused or lost meanwhile."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from azure.storage.blob import BlobServiceClient, UserDelegationKey

from tests.chaos import inside
from tests.data.staging_nodes import (
    MB,
    Nodes,
    commands_with,
    end_of,
    files_with,
    kill_group,
    wait_until,
)

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

STACK, NODES = "rehearsal", 3
IN_FLIGHT = 16 * MB
"""Most bytes that may leave storage again after a cut: what was on its way to all nodes."""
SAS_VERSION = "2022-11-02"
LISTS = 100_000
"""Bytes of the lists of blobs, by which a staging begins."""


def test_a_killed_fab_ends_the_staging_and_the_next_one_goes_on(nodes: Nodes) -> None:
    made = nodes.put("fab")
    before = nodes.left_storage()
    with nodes.staging("fab") as process:
        kill_group(process)
        wait_until(lambda: nodes.stagings() == 0)
    nodes.check_all_hold("fab", made)
    assert nodes.left_storage() - before <= 24 * MB + IN_FLIGHT


@pytest.mark.parametrize(
    ("name", "node", "pattern", "goes_on"),
    [
        pytest.param("head", 0, "__main__.py [s]tage", False, marks=pytest.mark.for_every_change),
        ("node", 1, "[s]tage_node", True),
        ("heads-node", 0, "[s]tage_node", True),
        ("session", 0, "^sshd: azureuser", False),
        ("nodes-session", 2, "^sshd: azureuser", True),
    ],
)
def test_what_is_killed_keeps_its_parts(
    nodes: Nodes, name: str, node: int, pattern: str, goes_on: bool
) -> None:
    made = nodes.put(name)
    before = nodes.left_storage()
    with nodes.staging(name) as process:
        nodes.kill(node, pattern)
        nodes.fab("rehearsal.fault", "clear")
        status, out = end_of(process)
    assert (status == 0) == goes_on, out
    wait_until(lambda: nodes.stagings() == 0)
    nodes.check_all_hold(name, made)
    assert nodes.left_storage() - before <= 24 * MB + IN_FLIGHT


def test_a_node_that_is_cut_off_is_named_and_has_all_once_it_is_back(nodes: Nodes) -> None:
    made = nodes.put("parted")
    with nodes.staging("parted") as process:
        nodes.fab("rehearsal.fault", "partition", "--nodes", "2")
        nodes.fab("rehearsal.fault", "clear")
        try:
            status, out = end_of(process)
        finally:
            nodes.fab("rehearsal.fault", "heal", "--nodes", "2")
    assert status != 0
    assert "node000002" in out
    assert "node000001: " not in out
    before = nodes.left_storage()
    nodes.check_all_hold("parted", made)
    assert nodes.left_storage() - before < LISTS


@pytest.mark.for_every_change
def test_a_full_disk_on_one_node_is_named_and_the_others_have_all(nodes: Nodes) -> None:
    made = nodes.put("full")
    broken = inside.nodes(nodes.workplace.project, STACK)["node000001"]
    broken.mount("/home/azureuser/.ranklift/data", "8m")
    try:
        ran = nodes.stage("full", status=None)
    finally:
        broken.unmount("/home/azureuser/.ranklift/data")
    assert ran.status != 0
    assert "node000001: its disk has no room for 24.0 MB more" in ran.err
    assert "`fab data.prune` removes what no job uses" in ran.err
    before = settled(nodes)
    nodes.check_all_hold("full", made, "0,2")
    assert nodes.left_storage() - before < LISTS
    nodes.check_all_hold("full", made)


def settled(nodes: Nodes) -> int:
    """Return the bytes that have left storage once those under way to a node that gave up are counted."""
    counted, now = -1, nodes.left_storage()
    while now != counted:
        time.sleep(1.0)
        counted, now = now, nodes.left_storage()
    return now


def test_a_blob_that_changes_meanwhile_ends_the_staging(nodes: Nodes) -> None:
    made = nodes.put("changing", 64)
    with nodes.staging("changing") as process:  # of which the last blobs are not asked for yet
        nodes.container.upload_blob("changing/63.bin", b"changed", overwrite=True)
        made["63.bin"] = hashlib.sha256(b"changed").hexdigest()
        nodes.fab("rehearsal.fault", "clear")
        status, out = end_of(process)
    assert status != 0
    assert "was changed while it was staged; launch again" in out
    nodes.check_all_hold("changing", made)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (["storage-busy", "--seconds", "4"], ""),
        (["storage-cut", "--count", "3"], ""),
        (
            ["storage-denied"],
            "403 AuthorizationPermissionMismatch: give the nodes' identity the role Storage",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_storage_that_fails_for_a_while_is_waited_for_and_one_that_refuses_is_named(
    nodes: Nodes, fault: list[str], problem: str
) -> None:
    made = nodes.put(fault[0])
    nodes.fab("rehearsal.fault", *fault)
    try:
        ran = nodes.stage(fault[0], status=None)
    finally:
        nodes.fab("rehearsal.fault", "clear")
    assert (ran.status == 0) == (not problem), ran
    assert problem in ran.err
    nodes.check_all_hold(fault[0], made)


def signed(client: BlobServiceClient) -> tuple[str, str]:
    """Return the account, and a SAS of its container ``data`` by the operator's key.

    The client's own are of a version that Azurite does not know yet.
    """
    now = datetime.now(UTC)
    key = client.get_user_delegation_key(now - timedelta(minutes=5), now + timedelta(hours=1))
    account = client.account_name
    assert account is not None
    return account, user_delegation_sas(
        account, key, (now + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def user_delegation_sas(account: str, key: UserDelegationKey, end: str) -> str:
    """Sign as learn.microsoft.com rest/api/storageservices/create-user-delegation-sas says of the version."""
    of_key = {
        "skoid": key.signed_oid,
        "sktid": key.signed_tid,
        "skt": key.signed_start,
        "ske": key.signed_expiry,
        "sks": key.signed_service,
        "skv": key.signed_version,
    }
    first = ["rl", "", end, f"/blob/{account}/data", *of_key.values()]
    text = "\n".join([*map(str, first), "", "", "", "", "", SAS_VERSION, "c", *[""] * 7])
    digest = hmac.new(base64.b64decode(str(key.value)), text.encode(), hashlib.sha256).digest()
    made = {"sp": "rl", "se": end, "sv": SAS_VERSION, "sr": "c", **of_key, "sig": base64.b64encode(digest)}
    return urlencode(made)


def test_nothing_of_a_sas_is_in_a_file_or_on_a_command_line(
    nodes: Nodes, storage_client: BlobServiceClient, tmp_path: Path
) -> None:
    nodes.put("signed")
    account, sas = signed(storage_client)
    address = f"https://{account}.blob.core.windows.net/data"
    (tmp_path / "sas").write_text(f"{address}?{sas}\n")
    secret = sas.partition("sig=")[2].partition("&")[0].encode()
    assert len(secret) > 20
    with nodes.staging(f"{address}/signed", "--sas-file", str(tmp_path / "sas")) as process:
        assert commands_with(secret) == []
        nodes.fab("rehearsal.fault", "clear")
        status, out = end_of(process)
    assert status == 0, out
    assert secret.decode() not in out
    for one in inside.nodes(nodes.workplace.project, STACK).values():
        assert files_with(secret, one.path("")) == []
        assert files_with(secret, one.path("../../tmp")) == []
    assert files_with(secret, nodes.workplace.own) == []
    assert files_with(secret, nodes.workplace.project / ".ranklift") == []


def test_a_lost_node_is_named_and_the_others_have_all(nodes: Nodes) -> None:
    made = nodes.put("lost")
    with nodes.staging("lost") as process:
        nodes.fab("rehearsal.fault", "death", "--nodes", "2")
        nodes.fab("rehearsal.fault", "clear")
        status, out = end_of(process)
    assert status != 0
    assert "node000002" in out
    before = nodes.left_storage()
    nodes.check_all_hold("lost", made, "0-1")
    assert nodes.left_storage() - before < LISTS
