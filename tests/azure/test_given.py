"""What exists before a stack and after it: given networks and accounts, data that is to be kept."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workplace import Workplace
from tests.rehearsal.node_lab import outside_server

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]

CORPORATE = "/resourceGroups/corporate"
HUB = f"{CORPORATE}/providers/Microsoft.Network/virtualNetworks/hub"
LONGEST_PREVIEW_S = 5.0
"""Of a processor, for the program, the engine and its plugins: the machine may be doing much else."""


def put(workplace: Workplace, path: str, body: dict[str, Any]) -> str:
    """Makes something that no stack of ours made; returns its id."""
    record = workplace.record
    own = f"/subscriptions/{record.subscription_id}{path}"
    workplace.ask("PUT", own, body, version="2024-05-01")
    return own


@pytest.fixture(scope="module")
def hub(workplace: Workplace) -> str:
    """A network of somebody else's, with a subnet for training."""
    put(workplace, CORPORATE, {"location": "southcentralus"})
    subnet = {"name": "training", "properties": {"addressPrefix": "10.40.8.0/24"}}
    space = {"addressPrefixes": ["10.40.0.0/16"]}
    return put(
        workplace,
        HUB,
        {"location": "southcentralus", "properties": {"addressSpace": space, "subnets": [subnet]}},
    )


@pytest.fixture(scope="module")
def kept(workplace: Workplace) -> str:
    """The id of a storage account whose stack is gone."""
    workplace.configure("rehearsal-first", nodeCount=1, storage="serviceEndpoint", retainData="true")
    workplace.fab("up", "--stack", "rehearsal-first")
    printed = workplace.pulumi("preview", "--stack", "rehearsal-first").out
    assert "ranklift:retainData: ranklift-rehearsal-first-data and what is in it stay" in printed
    planned = workplace.pulumi("destroy", "--preview-only", "--stack", "rehearsal-first").out.splitlines()
    retained = {line.split()[1].rpartition(":")[2] for line in planned if "[retain]" in line}
    assert retained == {
        "ResourceGroup",
        "StorageAccount",
        "BlobServiceProperties",
        "BlobContainer",
        "KeyPair",
    }
    workplace.pulumi("destroy", "--yes", "--skip-preview", "--stack", "rehearsal-first")
    groups = {name for name in workplace.groups() if name.startswith("ranklift-rehearsal-first")}
    assert groups == {"ranklift-rehearsal-first-data"}
    of_first = workplace.azure("/resourceGroups/ranklift-rehearsal-first-data/resources")["value"]
    (account,) = (one["id"] for one in of_first if one["type"].endswith("/storageAccounts"))
    return str(account)


GET = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=3).read())' "


@pytest.mark.for_every_change
def test_a_stack_lives_in_a_given_subnet_with_a_kept_account_and_leaves_both_as_they_were(
    workplace: Workplace, hub: str, kept: str, tmp_path: Path
) -> None:
    _, _, account_path = kept.partition(workplace.record.subscription_id)
    before = workplace.azure(HUB), workplace.azure(account_path)
    workplace.configure(
        "rehearsal-second",
        nodeCount=2,
        subnetId=f"{hub}/subnets/training",
        subnetPrefix="10.40.8.0/24",
        storage="privateEndpoint",
        storageAccountId=kept,
        nfs="vm",
        nfsSizeGib=200,
    )
    workplace.fab("up", "--stack", "rehearsal-second")
    result = workplace.pulumi("stack", "output", "--json", "--stack", "rehearsal-second").json()
    assert result["storageAccount"] == kept.rpartition("/")[2]
    assert result["nfsMount"].startswith("10.40.8.")
    workplace.pulumi("preview", "--stack", "rehearsal-second", "--expect-no-changes")
    workplace.fab("exec", "--stack", "rehearsal-second", "touch /mnt/nfs/$(hostname)")
    seen = workplace.fab("exec", "--stack", "rehearsal-second", "ls /mnt/nfs | wc -l", "--json").json()
    assert {answer["stdout"].strip() for answer in seen.values()} == {"2"}
    with outside_server(tmp_path) as url:
        tried = f"{GET} {url} 2>&1 | tail -n 1"
        alone = workplace.fab("exec", "--stack", "rehearsal-second", tried, "--json").json()
    # The subnet has no NAT gateway.
    assert {answer["stdout"].strip() for answer in alone.values()} == {
        "urllib.error.URLError: <urlopen error timed out>"
    }
    server = result["nfsMount"].partition(":")[0]
    scan = f"ssh-keyscan -t ed25519 {server}"
    shown = workplace.fab("exec", "--stack", "rehearsal-second", scan, "--json").json()
    keys = {" ".join(answer["stdout"].split()[1:3]) for answer in shown.values()}
    assert len(keys) == 1
    assert keys != {result["hostPublicKey"]}, "who has the server's disk would be every node"
    workplace.pulumi("destroy", "--yes", "--skip-preview", "--stack", "rehearsal-second")
    after = workplace.azure(HUB), workplace.azure(account_path)
    assert [described(one) for one in after] == [described(one) for one in before]
    assert not {name for name in workplace.groups() if name.startswith("ranklift-rehearsal-second")}


RANK = """\
import os, socket
from mpi4py import MPI
peers = MPI.COMM_WORLD.allgather(socket.gethostname())
print("reach", sorted(peers), len({socket.gethostbyname(peer) for peer in peers}))
"""
TORCH = """\
import socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), socket.gethostbyname(socket.gethostname()).partition(".")[0])
dist.destroy_process_group()
"""


def test_jobs_run_where_the_networks_dns_servers_do_not_know_the_nodes(workplace: Workplace) -> None:
    put(workplace, CORPORATE, {"location": "southcentralus"})
    subnet = {"name": "training", "properties": {"addressPrefix": "10.60.8.0/24"}}
    space = {"addressPrefixes": ["10.60.0.0/16"]}
    properties = {
        "addressSpace": space,
        "subnets": [subnet],
        "dhcpOptions": {"dnsServers": ["10.60.0.4"]},
    }
    network = put(
        workplace,
        f"{CORPORATE}/providers/Microsoft.Network/virtualNetworks/own-dns",
        {"location": "southcentralus", "properties": properties},
    )
    stack, settings = "rehearsal-names", {"subnetId": f"{network}/subnets/training"}
    settings |= {"subnetPrefix": "10.60.8.0/24"}
    workplace.configure(stack, nodeCount=2, storage="privateEndpoint", **settings)
    workplace.pulumi("stack", "init", stack)
    refused = workplace.pulumi("preview", "--stack", stack, status=None)
    assert refused.status != 0
    assert "ranklift:storage = 'privateEndpoint': names its address in a private DNS zone" in (
        refused.out + refused.err
    )
    workplace.configure(stack, nodeCount=2, **settings)
    workplace.fab("up", "--stack", stack)
    workplace.fab("scale", "3", "--stack", stack)
    (workplace.own / "reach.py").write_text(RANK)
    (workplace.own / "sum.py").write_text(TORCH)
    ran = workplace.fab("launch.mpi", "reach.py", "--stack", stack)
    assert ran.out.count("reach ['node000000', 'node000001', 'node000002'] 3") == 3, ran
    for more in ((), ("--torchrun",)):
        ran = workplace.fab("launch.torch", "sum.py", "--stack", stack, *more)
        assert ran.out.count("sum 3 10") == 3, ran
    known = workplace.fab("exec", "grep -c node0 /etc/hosts", "--stack", stack, "--json").json()
    assert {answer["stdout"] for answer in known.values()} == {"4\n"}, "its own line, and one for each node"
    workplace.pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)


@pytest.mark.for_every_change
def test_a_range_that_is_not_the_given_subnets_is_refused_before_anything_is_made(
    workplace: Workplace, hub: str
) -> None:
    workplace.configure(
        "rehearsal-third", nodeCount=1, subnetId=f"{hub}/subnets/training", subnetPrefix="10.40.9.0/24"
    )
    workplace.pulumi("stack", "init", "rehearsal-third")
    ran = workplace.pulumi("preview", "--stack", "rehearsal-third", status=None)
    assert ran.status != 0
    assert "ranklift:subnetPrefix = '10.40.9.0/24': is not the range of the subnet" in ran.out + ran.err
    assert not {name for name in workplace.groups() if name.startswith("ranklift-rehearsal-third")}


def test_a_preview_of_what_does_not_change_is_quick(workplace: Workplace) -> None:
    workplace.configure("rehearsal-quick", nodeCount=1)
    workplace.fab("up", "--stack", "rehearsal-quick")
    try:
        workplace.pulumi("preview", "--stack", "rehearsal-quick", "--expect-no-changes")  # the first compiles
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        workplace.pulumi("preview", "--stack", "rehearsal-quick", "--expect-no-changes")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LONGEST_PREVIEW_S
    finally:
        workplace.pulumi("destroy", "--yes", "--skip-preview", "--stack", "rehearsal-quick")


def described(given: dict[str, Any]) -> dict[str, Any]:
    """A resource without what Azure counts up as others come and go beside it."""
    text = json.dumps(given)
    result: dict[str, Any] = json.loads(
        text, object_hook=lambda one: {k: v for k, v in one.items() if k != "etag"}
    )
    return result
