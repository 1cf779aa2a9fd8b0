"""``/metadata/instance`` as a VM reads it (learn.microsoft.com, Azure Instance Metadata Service)."""

from __future__ import annotations

import ipaddress
from typing import Any

from rehearsal.imds.vm_registry import RegisteredVm
from rehearsal.vms.boot import mac

__all__ = ["ENVIRONMENT", "as_text", "below", "document"]

ENVIRONMENT = "RankliftRehearsal"
"""``azEnvironment``: not one of Microsoft's clouds, so that a rehearsal is not taken for one."""


def document(of: RegisteredVm, prefix: str) -> dict[str, Any]:
    """Return the whole document; ``prefix`` is the VM's subnet in CIDR notation."""
    return {"compute": _compute(of), "network": {"interface": [_interface(of, prefix)]}}


def _compute(of: RegisteredVm) -> dict[str, Any]:
    storage = of.profile.get("storageProfile") or {}
    image = storage.get("imageReference") or {}
    plan = image if "plan" in of.profile else {}
    user = of.machine.admin_user
    return {
        "azEnvironment": ENVIRONMENT,
        "customData": "",  # since 2020 only its emptiness is shown: secrets are in it
        "evictionPolicy": of.profile.get("evictionPolicy", ""),
        "isHostCompatibilityLayerVm": "false",
        "licenseType": "",
        "location": of.location,
        "name": of.name,
        "offer": image.get("offer", ""),
        "osProfile": {
            "adminUsername": user,
            "computerName": of.machine.name,
            "disablePasswordAuthentication": "true",
        },
        "osType": "Linux",
        "placementGroupId": "",
        "plan": {
            "name": plan.get("sku", ""),
            "product": plan.get("offer", ""),
            "publisher": plan.get("publisher", ""),
        },
        "platformFaultDomain": "0",
        "platformUpdateDomain": "0",
        "priority": of.profile.get("priority", ""),
        "provider": "Microsoft.Compute",
        "publicKeys": [
            {"keyData": key, "path": f"/home/{user}/.ssh/authorized_keys"}
            for key in of.machine.authorized_keys
        ],
        "publisher": image.get("publisher", ""),
        "resourceGroupName": of.resource_id.group,
        "resourceId": str(of.resource_id),
        "sku": image.get("sku", ""),
        "subscriptionId": of.resource_id.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in of.tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in of.tags.items()],
        "userData": "",
        "version": image.get("version", ""),
        "vmId": of.vm_id,
        "vmScaleSetName": of.scale_set,
        "vmSize": of.size,
        "zone": of.zones[0] if of.zones else "",
    }


def _interface(of: RegisteredVm, prefix: str) -> dict[str, Any]:
    subnet = ipaddress.IPv4Network(prefix)
    return {
        "ipv4": {
            "ipAddress": [{"privateIpAddress": of.machine.private_ip, "publicIpAddress": ""}],
            "subnet": [{"address": str(subnet.network_address), "prefix": str(subnet.prefixlen)}],
        },
        "ipv6": {"ipAddress": []},
        "macAddress": mac(of.machine.private_ip).replace(":", "").upper(),
    }


def below(found: Any, path: tuple[str, ...]) -> Any:
    """Return the part of a document at a path; list elements go by number.

    >>> below({"network": {"interface": [{"macAddress": "00"}]}}, ("network", "interface", "0", "macAddress"))
    '00'

    Raises :class:`LookupError` when there is none.
    """
    for part in path:
        if isinstance(found, list) and part.isascii() and part.isdigit():
            found = found[int(part)]
        elif isinstance(found, dict):
            found = found[part]
        else:
            raise LookupError(part)
    return found


def as_text(found: Any) -> str:
    """Return the form ``format=text``: a value as it is, of anything else the names in it.

    >>> as_text({"compute": {}, "name": "a"})
    'compute/\\nname'
    """
    if isinstance(found, dict):
        return "\n".join(f"{name}/" if isinstance(its, (dict, list)) else name for name, its in found.items())
    if isinstance(found, list):
        return "\n".join(f"{number}/" for number in range(len(found)))
    return str(found)
