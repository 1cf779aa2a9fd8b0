"""Twelve stacks that between them have every size family and every setting, and what each asks Azure for."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUBSCRIPTION = "/subscriptions/s"
_OTHERS = f"{SUBSCRIPTION}/resourceGroups/corporate/providers"
VNET = f"{_OTHERS}/Microsoft.Network/virtualNetworks/hub"
SUBNET = f"{VNET}/subnets/training"
ACCOUNT = f"{_OTHERS}/Microsoft.Storage/storageAccounts/corpdata"
REGISTRY = f"{_OTHERS}/Microsoft.ContainerRegistry/registries/corp"
IMAGE = f"{_OTHERS}/Microsoft.Compute/galleries/images/images/gb200/versions/1.2.0"

_PUBLIC = {"nodeCount": "4", "location": "southcentralus", "sshFrom": "203.0.113.7/32, 198.51.100.0/24"}
_PRIVATE = {"nodeCount": "4", "location": "southcentralus", "access": "private"}

CONFIGURATIONS: Mapping[str, Mapping[str, str]] = {
    "v100-plain": {**_PUBLIC, "vmSize": "Standard_ND40rs_v2"},
    "a100-300-nodes": {
        **_PUBLIC,
        "vmSize": "Standard_ND96asr_v4",
        "nodeCount": "300",
        "largeScaleSet": "true",
        "tags": '{"team": "vision", "cost-centre": "1234"}',
    },
    "h100-one-node-ephemeral": {
        **_PUBLIC,
        "vmSize": "Standard_ND96isr_H100_v5",
        "nodeCount": "1",
        "ephemeralOsDisk": "true",
        "zone": "2",
        "storage": "serviceEndpoint",
        "dataOperators": "00000000-0000-0000-0000-00000000000b",
        "datastores": '{"big": "https://acmedata.blob.core.windows.net/sets"}',
    },
    "h200-private-everything": {
        **_PRIVATE,
        "vmSize": "Standard_ND96isr_H200_v5",
        "storage": "privateEndpoint",
        "retainData": "true",
        "nfs": "files",
        "nfsSizeGib": "4096",
        "ttlHours": "72",
        "idleStopMinutes": "45",
        "metricsPort": "9500",
        "monitor": "true",
        "tags": '{"team": "vision"}',
    },
    "mi300x-idle-stop": {
        **_PUBLIC,
        "vmSize": "Standard_ND96isr_MI300X_v5",
        "idleStopMinutes": "30",
        "containerRegistry": REGISTRY,
    },
    "gb200-own-image-nfs-files": {
        **_PUBLIC,
        "vmSize": "Standard_ND128isr_NDR_GB200_v6",
        "image": IMAGE,
        "nfs": "files",
    },
    "hb-spot": {
        **_PUBLIC,
        "vmSize": "Standard_HB120rs_v3",
        "spot": "true",
        "maxPrice": "6.50",
        "osDiskGib": "1024",
        "partial": "keep",
    },
    "hb-marketplace-plan-nfs-vm": {
        **_PUBLIC,
        "vmSize": "Standard_HB176rs_v4",
        "image": "almalinux:almalinux-hpc:9-hpc-gen2:9.6.2025061201",
        "nfs": "vm",
        "nfsSizeGib": "3000",
        "retainData": "true",
        "zone": "1",
    },
    "v100-given-network": {
        **_PUBLIC,
        "vmSize": "Standard_ND40rs_v2",
        "vnetId": VNET,
        "subnetPrefix": "10.40.0.0/22",
        "storage": "serviceEndpoint",
        "storageAccountId": ACCOUNT,
    },
    "a100-given-subnet": {
        **_PRIVATE,
        "vmSize": "Standard_ND96amsr_A100_v4",
        "subnetId": SUBNET,
        "subnetPrefix": "10.40.8.0/24",
        "nfs": "vm",
        "storage": "privateEndpoint",
        "storageAccountId": ACCOUNT,
    },
    "h100-spot-ttl": {
        **_PUBLIC,
        "vmSize": "Standard_ND96isr_H100_v5",
        "spot": "true",
        "ttlHours": "0.5",
        "vnetPrefix": "192.168.64.0/20",
        "adminUser": "trainer",
        "computerNamePrefix": "gpu",
    },
    "gb300-private-storage": {
        **_PRIVATE,
        "vmSize": "Standard_ND128isr_GB300_v6",
        "image": IMAGE,
        "sshFrom": "10.9.0.0/24, 203.0.113.6/31",
        "storage": "serviceEndpoint",
        "maxPrice": "400",
    },
}


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that one stack asks the engine for."""

    name: str
    settings: Mapping[str, str]
    resources: Mapping[str, dict[str, Any]]
    """``type name`` to inputs, as Pulumi has them."""
    providers: Mapping[str, str]
    """``type name`` to the provider that the state holds, of resources that have one of their own."""
    reads: list[str]
    """Ids of what is looked at and not made."""
    hidden: Mapping[str, list[str]]
    """``type name`` to the paths of secret inputs."""
    options: Mapping[str, dict[str, Any]]
    outputs: Mapping[str, Any]
    secrets: list[str]
    """Names of secret outputs."""

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The inputs of every resource of a kind, e.g. ``StorageAccount``."""
        return [inputs for name, inputs in self.resources.items() if kind_of(name) == kind]

    def only(self, kind: str) -> dict[str, Any]:
        """The inputs of the one resource of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def azure(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Token and inputs of every resource that is Azure's."""
        for name, inputs in self.resources.items():
            if name.startswith("azure-native:"):
                yield name.split()[0], inputs


def kind_of(name: str) -> str:
    """The last part of a resource's type."""
    return name.split(maxsplit=1)[0].rpartition(":")[2]


def programs() -> Mapping[str, Program]:
    """Every configuration's program."""
    ran = _recorded()
    assert ran.returncode == 0, ran.stderr
    return {
        name: Program(name, CONFIGURATIONS[name], **record) for name, record in json.loads(ran.stdout).items()
    }


@cache
def _recorded() -> subprocess.CompletedProcess[str]:
    # Once, also when it fails: in a process of its own.
    return subprocess.run(
        [sys.executable, "-m", "tests.infra.recorded_program"],
        input=json.dumps(CONFIGURATIONS),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def masked(value: Any) -> Any:
    """The inputs as they may be shown: what boots a machine has keys in it; its text is tested elsewhere."""
    if isinstance(value, dict):
        return {key: "[secret]" if key == "customData" else masked(part) for key, part in value.items()}
    return [masked(part) for part in value] if isinstance(value, list) else value


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of everything in ``value``; what is base64 as what it says."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from texts(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from texts(part, f"{path}[{index}]")
    elif path.endswith("customData"):
        yield path, base64.b64decode(value).decode()
    else:
        yield path, str(value)
