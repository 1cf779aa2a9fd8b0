"""Azure's errors for the faults: codes, HTTP statuses, messages.

Sources: learn.microsoft.com "Troubleshoot common Azure deployment errors", "Resolve errors for SKU not
available", "Resolve errors for resource quotas", "Troubleshoot allocation failures", "Understand how Azure
Resource Manager throttles requests"; the issues named in reference/azure.md section 7.
"""

from __future__ import annotations

from rehearsal.arm.auth.authorization import action_of
from rehearsal.arm.auth.roles import refused
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import ResourceTypes

__all__ = [
    "allocation_failed",
    "expired",
    "forbidden",
    "not_registered",
    "not_replicated",
    "overconstrained",
    "subnet_in_use",
    "throttled",
]

_OPERATOR = "00000000-0000-4000-8000-00000000cafe"


def throttled(path: str, method: str, seconds: int) -> ArmError:
    """Return the refusal of too many requests."""
    subscription = [*path.split("/"), "", "", ""][2]
    kind = {"GET": "read", "HEAD": "read", "DELETE": "delete"}.get(method, "write")
    return ArmError(
        429,
        "SubscriptionRequestsThrottled",
        f"Number of '{kind}' requests for subscription '{subscription}' actor '{_OPERATOR}' exceeded. "
        f"Please try again after '{seconds}' seconds after additional tokens are available. Refer to "
        "https://aka.ms/arm-throttling for additional information.",
    )


def expired() -> ArmError:
    """Return the refusal of an expired login."""
    return ArmError(
        401,
        "ExpiredAuthenticationToken",
        "The access token expiry UTC time '1/1/2026 12:00:00 AM' is earlier than current UTC time "
        "'1/1/2026 1:00:00 AM'.",
    )


def forbidden(method: str, path: str, types: ResourceTypes) -> ArmError:
    """Return the refusal of an action that the principal has no right to."""
    return refused("operator@example.com", _OPERATOR, *action_of(method, path.rstrip("/"), types))


def not_registered(namespace: str) -> ArmError:
    """Return the refusal of a resource provider that the subscription does not use yet."""
    return ArmError(
        409,
        "MissingSubscriptionRegistration",
        f"The subscription is not registered to use namespace '{namespace}'. See "
        "https://aka.ms/rps-not-found for how to register subscriptions.",
    )


def subnet_in_use(network: ResourceId) -> ArmError:
    """Return the refusal to delete a subnet that an invisible resource holds."""
    holder = (
        f"/subscriptions/{network.subscription}/resourceGroups/{network.group}/providers/Microsoft.Compute/"
        "virtualMachineScaleSets/nodes/virtualMachines/0/networkInterfaces/eth0/ipConfigurations/ip"
    )
    return ArmError(
        400,
        "InUseSubnetCannotBeDeleted",
        f"Subnet nodes is in use by {holder} and cannot be deleted. In order to delete the subnet, delete "
        "all the resources within the subnet. See aka.ms/deletesubnet.",
    )


def not_replicated(hit: int) -> ArmError:
    """Return the refusal of a role assignment whose role, or at every second hit whose identity, is new.

    Codes and words as in hashicorp/terraform-provider-azurerm#10442 and MicrosoftDocs/azure-docs#103085: the
    latter comes with ``principalType`` too.
    """
    if hit % 2:
        problem = "The specified role definition with ID '00000000000000000000000000000000' does not exist."
        return ArmError(400, "RoleDefinitionDoesNotExist", problem)
    return ArmError(
        400,
        "PrincipalNotFound",
        "Principal 00000000000000000000000000000000 does not exist in the directory. Check that you have the "
        "correct principal ID. If you are creating this principal and then immediately assigning a role, "
        "this error might be related to a replication delay.",
    )


def allocation_failed() -> ArmError:
    """Return the error of a region without capacity."""
    return ArmError(
        409,
        "AllocationFailed",
        "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. "
        "Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance",
    )


def overconstrained() -> ArmError:
    """Return the error of constraints that no machine fulfils."""
    return ArmError(
        409,
        "OverconstrainedAllocationRequest",
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition "
        "is too restrictive. Please remove some constraints and try again. Constraints applied are:\n"
        "  - Networking Constraints (such as Accelerated Networking or IPv6)\n  - VM Size\n",
    )
