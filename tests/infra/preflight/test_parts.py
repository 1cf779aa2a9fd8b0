"""The parts of a plan are what the program makes, for twelve stacks of every form."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from infra.config.schema import parse
from infra.preflight.meters import Part, os_disk, premium_disk
from infra.preflight.parts import machines_of, parts, server_name
from tests.infra.programs import CONFIGURATIONS, Program, programs

KINDS = {
    "VirtualMachineScaleSet": "node",
    "VirtualMachine": "NFS server",
    "Disk": "NFS disk",
    "FileShare": "NFS share",
    "AzureMonitorWorkspace": "Azure Monitor workspace",
    "DataCollectionEndpoint": "data collection endpoint",
    "DataCollectionRule": "data collection rule",
    "LoadBalancer": "load balancer",
    "NatGateway": "NAT gateway",
    "NetworkSecurityGroup": "network security group",
    "PrivateEndpoint": "private endpoint",
    "PrivateZone": "private DNS zone",
    "PublicIPAddress": "public IP address",
    "ResourceGroup": "resource group",
    "Subnet": "subnet",
    "UserAssignedIdentity": "identity of the nodes",
    "VirtualNetwork": "virtual network",
}
"""What the program calls a kind, and what the plan does."""
FREE_AND_UNSEEN = {
    "BlobContainer",
    "BlobServiceProperties",
    "NetworkInterface",
    "PrivateDnsZoneGroup",
    "RoleAssignment",
    "RoleDefinition",
    "VirtualNetworkLink",
}
"""Made too; they cost nothing, and a plan that names them all is no easier to read."""


@pytest.fixture(params=CONFIGURATIONS)
def program(request: pytest.FixtureRequest) -> Program:
    return programs()[request.param]


def planned(program: Program) -> tuple[Part, ...]:
    settings = {f"ranklift:{key}": value for key, value in program.settings.items()}
    return parts("dev", parse(settings, today=date(2026, 1, 1)))


def test_a_plan_lists_what_the_program_makes(program: Program) -> None:
    made = Counter(token.rpartition(":")[2] for token, _ in program.azure)
    listed = planned(program)
    result = Counter[str]()
    for part in listed:
        result[part.what] += part.count if part.what == "NFS disk" else 1
    assert {name: made[kind] for kind, name in KINDS.items()} == {
        name: result[name] for name in KINDS.values()
    }
    assert made["StorageAccount"] == result["storage account"] + result["NFS share"]
    assert set(made) <= {*KINDS, *FREE_AND_UNSEEN, "StorageAccount"}


def nodes_disks(program: Program) -> Part:
    """Those of the nodes; a server's have its name."""
    (disks,) = [part for part in planned(program) if part.what == "OS disk" and not part.name]
    return disks


def test_sizes_and_numbers_are_the_programs(program: Program) -> None:
    listed = {part.what: part for part in planned(program)}
    for token, inputs in program.azure:
        match token.rpartition(":")[2]:
            case "VirtualMachineScaleSet":
                assert (listed["node"].size, listed["node"].count) == (
                    inputs["sku"]["name"],
                    inputs["sku"]["capacity"],
                )
                assert listed["node"].name == inputs["vmScaleSetName"]
                gib = inputs["virtualMachineProfile"]["storageProfile"]["osDisk"].get("diskSizeGB")
                assert nodes_disks(program).meter == (premium_disk(gib) if gib else None)
            case "VirtualMachine":
                assert listed["NFS server"].size == inputs["hardwareProfile"]["vmSize"]
                assert listed["NFS server"].name == inputs["vmName"]
            case "Disk":
                assert listed["NFS disk"].meter == premium_disk(inputs["diskSizeGB"])
            case "FileShare":
                assert listed["NFS share"].units == inputs["shareQuota"]


def test_names_are_those_that_azure_will_show(program: Program) -> None:
    names = {
        str(value)
        for _, inputs in program.azure
        for key, value in inputs.items()
        if key.endswith("Name") or key.endswith("Name_")
    }
    for part in planned(program):
        if part.name and part.what not in ("OS disk", "NFS disk", "identity of the nodes"):
            assert part.name in names, part


def test_machines_are_the_nodes_first(program: Program) -> None:
    nodes, *others = machines_of(planned(program))
    assert nodes.size == program.settings["vmSize"]
    assert nodes.spot is (program.settings.get("spot") == "true")
    assert [one.spot for one in others] == [False] * len(others)
    made = [inputs["vmName"] for inputs in program.all("VirtualMachine")]
    assert len(others) == len(made)
    assert server_name(planned(program)) == next(iter(made), None)


def test_a_disk_of_the_images_size_is_named_so() -> None:
    part = os_disk(4)
    assert (part.billing, part.note) == ("unknown", "premium disk; its size comes from the image")
