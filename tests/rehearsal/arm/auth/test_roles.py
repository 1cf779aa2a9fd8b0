"""Who may do what, and what Azure says of identities and roles."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rehearsal.arm.auth.authorization import action_of
from rehearsal.arm.auth.identities import client_id
from rehearsal.arm.auth.roles import allows
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.imds.tokens import Identity
from tests.rehearsal.bodies import SCALE_SET, SUBNET_ID, build, scale_set
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, Endpoint

ROLES = f"/subscriptions/{SUBSCRIPTION_ID}/providers/Microsoft.Authorization/roleDefinitions"
CONTRIBUTOR = f"{ROLES}/b24988ac-6180-42a0-ab88-20f7382dd24c"
READER = f"{ROLES}/acdd72a7-3385-48ef-bd42-f606fba81ae7"
BLOBS = f"{ROLES}/ba92f5b4-2d11-453d-a403-e96b0029c9fe"
IDENTITY = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"


def make_identity(azure: Endpoint) -> dict[str, Any]:
    """A group with an identity in it; what Azure says of it."""
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] in (200, 201)
    status, made, headers = azure.ask("PUT", IDENTITY, {"location": "westeurope"})
    assert status == 201
    assert "Azure-AsyncOperation" not in headers
    properties: dict[str, Any] = made["properties"]
    return properties


def assign(
    azure: Endpoint, principal: str, role: str, scope: str = BASE, name: str | None = None, **more: Any
) -> tuple[int, Any]:
    """One role assignment; status and body of the answer."""
    path = f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name or uuid.uuid4()}"
    properties = {"principalId": principal, "roleDefinitionId": role, **more}
    status, answer, _ = azure.ask("PUT", path, {"properties": properties})
    return status, answer


def as_nodes(azure: Endpoint, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A request with a token of the identity."""
    record = azure.subscription.resources[f"{BASE}/{IDENTITY}".lower()]
    who = Identity(str(record.id), record.guid, client_id(record))
    token = azure.shared.tokens.issue(who, "https://management.azure.com/")
    return azure.ask_as(token.text, method, path, body)


def test_an_identity_has_ids_that_stay(azure: Endpoint) -> None:
    made = make_identity(azure)
    assert {len(made[name]) for name in ("principalId", "clientId", "tenantId")} == {36}
    again = azure.ask("PUT", IDENTITY, {"location": "westeurope", "tags": {"a": "b"}})
    assert (again[0], again[1]["properties"]) == (200, made)
    assert azure.ask("DELETE", IDENTITY)[0] == 200
    assert azure.ask("DELETE", IDENTITY)[0] == 204


def test_a_role_is_assigned_at_a_scope_and_holds_below_it(azure: Endpoint) -> None:
    build(azure, 1)
    principal = make_identity(azure)["principalId"]
    status, answer = assign(azure, principal, CONTRIBUTOR, f"{BASE}/{SCALE_SET}")
    assert (status, answer["properties"]["scope"]) == (201, f"{BASE}/{SCALE_SET}")
    subscription = azure.subscription
    scale_set, subnet = (ResourceId.parse(text) for text in (f"{BASE}/{SCALE_SET}", SUBNET_ID))
    assert scale_set is not None
    assert subnet is not None
    write = "Microsoft.Compute/virtualMachineScaleSets/write"
    assert allows(subscription, principal, write, scale_set)
    assert allows(
        subscription, principal, "Microsoft.Compute/x/read", scale_set.child("virtualMachines", "0")
    )
    assert not allows(subscription, principal, "Microsoft.Authorization/roleAssignments/write", scale_set)
    assert not allows(subscription, principal, "Microsoft.Network/virtualNetworks/subnets/read", subnet)
    assert not allows(subscription, str(uuid.uuid4()), write, scale_set)


def test_data_actions_are_rights_of_their_own(azure: Endpoint) -> None:
    principal = make_identity(azure)["principalId"]
    assert assign(azure, principal, BLOBS)[0] == 201
    scope = ResourceId.parse(f"{BASE}/providers/Microsoft.Storage/storageAccounts/a")
    assert scope is not None
    blob = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write"
    assert allows(azure.subscription, principal, blob, scope, data=True)
    assert not allows(azure.subscription, principal, blob, scope)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"principalId": str(uuid.uuid4())}, 400, "PrincipalNotFound"),
        ({"roleDefinitionId": f"{ROLES}/{uuid.uuid4()}"}, 400, "RoleDefinitionDoesNotExist"),
        ({"principalType": "User"}, 400, "UnmatchedPrincipalType"),
        ({"wrong": 1}, 400, "InvalidRequestContent"),
    ],
)
def test_assignments_that_cannot_be_are_refused(
    azure: Endpoint, change: dict[str, Any], status: int, code: str
) -> None:
    principal = make_identity(azure)["principalId"]
    given = {"principal": principal, "role": READER} | {
        {"principalId": "principal", "roleDefinitionId": "role"}.get(k, k): v for k, v in change.items()
    }
    answered, answer = assign(azure, **given)
    assert (answered, answer["error"]["code"]) == (status, code)
    name = azure.ask("GET", f"{BASE}/providers/Microsoft.Authorization/roleAssignments")[1]["value"]
    assert name == []


def test_the_same_role_is_assigned_once_and_never_changed(azure: Endpoint) -> None:
    principal = make_identity(azure)["principalId"]
    name = str(uuid.uuid4())
    assert assign(azure, principal, READER, name=name)[0] == 201
    assert assign(azure, principal, READER, name=name)[0] == 200
    status, answer = assign(azure, principal, READER)
    assert (status, answer["error"]["code"]) == (409, "RoleAssignmentExists")
    assert name.replace("-", "") in answer["error"]["message"]
    status, answer = assign(azure, principal, CONTRIBUTOR, name=name)
    assert (status, answer["error"]["code"]) == (400, "RoleAssignmentUpdateNotPermitted")
    assert assign(azure, principal, READER, f"{BASE}/providers/Microsoft.Compute/disks/no")[0] == 404
    assert (
        assign(azure, principal, CONTRIBUTOR, name="no-guid")[1]["error"]["code"] == "InvalidRoleAssignmentId"
    )


def test_a_role_of_ones_own_is_held_by_its_assignments(azure: Endpoint) -> None:
    build(azure, 1)
    principal = make_identity(azure)["principalId"]
    path = f"{BASE}/providers/Microsoft.Authorization/roleDefinitions/{uuid.uuid4()}"
    actions = [
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/delete",
    ]
    wanted = {"roleName": "ends itself", "permissions": [{"actions": actions}], "assignableScopes": [BASE]}
    status, made, _ = azure.ask("PUT", path, {"properties": wanted})
    assert (status, made["properties"]["type"]) == (201, "CustomRole")
    other = f"{BASE}/providers/Microsoft.Authorization/roleDefinitions/{uuid.uuid4()}"
    answer = azure.ask("PUT", other, {"properties": wanted})[1]
    assert answer["error"]["code"] == "RoleDefinitionWithSameNameExists"
    status, assigned = assign(azure, principal, made["id"], f"{BASE}/{SCALE_SET}")
    assert status == 201
    assert azure.ask("DELETE", path)[1]["error"]["code"] == "RoleDefinitionHasAssignments"

    assert as_nodes(azure, "GET", f"{BASE}/{SCALE_SET}")[0] == 200
    status, answer = as_nodes(azure, "PATCH", f"{BASE}/{SCALE_SET}", {"sku": {"capacity": 0}})
    assert (status, answer["error"]["code"]) == (403, "AuthorizationFailed")
    assert "'Microsoft.Compute/virtualMachineScaleSets/write' over scope" in answer["error"]["message"]
    assert as_nodes(azure, "DELETE", f"{BASE}/{SCALE_SET}")[0] == 202

    assert azure.ask("DELETE", assigned["id"])[0] in (200, 204)  # it may have gone with the scale set
    assert azure.ask("DELETE", path)[0] == 200


def test_who_may_delete_nodes_by_their_ids_may_change_nothing_else(azure: Endpoint) -> None:
    build(azure, 3)
    principal = make_identity(azure)["principalId"]
    path = f"{BASE}/providers/Microsoft.Authorization/roleDefinitions/{uuid.uuid4()}"
    actions = [f"Microsoft.Compute/virtualMachineScaleSets/{what}" for what in ("read", "delete/action")]
    wanted = {"roleName": "stops nodes", "permissions": [{"actions": actions}], "assignableScopes": [BASE]}
    made = azure.ask("PUT", path, {"properties": wanted})[1]
    assert assign(azure, principal, made["id"], f"{BASE}/{SCALE_SET}")[0] == 201

    own = f"{BASE}/{SCALE_SET}"
    for method, below, body in (
        ("PATCH", "", {"sku": {"capacity": 0}}),
        ("PATCH", "", {"tags": {"a": "b"}}),
        ("PUT", "", scale_set(9)),
        ("DELETE", "", None),
        ("DELETE", "/virtualMachines/0", None),
        ("POST", "/deallocate", {"instanceIds": ["0"]}),
        ("POST", "/reimage", {"instanceIds": ["0"]}),
        ("PATCH", "/providers/Microsoft.Resources/tags/default", {"operation": "Merge"}),
    ):
        status, answer = as_nodes(azure, method, f"{own}{below}", body)
        assert (status, answer["error"]["code"]) == (403, "AuthorizationFailed"), (method, below)
    status, answer = as_nodes(azure, "POST", f"{own}/delete", {"instances": ["0"]})
    assert (status, answer["error"]["code"]) == (400, "BadRequest")
    assert as_nodes(azure, "POST", f"{own}/delete", {"instanceIds": ["0", "2"]})[0] == 202
    shown = azure.ask("GET", SCALE_SET)[1]
    assert shown["properties"]["provisioningState"] in ("Updating", "Succeeded")


def test_assignments_go_with_what_they_are_for(azure: Endpoint) -> None:
    build(azure, 0)
    principal = make_identity(azure)["principalId"]
    assert assign(azure, principal, READER, f"{BASE}/{SCALE_SET}")[0] == 201
    assert azure.settle("DELETE", SCALE_SET)["status"] == "Succeeded"
    assert not list(azure.subscription.of_type("Microsoft.Authorization/roleAssignments"))


def test_roles_are_listed_with_azures_own(azure: Endpoint) -> None:
    make_identity(azure)
    path = f"{ROLES}?$filter=roleName eq 'Reader'&api-version=2022-04-01"
    (found,) = azure.ask("GET", path)[1]["value"]
    assert found["id"] == READER
    assert azure.ask("GET", CONTRIBUTOR)[1]["properties"]["roleName"] == "Contributor"


def test_who_has_a_token_that_is_none_gets_nowhere(azure: Endpoint) -> None:
    make_identity(azure)
    status, answer = azure.ask_as("made-up", "GET", BASE)
    assert (status, answer["error"]["code"]) == (401, "InvalidAuthenticationToken")
    status, answer = as_nodes(azure, "GET", BASE)
    assert (status, answer["error"]["code"]) == (403, "AuthorizationFailed")
    assert "'Microsoft.Resources/resourceGroups/read'" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("GET", f"{BASE}/resources", "Microsoft.Resources/resources/read"),
        ("DELETE", BASE, "Microsoft.Resources/resourceGroups/delete"),
        ("PATCH", f"{BASE}/{SCALE_SET}", "Microsoft.Compute/virtualMachineScaleSets/write"),
        ("POST", f"{BASE}/{SCALE_SET}/delete", "Microsoft.Compute/virtualMachineScaleSets/delete/action"),
        (
            "GET",
            f"{BASE}/{SCALE_SET}/virtualMachines",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        ),
        (
            "DELETE",
            f"{BASE}/{SCALE_SET}/virtualMachines/3",
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/delete",
        ),
        (
            "PUT",
            f"{BASE}/providers/Microsoft.Authorization/roleAssignments/x",
            "Microsoft.Authorization/roleAssignments/write",
        ),
    ],
)
def test_every_request_is_an_action(method: str, path: str, action: str) -> None:
    assert action_of(method, path, RESOURCE_TYPES)[0] == action


def test_an_application_counts_as_a_service_principal(azure: Endpoint) -> None:
    principal = str(uuid.uuid4())
    make_identity(azure)
    assert assign(azure, principal, READER)[1]["error"]["code"] == "PrincipalNotFound"
    azure.subscription.service_principals.add(principal)
    refused = assign(azure, principal, READER, principalType="User")
    assert refused[1]["error"]["code"] == "UnmatchedPrincipalType"
    assert assign(azure, principal, READER, principalType="ServicePrincipal")[0] == 201


def test_the_subscription_is_listed_to_who_has_a_role_in_it(azure: Endpoint) -> None:
    principal = make_identity(azure)["principalId"]
    assert as_nodes(azure, "GET", "/subscriptions") == (200, {"value": []})
    assign(azure, principal, READER)
    ((listed,),) = as_nodes(azure, "GET", "/subscriptions")[1].values()
    assert listed["subscriptionId"] == SUBSCRIPTION_ID


def test_prices_need_no_role_and_all_else_does(azure: Endpoint) -> None:
    make_identity(azure)
    assert as_nodes(azure, "GET", "/api/retail/prices")[0] == 200
    for path in (f"/subscriptions/{SUBSCRIPTION_ID}", f"/subscriptions/{SUBSCRIPTION_ID}/resourcegroups"):
        assert as_nodes(azure, "GET", path)[0] == 403


def test_what_an_identity_has_begun_it_may_ask_about(azure: Endpoint) -> None:
    build(azure, 0)
    principal = make_identity(azure)["principalId"]
    assert assign(azure, principal, CONTRIBUTOR, f"{BASE}/{SCALE_SET}")[0] == 201
    status, _, headers = azure.ask("PATCH", SCALE_SET, {"tags": {"a": "b"}})
    assert status == 200
    operation = headers["Azure-AsyncOperation"].removeprefix(azure.url).partition("?")[0]
    assert as_nodes(azure, "GET", operation)[0] == 200


def test_an_identity_that_is_not_there_cannot_be_given(azure: Endpoint) -> None:
    build(azure, 0)
    body = azure.ask("GET", SCALE_SET)[1]
    body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {f"{BASE}/{IDENTITY}": {}}}
    assert azure.settle("PUT", SCALE_SET, body)["error"]["code"] == "FailedIdentityOperation"
    principal = make_identity(azure)["principalId"]
    assert azure.settle("PUT", SCALE_SET, body)["status"] == "Succeeded"
    given = azure.ask("GET", SCALE_SET)[1]["identity"]["userAssignedIdentities"]
    assert given[f"{BASE}/{IDENTITY}"]["principalId"] == principal


def test_ids_of_what_extends_others_lead_back_to_them() -> None:
    text = f"{SUBNET_ID}/providers/Microsoft.Authorization/roleAssignments/r"
    rid = ResourceId.parse(text)
    assert rid is not None
    assert (str(rid), str(rid.base), rid.type) == (text, SUBNET_ID, "Microsoft.Authorization/roleAssignments")
    assert rid.base.contains(rid)
    assert not rid.contains(rid.base)
    whole = ResourceId.parse(f"/subscriptions/{SUBSCRIPTION_ID}")
    assert whole is not None
    assert whole.contains(rid)
