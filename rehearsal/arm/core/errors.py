"""Azure's refusals, with Azure's codes and messages."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ArmError",
    "being_deleted",
    "change_not_allowed",
    "conflict",
    "dangling",
    "group_not_found",
    "may_not_make_images",
    "missing",
    "no_provider_in",
    "not_available",
    "not_found",
    "over_quota",
    "subnet_full",
    "unknown_type",
]


class ArmError(Exception):
    """Refusal of a request or an operation; ``status`` is the HTTP status of the answer."""

    def __init__(self, status: int, code: str, message: str, target: str | None = None) -> None:
        self.status, self.code, self.message, self.target = status, code, message, target
        super().__init__(f"{code}: {message}")

    def body(self) -> dict[str, Any]:
        """Return the content of ``error`` in the answer.

        >>> ArmError(404, "ResourceNotFound", "gone").body()
        {'code': 'ResourceNotFound', 'message': 'gone'}
        """
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.target is not None:
            shown["target"] = self.target
        return shown


def group_not_found(group: str) -> ArmError:
    """Return the refusal of a resource group that does not exist."""
    return ArmError(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")


def not_found(type_and_name: str, group: str) -> ArmError:
    """Return the refusal of a resource that does not exist, in a group that does."""
    return ArmError(
        404,
        "ResourceNotFound",
        f"The Resource '{type_and_name}' under resource group '{group}' was not found. "
        "For more details please go to https://aka.ms/ARMResourceNotFoundFix",
    )


def being_deleted(group: str) -> ArmError:
    """Return the refusal of a change in a group that is being deleted, or of its name."""
    return ArmError(
        409,
        "ResourceGroupBeingDeleted",
        f"The resource group '{group}' is in deprovisioning state and cannot perform this operation.",
    )


def may_not_make_images(target: object) -> ArmError:
    """Return Image Builder's refusal of a template whose identity may not write to ``target``."""
    return ArmError(
        400,
        "ValidationFailed",
        f"Validation failed: Not authorized to access the resource: {target}. Please check the user assigned "
        "identity has the correct permissions. For more details, go to https://aka.ms/azvmimagebuilderts.",
    )


def unknown_type(name: str, namespace: str) -> ArmError:
    """Return the refusal of a resource type that the emulation lacks."""
    problem = f"The resource type '{name}' could not be found in the namespace '{namespace}'."
    return ArmError(400, "InvalidResourceType", problem)


def dangling(target: object, holder: object) -> ArmError:
    """Return the refusal of a reference to a resource that does not exist."""
    return ArmError(
        400,
        "InvalidResourceReference",
        f"Resource {target} referenced by resource {holder} was not found. Please make sure that the "
        "referenced resource exists, and that both resources are in the same region.",
    )


def change_not_allowed(path: str) -> ArmError:
    """Return the refusal to change an immutable property."""
    return ArmError(409, "PropertyChangeNotAllowed", f"Changing property '{path}' is not allowed.", path)


def missing(parameter: str) -> ArmError:
    """Return the compute provider's refusal of a body without a parameter."""
    problem = f"Required parameter '{parameter}' is missing (null)."
    return ArmError(400, "InvalidParameter", problem, parameter)


def subnet_full(subnet: str, more: int) -> ArmError:
    """Return the refusal of ``more`` addresses of a subnet that has fewer left."""
    problem = f"Subnet {subnet} does not have enough capacity for {more} IP addresses."
    return ArmError(400, "SubnetIsFull", problem)


def over_quota(name: str, location: str, limit: int, used: int, more: int) -> ArmError:
    """Return the refusal of vCPUs beyond a quota.

    Text: learn.microsoft.com "Resolve errors for resource quotas".
    """
    return ArmError(
        409,
        "OperationNotAllowed",
        f"Operation could not be completed as it results in exceeding approved {name} Cores quota. "
        f"Additional details - Deployment Model: Resource Manager, Location: {location}, Current Limit: "
        f"{limit}, Current Usage: {used}, Additional Required: {more}, (Minimum) New Limit Required: "
        f"{used + more}. Submit a request for Quota increase at https://aka.ms/ProdportalCRP by specifying "
        "parameters listed in the 'Details' section for deployment to succeed. Please read more about quota "
        "limits at https://docs.microsoft.com/en-us/azure/azure-supportability/per-vm-quota-requests",
    )


def not_available(resource: object, subscription: str, location: str) -> ArmError:
    """Return the refusal of a size that the SKUs list as ``NotAvailableForSubscription``."""
    return ArmError(
        409,
        "SkuNotAvailable",
        f"The requested size for resource '{resource}' is currently not available in location '{location}' "
        f"zones '' for subscription '{subscription}'. Please try another size or deploy to a "
        "different location or zones. See https://aka.ms/azureskunotavailable for details.",
    )


def no_provider_in(location: str, kind: str, version: str) -> ArmError:
    """Return the refusal of a request about a region that Azure does not have.

    Its sentence is known from issues (cloud-barista/cb-spider#527); the lists that follow it are left out.
    """
    return ArmError(
        400,
        "NoRegisteredProviderFound",
        f"No registered resource provider found for location '{location}' and API version '{version}' for "
        f"type '{kind}'.",
    )


def conflict(provider: str, operation_url: str) -> ArmError:
    """Return the refusal of a change during another one, in the message of the provider."""
    if provider.lower() == "microsoft.network":
        return ArmError(
            409,
            "AnotherOperationInProgress",
            "Another operation on this or dependent resource is in progress. "
            f"To retrieve status of the operation use uri: {operation_url}.",
        )
    return ArmError(
        409,
        "Conflict",
        "The request failed due to conflict with a concurrent request. To resolve it, please refer to "
        "https://aka.ms/activitylog to get more details on the conflicting requests.",
    )
