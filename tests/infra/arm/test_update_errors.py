"""Azure's codes are found in whatever way a provider words its errors, and mean what to do."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from infra.arm.update_errors import AzureFailed, Progress, Trouble, advice, kind_of, troubles

URN = "urn:pulumi:dev::ranklift::ranklift:infra:TrainingCluster$azure-native:network:Subnet::nodes"
STACK = "urn:pulumi:dev::ranklift::pulumi:pulumi:Stack::ranklift-dev"


def diagnosed(message: str, urn: str = URN, severity: str = "error") -> dict[str, Any]:
    return {"diagnosticEvent": {"urn": urn, "message": message, "severity": severity}}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('Code="AllocationFailed" Message="No \\"room\\"."', "AllocationFailed", 'No "room".'),
        (
            'autorest/azure: Service returned an error. Status=409 Code="Conflict" Message="Busy."',
            "Conflict",
            "Busy.",
        ),
        (
            "PUT https://management.azure.com/x\n---\nRESPONSE 403: 403 Forbidden\n"
            "ERROR CODE: AuthorizationFailed\n---\n"
            '{\n  "error": {\n    "code": "AuthorizationFailed",\n    "message": "No right."\n  }\n}\n---',
            "AuthorizationFailed",
            "No right.",
        ),
        (
            "1 error occurred:\n\t* OSProvisioningTimedOut: OS Provisioning for VM 'node000002'\n\n\n",
            "OSProvisioningTimedOut",
            "OS Provisioning for VM 'node000002'",
        ),
        (
            "<{%reset%}>1 error occurred:\n\t* AllocationFailed: No room.\n\n<{%reset%}>\n",
            "AllocationFailed",
            "No room.",
        ),
        (
            '{"error":{"code":"DeploymentFailed","message":"See details.",'
            '"details":[{"code":"AllocationFailed"}]}}',
            "AllocationFailed",
            "See details.",
        ),
        ("the resource manager does not answer", "", "the resource manager does not answer"),
    ],
)
def test_a_code_is_found(text: str, code: str, message: str) -> None:
    assert troubles([diagnosed(text)]) == [Trouble("Subnet nodes", code, message)]


def test_what_a_program_says_has_no_code_and_what_is_no_error_is_left_out() -> None:
    found = troubles(
        [
            diagnosed("FileNotFoundError: no such file", STACK),
            diagnosed("update failed", STACK),
            diagnosed("<{%reset%}>update canceled<{%reset%}>", STACK),
            diagnosed('Code="Conflict"', severity="warning"),
            {"resourcePreEvent": {"metadata": {"op": "same", "urn": URN}}},
        ]
    )
    assert [(one.resource, one.code) for one in found] == [("", "")]
    assert "no such file" in found[0].message


@pytest.mark.parametrize(
    ("trouble", "kind", "hint"),
    [
        (Trouble("X", "ResourceGroupBeingDeleted", ""), "again", "repeat the command"),
        (Trouble("X", "SubscriptionRequestsThrottled", "Please try again after '17' seconds after"),
         "throttled", "wait 17 s, then repeat the command: nothing is lost"),
        (Trouble("X", "429", ""), "throttled", "Azure throttles"),
        (Trouble("X", "RoleDefinitionDoesNotExist", ""), "replicating", "repeat the command in some minutes"),
        (Trouble("X", "PrincipalNotFound", ""), "replicating", "or somebody deleted it"),
        (Trouble("VirtualMachineImageTemplate x", "ValidationFailed",
                 "Not authorized to access the resource: /subscriptions/s"),
         "replicating", "repeat the command in some minutes"),
        (Trouble("VirtualMachineImageTemplate x", "AuthorizationFailed",
                 "to perform action 'Microsoft.Compute/galleries/read' over scope"),
         "replicating", "repeat the command in some minutes"),
        (Trouble("VirtualMachineImageTemplate x", "AuthorizationFailed",
                 "to perform action 'Microsoft.VirtualMachineImages/imageTemplates/write' over scope"),
         "rights", "Contributor"),
        (Trouble("X", "OperationNotAllowed", "rejected because too many requests have been received"),
         "throttled", "wait some minutes"),
        (Trouble("X", "allocationfailed", ""), "partial", ""),
        (Trouble("X", "OverconstrainedAllocationRequest", ""), "partial", ""),
        (Trouble("X", "OSProvisioningTimedOut", ""), "no-boot", "makes another node"),
        (Trouble("X", "OperationNotAllowed", "exceeding approved Cores quota"), "quota", "more quota"),
        (Trouble("X", "OperationNotAllowed", "the VM is stopped"), "other", ""),
        (Trouble("X", "SkuNotAvailable", ""), "size", "fab plan"),
        (Trouble("X", "ExpiredAuthenticationToken", ""), "login", "`az login`"),
        (Trouble("", "", "DefaultAzureCredential failed to get a token"), "login", "`az login`"),
        (Trouble("X", "AuthorizationFailed", ""), "rights", "Contributor"),
        (Trouble("X", "InUseSubnetCannotBeDeleted", "Subnet nodes is in use by /subscriptions/s/nic and"),
         "in-use", "/subscriptions/s/nic is in it and is not of the stack: remove it, then `fab down`"),
        (Trouble("X", "", "boom"), "other", ""),
    ],
)  # fmt: skip
def test_a_code_says_what_to_do(trouble: Trouble, kind: str, hint: str) -> None:
    assert kind_of(trouble) == kind
    result = advice(trouble, "fab up", "fab down")
    assert hint in result
    assert bool(result) == bool(hint)


def test_throttling_is_told_with_azures_own_pause() -> None:
    refused = HttpResponseError(message="Too many requests")
    refused.status_code = 429
    refused.response = Mock(headers={"Retry-After": "41"})
    result = str(AzureFailed("removing node000003", "dev", refused))
    assert result == (
        "removing node000003: Azure throttles: this subscription had too many requests; wait 41 s, then "
        "repeat the command\nToo many requests"
    )


def test_what_is_under_way_is_known_until_it_ends() -> None:
    progress = Progress()

    def event(kind: str, op: str, urn: str = URN) -> None:
        progress.take({"timestamp": 7, kind: {"metadata": {"op": op, "urn": urn}}})

    event("resourcePreEvent", "same")
    event("resourcePreEvent", "create", STACK)
    event("resourcePreEvent", "create", URN.partition("$")[0] + "::dev")
    assert progress.under_way == {}, "Azure does nothing for these"
    event("resourcePreEvent", "create")
    assert progress.under_way == {URN: ("create", 7.0)}
    event("resOutputsEvent", "create")
    assert progress.under_way == {}
    event("resourcePreEvent", "delete")
    event("resOpFailedEvent", "delete")
    assert progress.under_way == {}


@pytest.mark.parametrize(
    ("op", "planning", "under_way", "begun"),
    [
        ("create", True, False, False),
        ("read", False, False, False),
        ("refresh", False, True, False),
        ("create", False, True, True),
    ],
)
def test_neither_a_preview_nor_a_refresh_changes_anything(
    op: str, planning: bool, under_way: bool, begun: bool
) -> None:
    progress = Progress()
    event = {"metadata": {"op": op, "urn": URN}, "planning": planning}
    progress.take({"timestamp": 7, "resourcePreEvent": event})
    assert (bool(progress.under_way), progress.has_begun) == (under_way, begun)


def test_who_is_not_signed_in_or_lacks_a_right_is_told_so_in_one_line() -> None:
    nobody = ClientAuthenticationError(
        message="DefaultAzureCredential failed to retrieve a token\nfrom:\n- a"
    )
    result = str(AzureFailed("Azure did not say", "dev", nobody))
    assert result == "Azure did not say: not signed in to Azure; run `az login`"
    lacking = HttpResponseError(
        message="does not have authorization to perform action 'A/read' over scope '/s'"
    )
    lacking.status_code = 403
    assert "lacks the right A/read on /s" in str(AzureFailed("Azure did not say", "dev", lacking))
