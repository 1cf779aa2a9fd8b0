"""Container registries in the emulated resource manager: what exists of them, and who may pull."""

from __future__ import annotations

import uuid

import pytest

from rehearsal.arm.auth.roles import BUILT_IN, grants
from tests.rehearsal.doubles import BASE, Endpoint

REGISTRIES = "providers/Microsoft.ContainerRegistry/registries"
PULL = "Microsoft.ContainerRegistry/registries/pull/read"
CONTENT = "Microsoft.ContainerRegistry/registries/repositories/content/read"
ACR_PULL, REPOSITORY_READER = "7f951dda-4ed3-4680-a7ca-43fe172d538d", "b93aa761-3e63-49ed-ac28-beffa264f7ac"


@pytest.fixture
def group(azure: Endpoint) -> Endpoint:
    """A resource group with nothing in it."""
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    return azure


def test_a_registry_has_a_login_server_and_may_be_given_rights_on(group: Endpoint) -> None:
    assert group.ask("PUT", f"{REGISTRIES}/Corporate1", {"location": "westeurope"})[0] == 201
    shown = group.ask("GET", f"{REGISTRIES}/Corporate1")[1]
    assert shown["properties"]["loginServer"] == "corporate1.azurecr.io"
    own = BASE.partition("/resourceGroups")[0]
    role = f"{own}/providers/Microsoft.Authorization/roleDefinitions/{ACR_PULL}"
    identity = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
    whose = group.ask("PUT", identity, {"location": "westeurope"})[1]["properties"]["principalId"]
    right = {"properties": {"principalId": whose, "roleDefinitionId": role}}
    path = f"{REGISTRIES}/{{}}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
    assert group.ask("PUT", path.format("absent"), right)[0] == 404
    status, made, _ = group.ask("PUT", path.format("Corporate1"), right)
    assert status == 201, made


def test_a_malformed_name_is_refused(group: Endpoint) -> None:
    status, said, _ = group.ask("PUT", f"{REGISTRIES}/no-dashes", {"location": "westeurope"})
    assert (status, said["error"]["code"]) == (400, "InvalidParameter")


def test_a_registrys_mode_decides_which_role_lets_pull() -> None:
    (pull,) = BUILT_IN[ACR_PULL]["permissions"]
    (read,) = BUILT_IN[REPOSITORY_READER]["permissions"]
    assert (grants(pull, PULL), grants(pull, CONTENT, data=True)) == (True, False)
    assert (grants(read, PULL), grants(read, CONTENT, data=True)) == (False, True)
