"""Azure's bad days: with Azure's status and code, as often as asked for, and over when cleared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from launch.errors import InputError
from rehearsal.faults.arm_faults import Faulting
from rehearsal.faults.fault_kinds import KINDS, order
from rehearsal.imds.tokens import Identity
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
def faulting(clock: Clock) -> Faulting:
    return Faulting(clock)


@pytest.fixture
def azure(recorded: RecordingMachines, faulting: Faulting) -> Iterator[Endpoint]:
    with endpoint(recorded, faulting) as running:
        yield running


def grown(capacity: int) -> dict[str, Any]:
    return {"sku": {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity}}


def set_on(azure: Endpoint, faulting: Faulting, kind: str, **numbers: Any) -> None:
    async def run() -> None:
        faulting.set(order(kind, **numbers))

    azure.run(run())


def code(answer: dict[str, Any]) -> tuple[Any, str]:
    return answer.get("http"), answer["error"]["code"]


def test_requests_are_throttled_as_often_as_asked_for(azure: Endpoint, faulting: Faulting) -> None:
    set_on(azure, faulting, "throttle", after=1, count=2, seconds=7.0)
    answers = [azure.ask("GET", "/subscriptions/x/resourcegroups") for _ in range(4)]
    assert [status for status, _, _ in answers] == [404, 429, 429, 404]
    assert answers[1][2]["Retry-After"] == "7"
    assert answers[1][1]["error"]["code"] == "SubscriptionRequestsThrottled"
    assert "try again after '7' seconds" in answers[1][1]["error"]["message"]


def test_an_expired_login_stays_expired_until_it_is_cleared(azure: Endpoint, faulting: Faulting) -> None:
    set_on(azure, faulting, "login")
    for _ in range(3):
        status, answer, headers = azure.ask("GET", BASE)
        assert (status, answer["error"]["code"]) == (401, "ExpiredAuthenticationToken")
        assert "WWW-Authenticate" in headers
    assert faulting.clear() == ["login"]
    assert azure.ask("GET", BASE)[1]["error"]["code"] == "ResourceGroupNotFound"


def test_without_the_right_one_may_read_and_not_write(azure: Endpoint, faulting: Faulting) -> None:
    build(azure, 1)
    set_on(azure, faulting, "forbidden")
    assert azure.ask("GET", SCALE_SET)[0] == 200
    status, answer, _ = azure.ask("DELETE", SCALE_SET)
    assert (status, answer["error"]["code"]) == (403, "AuthorizationFailed")
    words = answer["error"]["message"]
    assert "'Microsoft.Compute/virtualMachineScaleSets/delete'" in words
    assert f"over scope '{BASE}/{SCALE_SET}'" in words


def test_a_fault_of_the_operator_s_is_no_identity_s(azure: Endpoint, faulting: Faulting) -> None:
    token = azure.subscription.tokens.issue(Identity("/x", "oid", "app"), "https://management.azure.com/")
    set_on(azure, faulting, "login")

    async def ask() -> int:
        import aiohttp

        headers = {"Authorization": f"Bearer {token.text}"}
        url = f"{azure.url}{BASE}?api-version=2024-11-01"
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
            return answer.status

    assert azure.run(ask()) == 403  # no role, and no word of a login


@pytest.mark.parametrize(("kind", "said"), [("quota", "OperationNotAllowed"), ("sku", "SkuNotAvailable")])
def test_what_is_not_granted_is_refused_before_anything_is_made(
    azure: Endpoint, faulting: Faulting, recorded: RecordingMachines, kind: str, said: str
) -> None:
    build(azure, 1)
    set_on(azure, faulting, kind)
    refused = azure.settle("PATCH", SCALE_SET, grown(3))
    assert code(refused) == (409, said)
    if kind == "quota":
        assert "approved standardNDSv2Family Cores quota" in refused["error"]["message"]
        assert "Current Limit: 40, Current Usage: 40, Additional Required: 80" in refused["error"]["message"]
        assert "Location: westeurope" in refused["error"]["message"]
    assert azure.ask("GET", SCALE_SET)[1]["sku"]["capacity"] == 1
    assert azure.settle("PATCH", SCALE_SET, grown(0))["status"] == "Succeeded"  # shrinking needs no quota
    faulting.clear()
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001", "node000002"]


def test_of_the_nodes_asked_for_some_come(
    azure: Endpoint, faulting: Faulting, recorded: RecordingMachines
) -> None:
    build(azure, 1)
    set_on(azure, faulting, "allocation", after=2)
    failed = azure.settle("PATCH", SCALE_SET, grown(5))
    assert (failed["status"], failed["error"]["code"]) == ("Failed", "AllocationFailed")
    assert recorded.booted() == ["node000000", "node000001", "node000002"]
    assert azure.ask("GET", SCALE_SET)[1]["properties"]["provisioningState"] == "Failed"
    vms = azure.ask("GET", f"{SCALE_SET}/virtualMachines")[1]["value"]
    states = [vm["properties"]["provisioningState"] for vm in vms]
    assert states == ["Succeeded"] * 3 + ["Failed"] * 2
    faulting.clear()
    assert azure.settle("PATCH", SCALE_SET, grown(5))["status"] == "Succeeded"
    assert len(recorded.booted()) == 5


def test_no_machine_fits(azure: Endpoint, faulting: Faulting, recorded: RecordingMachines) -> None:
    build(azure, 1)
    set_on(azure, faulting, "overconstrained", count=1)
    failed = azure.settle("PATCH", SCALE_SET, grown(2))
    assert failed["error"]["code"] == "OverconstrainedAllocationRequest"
    assert "condition is too restrictive" in failed["error"]["message"]
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"
    assert recorded.booted() == ["node000000", "node000001"]


def test_an_operation_that_never_ends_ends_when_cleared(azure: Endpoint, faulting: Faulting) -> None:
    build(azure, 1)
    set_on(azure, faulting, "stuck")
    _, _, headers = azure.ask("PATCH", SCALE_SET, grown(2))
    url = headers["Azure-AsyncOperation"]
    assert azure.ask("GET", url)[1]["status"] == "InProgress"
    assert [str(one) for one in faulting.listed()] == ["stuck; count 1: struck 1 times"]
    assert azure.settle("PATCH", SCALE_SET, grown(3))["http"] == 409

    async def clear() -> list[str]:
        return faulting.clear()

    assert azure.run(clear()) == ["stuck"]
    assert azure.ask("GET", url)[1]["status"] == "Succeeded"
    assert faulting.listed() == []


def test_a_stuck_operation_may_end_by_itself(azure: Endpoint, faulting: Faulting) -> None:
    build(azure, 1)
    set_on(azure, faulting, "stuck", seconds=0.2)
    assert azure.settle("PATCH", SCALE_SET, grown(2))["status"] == "Succeeded"


def test_a_name_is_still_being_deleted_for_a_while(azure: Endpoint, faulting: Faulting, clock: Clock) -> None:
    set_on(azure, faulting, "conflict", seconds=30.0)
    for _ in range(2):
        status, answer, _ = azure.ask("PUT", BASE, {"location": "westeurope"})
        assert (status, answer["error"]["code"]) == (409, "ResourceGroupBeingDeleted")
    clock.now += 31
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    assert faulting.listed() == []


@pytest.mark.parametrize("path", [VNET, f"{VNET}/subnets/nodes"])
def test_a_subnet_is_in_use_though_nothing_is_in_it(azure: Endpoint, faulting: Faulting, path: str) -> None:
    build(azure, 1)
    azure.settle("DELETE", SCALE_SET)
    set_on(azure, faulting, "subnet", count=1)
    status, answer, _ = azure.ask("DELETE", path)
    assert (status, answer["error"]["code"]) == (400, "InUseSubnetCannotBeDeleted")
    assert azure.settle("DELETE", path)["status"] == "Succeeded"


@pytest.mark.parametrize("kind", ["no-boot", "cloud-init"])
def test_nodes_are_chosen_by_instance_id_or_by_their_turn(kind: str) -> None:
    named = Faulting()
    named.set(order(kind, nodes=(1, 36)))
    names = ("node000000", "node000001", "node000010", "other000001")
    assert [named.node(kind, name) for name in names] == [False, True, True, True]
    by_turn = Faulting()
    by_turn.set(order(kind, after=1))
    assert [by_turn.node(kind, f"node{number:06}") for number in range(3)] == [False, True, False]
    assert not by_turn.node("none", "node000001")


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
        order(kind, **given)


def test_every_kind_can_be_ordered() -> None:
    for kind in KINDS.values():
        numbers = {"nodes": (0,), "seconds": 60.0, "after": 1, "count": 2}
        made = order(kind.name, **{name: numbers[name] for name in kind.takes})
        assert str(made).startswith(kind.name)
