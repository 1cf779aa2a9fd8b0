"""Faults of the endpoint: with Azure's status and code, as often as asked for, and over when cleared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from launch.errors import InputError
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import KINDS, fault_spec
from rehearsal.imds.tokens import Identity
from tests.rehearsal.arm.auth.test_roles import CONTRIBUTOR, READER, assign, make_identity
from tests.rehearsal.bodies import SCALE_SET, VNET, build
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arm_faults(clock: Clock) -> ArmFaults:
    return ArmFaults(clock)


@pytest.fixture
def azure(recorded: RecordingMachines, arm_faults: ArmFaults) -> Iterator[Endpoint]:
    with endpoint(recorded, arm_faults) as running:
        yield running


def grown(capacity: int) -> dict[str, Any]:
    return {"sku": {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity}}


def set_on(azure: Endpoint, arm_faults: ArmFaults, kind: str, **numbers: Any) -> None:
    async def run() -> None:
        arm_faults.set(fault_spec(kind, **numbers))

    azure.run(run())


def code(answer: dict[str, Any]) -> tuple[Any, str]:
    return answer.get("http"), answer["error"]["code"]


def test_requests_are_throttled_as_often_as_asked_for(azure: Endpoint, arm_faults: ArmFaults) -> None:
    set_on(azure, arm_faults, "throttle", after=1, count=2, seconds=7.0)
    answers = [azure.ask("GET", "/subscriptions/x/resourcegroups") for _ in range(4)]
    assert [status for status, _, _ in answers] == [404, 429, 429, 404]
    assert answers[1][2]["Retry-After"] == "7"
    assert answers[1][1]["error"]["code"] == "SubscriptionRequestsThrottled"
    assert "try again after '7' seconds" in answers[1][1]["error"]["message"]


def test_an_expired_login_stays_expired_until_it_is_cleared(azure: Endpoint, arm_faults: ArmFaults) -> None:
    set_on(azure, arm_faults, "login")
    for _ in range(3):
        status, answer, headers = azure.ask("GET", BASE)
        assert (status, answer["error"]["code"]) == (401, "ExpiredAuthenticationToken")
        assert "WWW-Authenticate" in headers
    assert arm_faults.clear() == ["login"]
    assert azure.ask("GET", BASE)[1]["error"]["code"] == "ResourceGroupNotFound"


def test_without_the_right_one_may_read_and_not_write(azure: Endpoint, arm_faults: ArmFaults) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, "forbidden")
    assert azure.ask("GET", SCALE_SET)[0] == 200
    status, answer, _ = azure.ask("DELETE", SCALE_SET)
    assert (status, answer["error"]["code"]) == (403, "AuthorizationFailed")
    words = answer["error"]["message"]
    assert "'Microsoft.Compute/virtualMachineScaleSets/delete'" in words
    assert f"over scope '{BASE}/{SCALE_SET}'" in words


def test_a_fault_of_the_operator_s_is_no_identity_s(azure: Endpoint, arm_faults: ArmFaults) -> None:
    token = azure.shared.tokens.issue(Identity("/x", "oid", "app"), "https://management.azure.com/")
    set_on(azure, arm_faults, "login")

    async def ask() -> int:
        import aiohttp

        headers = {"Authorization": f"Bearer {token.text}"}
        url = f"{azure.url}{BASE}?api-version=2024-11-01"
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
            return answer.status

    assert azure.run(ask()) == 403  # no role, and no word of a login


@pytest.mark.parametrize(("kind", "message"), [("quota", "OperationNotAllowed"), ("sku", "SkuNotAvailable")])
def test_what_is_not_granted_is_refused_before_anything_is_made(
    azure: Endpoint, arm_faults: ArmFaults, recorded: RecordingMachines, kind: str, message: str
) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, kind)
    refused = azure.settle("PATCH", SCALE_SET, grown(3))
    assert code(refused) == (409, message)
    if kind == "quota":
        assert "approved standardNDSv2Family Cores quota" in refused["error"]["message"]
        assert "Current Limit: 40, Current Usage: 40, Additional Required: 80" in refused["error"]["message"]
        assert "Location: westeurope" in refused["error"]["message"]
    assert azure.ask("GET", SCALE_SET)[1]["sku"]["capacity"] == 1
    assert azure.settle("PATCH", SCALE_SET, grown(0))["status"] == "Succeeded"  # shrinking needs no quota
    arm_faults.clear()
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001", "node000002"]


def test_of_the_nodes_asked_for_some_come(
    azure: Endpoint, arm_faults: ArmFaults, recorded: RecordingMachines
) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, "allocation", after=2)
    failed = azure.settle("PATCH", SCALE_SET, grown(5))
    assert (failed["status"], failed["error"]["code"]) == ("Failed", "AllocationFailed")
    assert recorded.booted() == ["node000000", "node000001", "node000002"]
    assert azure.ask("GET", SCALE_SET)[1]["properties"]["provisioningState"] == "Failed"
    vms = azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    states = [vm["properties"]["provisioningState"] for vm in vms]
    assert states == ["Succeeded"] * 3 + ["Failed"] * 2
    arm_faults.clear()
    assert azure.settle("PATCH", SCALE_SET, grown(5))["status"] == "Succeeded"
    assert len(recorded.booted()) == 5


def test_no_machine_fits(azure: Endpoint, arm_faults: ArmFaults, recorded: RecordingMachines) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, "overconstrained", count=1)
    assert azure.settle("PATCH", SCALE_SET, grown(1))["status"] == "Succeeded"  # it asks for no VM
    failed = azure.settle("PATCH", SCALE_SET, grown(2))
    assert failed["error"]["code"] == "OverconstrainedAllocationRequest"
    assert "condition is too restrictive" in failed["error"]["message"]
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001"]


def test_an_operation_that_never_ends_ends_when_cleared(azure: Endpoint, arm_faults: ArmFaults) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, "stuck")
    _, _, headers = azure.ask("PATCH", SCALE_SET, grown(2))
    url = headers["Azure-AsyncOperation"]
    assert azure.ask("GET", url)[1]["status"] == "InProgress"
    assert [(str(one), one.hits) for one in arm_faults.listed()] == [("stuck; count 1", 1)]
    assert azure.settle("PATCH", SCALE_SET, grown(3))["http"] == 409

    async def clear() -> list[str]:
        return arm_faults.clear()

    assert azure.run(clear()) == ["stuck"]
    assert azure.ask("GET", url)[1]["status"] == "Succeeded"
    assert arm_faults.listed() == []


def test_a_stuck_operation_may_end_by_itself(azure: Endpoint, arm_faults: ArmFaults) -> None:
    build(azure, 1)
    set_on(azure, arm_faults, "stuck", seconds=0.2)
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"


def test_a_name_is_still_being_deleted_for_a_while(
    azure: Endpoint, arm_faults: ArmFaults, clock: Clock
) -> None:
    set_on(azure, arm_faults, "conflict", seconds=30.0)
    for _ in range(2):
        status, answer, _ = azure.ask("PUT", BASE, {"location": "westeurope"})
        assert (status, answer["error"]["code"]) == (409, "ResourceGroupBeingDeleted")
    clock.now += 31
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    assert arm_faults.listed() == []


@pytest.mark.parametrize("path", [VNET, f"{VNET}/subnets/nodes"])
def test_a_subnet_is_in_use_though_nothing_is_in_it(
    azure: Endpoint, arm_faults: ArmFaults, path: str
) -> None:
    build(azure, 1)
    azure.settle("DELETE", SCALE_SET)
    set_on(azure, arm_faults, "subnet", count=1)
    status, answer, _ = azure.ask("DELETE", path)
    assert (status, answer["error"]["code"]) == (400, "InUseSubnetCannotBeDeleted")
    assert azure.settle("DELETE", path)["status"] == "Succeeded"


@pytest.mark.parametrize("kind", ["no-boot", "cloud-init", "cloud-init-image", "ib-names", "no-ib"])
def test_nodes_are_chosen_by_instance_id_or_by_their_turn(kind: str) -> None:
    named = ArmFaults()
    named.set(fault_spec(kind, nodes=(1, 36)))
    names = ("node000000", "node000001", "node000010", "other000001")
    assert [named.hits_boot(kind, name) for name in names] == [False, True, True, True]
    by_turn = ArmFaults()
    by_turn.set(fault_spec(kind, after=1))
    assert [by_turn.hits_boot(kind, f"node{number:06}") for number in range(3)] == [False, True, False]
    assert not by_turn.hits_boot("none", "node000001")


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("flood", {}, "kind"),
        ("quota", {"seconds": 3.0}, "--seconds"),
        ("login", {"nodes": (1,)}, "--nodes"),
        ("evict", {}, "--nodes"),
        ("clock", {"nodes": (1,)}, "--seconds"),
        ("throttle", {"seconds": 0.0}, "--seconds"),
        ("heal", {"count": 1, "nodes": (1,)}, "--count"),
    ],
)
def test_an_order_that_means_nothing_is_refused(kind: str, given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"^{named}"):
        fault_spec(kind, **given)


def test_every_kind_can_be_ordered() -> None:
    for kind in KINDS.values():
        given: dict[str, Any] = {"nodes": (0,), "seconds": 60.0, "after": 1, "count": 2, "rate": 3}
        given |= {"device": 0, "counter": "link_downed", "code": 79, "state": "".join(kind.states[:1])}
        made = fault_spec(kind.name, **{name: given[name] for name in kind.takes})
        assert str(made).startswith(kind.name)


def test_a_role_is_not_known_everywhere_at_once(azure: Endpoint, arm_faults: ArmFaults) -> None:
    principal = make_identity(azure)["principalId"]
    set_on(azure, arm_faults, "replication", after=1)
    assert assign(azure, principal, READER)[0] == 201
    answers = [assign(azure, principal, CONTRIBUTOR) for _ in range(3)]
    assert [answer["error"]["code"] for status, answer in answers[:2] if status == 400] == [
        "RoleDefinitionDoesNotExist",
        "PrincipalNotFound",
    ]
    assert answers[2][0] == 201
