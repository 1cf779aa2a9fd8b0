"""What is wrong with a host of a node is reported to Azure first, in categories of Azure's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from infra.arm import clients
from infra.inventory import Inventory, Node, StackOutputs
from launch.errors import NodeUnreachable
from launch.remote.base.health_records import Finding
from launch.remote.health.rules import RULES
from playbooks.nodes import host_report
from playbooks.nodes.host_report import CATEGORIES, NotReported, category_of, compare_hosts, report_host
from playbooks.nodes.sick import Sick
from playbooks.project import Stack
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from tests.playbooks.nodes.test_sick import finding
from tests.rehearsal.bodies import SCALE_SET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint

NODES = tuple(Node(f"node00000{n}", n, "", "", 0, 8, "running") for n in range(3))
INVENTORY = Inventory("dev", "size", "place", "me", NODES)
OUTPUTS = StackOutputs(
    "dev", f"{BASE}/{SCALE_SET}", None, None, None, 22, "size", "place", 3, 8, "me", "private", "key", "key"
)
OWN_SOFTWARE = {"fabric-manager"}
"""Rules whose errors an image or an operator causes."""


class Account:
    """A subscription in which stack ``dev`` has three nodes, and what these say of their hosts."""

    def __init__(self, azure: Endpoint, faults: ArmFaults) -> None:
        self.azure, self.faults = azure, faults
        self.hosts: dict[str, str | Exception] = {node.name: f"HOST{node.instance_id}" for node in NODES}
        self.stack = Stack("dev", None, {})  # type: ignore[arg-type]

    def report(self, *findings: Finding, reasons: tuple[str, ...] = ()) -> host_report.HostReport:
        return report_host(self.stack, OUTPUTS, INVENTORY, Sick(NODES[1], reasons, findings))

    def sent(self) -> list[dict[str, Any]]:
        records = self.azure.subscription.of_type("Microsoft.Impact/workloadImpacts")
        return [record.properties for record in records]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    faults = ArmFaults()
    with endpoint(RecordingMachines(), faults) as azure:
        build(azure)
        made, known = Account(azure, faults), azure.clients()

        def hosts(_: Stack, __: Inventory, nodes: Sequence[Node]) -> dict[str, str | Exception]:
            return {node.name: made.hosts[node.name] for node in nodes}

        monkeypatch.setattr(host_report, "_hosts", hosts)
        monkeypatch.setattr(clients, "clients", lambda *_: known)
        monkeypatch.setattr(clients, "resource_client", lambda *_: known.resources)
        yield made


def test_a_report_has_the_vm_its_host_the_category_and_what_was_found(account: Account) -> None:
    report = account.report(finding(rule="ib-state"))
    assert (report.category, report.host) == ("Resource.Hpc.Unhealthy.IBPortDown", "HOST1")
    (sent,) = account.sent()
    assert sent["impactedResourceId"] == f"{BASE}/{SCALE_SET}/virtualMachines/1"
    assert sent["impactDescription"] == "mlx5_ib0:1: 1: DOWN, expected 4: ACTIVE"
    assert sent["startDateTime"].endswith("Z")
    vm = account.azure.subscription.scale_sets[f"{BASE}/{SCALE_SET}".lower()].instances[1]
    assert sent["additionalProperties"] == {"PhysicalHostName": "HOST1", "VmUniqueId": vm.vm_id}


def test_the_same_report_again_is_no_second_one(account: Account) -> None:
    assert account.report(finding(rule="ib-state")) == account.report(finding(rule="ib-state"))
    assert len(account.sent()) == 1


def test_a_node_that_does_not_answer_is_reported_by_its_id(account: Account) -> None:
    account.hosts["node000001"] = NodeUnreachable("node000001", "no route to host")
    assert account.report(reasons=("slow",)).host == ""
    assert list(account.sent()[0]["additionalProperties"]) == ["VmUniqueId"]


def test_a_node_that_does_not_know_its_host_is_not_reported(account: Account) -> None:
    account.hosts["node000001"] = ""
    with pytest.raises(NotReported, match=r"node000001: /var/lib/hyperv/\.kvp_pool_3 does not name its host"):
        account.report(finding(rule="ib-state"))
    assert account.sent() == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((), "found nothing;"),
        ((finding(rule="look"),), "found its own software"),
        (
            ({**finding(rule="gpu-driver"), "measured": "nvmlInit_v2: NVML_ERROR_DRIVER_NOT_LOADED"},),
            "found its own software",
        ),
        ((finding(rule="fabric-manager"),), "found its own software, not its host: mlx5"),
    ],
)
def test_what_is_not_the_hosts_fault_is_not_reported(
    account: Account, found: tuple[Finding, ...], words: str
) -> None:
    with pytest.raises(NotReported, match=words):
        account.report(*found)
    assert account.sent() == []


@pytest.mark.parametrize(
    ("kind", "code"), [("impact", "MissingSubscriptionRegistration"), ("forbidden", "right")]
)
def test_a_refusal_names_the_way_to_be_onboarded(account: Account, kind: str, code: str) -> None:
    account.faults.set(fault_spec(kind))
    with pytest.raises(NotReported, match=code) as refused:
        account.report(finding(rule="ib-state"))
    assert "az provider register -n Microsoft.Impact" in str(refused.value)
    assert "role Impact Reporter" in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "measured", "category"),
    [
        ("gpu-missing", "7", "HpcMissingGpu"),
        ("gpu-lost", "NVML_ERROR_GPU_IS_LOST", "XID79FallenOffBus"),
        ("gpu-lost", "nvmlDeviceGetTotalEccErrors: NVML_ERROR_UNKNOWN", "HpcGenericFailure"),
        ("gpu-xid", "Xid 79, GPU has fallen off the bus.", "XID79FallenOffBus"),
        ("gpu-xid", "Xid 95", "XID95UncontainedECCError"),
        ("gpu-xid", "Xid 119", "GpuXIDError"),
        ("ib-link-downed", "+4", "IBPortFlapping"),
        ("gpu-hang", "no answer within 40 s", "UnhealthyGPUNvidiasmi"),
    ],
)
def test_a_finding_has_a_category_of_azures(rule: str, measured: str, category: str) -> None:
    found = {**finding(rule=rule), "measured": measured}
    assert category_of([found], (), infiniband=True) == f"Resource.Hpc.Unhealthy.{category}"  # type: ignore[list-item]


def test_the_most_specific_of_several_findings_decides() -> None:
    found = [finding(rule="memory"), finding(rule="ib-missing"), finding(rule="gpu-missing")]
    assert category_of(found, ("slow",), infiniband=True) == "Resource.Hpc.Unhealthy.HpcMissingGpu"


def test_a_slow_node_without_infiniband_is_not_reported_for_it() -> None:
    assert category_of([], ("slow",), infiniband=False) == "Resource.Hpc.Unhealthy.HpcGenericFailure"


def test_every_rule_whose_error_is_the_hosts_has_a_category() -> None:
    assert {rule.name for rule in RULES if rule.level == "error"} - OWN_SOFTWARE == set(CATEGORIES)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("HOST1", "HOST1", "node000002: on the same host, HOST1, again"),
        ("HOST1", "HOST9", "node000002: on another host than HOST1"),
        (
            "HOST1",
            "",
            "node000002: whether it is on the same host again is unknown: it does not name its host",
        ),
        ("", "HOST9", "whether Azure gave the same host again is unknown: the replaced node did not answer"),
    ],
)
def test_whether_azure_gave_the_same_host_again_is_said(
    account: Account, was: str, now: str, words: str
) -> None:
    account.hosts["node000002"] = now
    assert compare_hosts(account.stack, INVENTORY, was, ["node000002"]) == words
