"""Every kind of resource as the engine goes through with it: made, read, found unchanged, deleted."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.provider.values import Unknown, decode
from tests.rehearsal.doubles import BASE, SUBSCRIPTION_ID, Endpoint
from tests.rehearsal.provider.engine import GROUP, SCALE_SET, SUBNET, VNET, Engine, Refused, with_engine

IDENTITY = "azure-native:managedidentity:UserAssignedIdentity"
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
DEFINITION = "azure-native:authorization:RoleDefinition"
ACCOUNT = "azure-native:storage:StorageAccount"
BLOBS = "azure-native:storage:BlobServiceProperties"
CONTAINER = "azure-native:storage:BlobContainer"
FILES = "azure-native:storage:FileServiceProperties"
SHARE = "azure-native:storage:FileShare"
ENDPOINT = "azure-native:network:PrivateEndpoint"
ZONE = "azure-native:privatedns:PrivateZone"
LINK = "azure-native:privatedns:VirtualNetworkLink"
ZONE_GROUP = "azure-native:network:PrivateDnsZoneGroup"
NIC = "azure-native:network:NetworkInterface"
DISK = "azure-native:compute:Disk"
VM = "azure-native:compute:VirtualMachine"
GALLERY = "azure-native:compute:Gallery"
IMAGE = "azure-native:compute:GalleryImage"
TEMPLATE = "azure-native:virtualmachineimages:VirtualMachineImageTemplate"
WORKSPACE = "azure-native:monitor:AzureMonitorWorkspace"
COLLECTION_ENDPOINT = "azure-native:monitor:DataCollectionEndpoint"
COLLECTION_RULE = "azure-native:monitor:DataCollectionRule"
CONTRIBUTOR = (
    f"/subscriptions/{SUBSCRIPTION_ID}/providers/Microsoft.Authorization/roleDefinitions/"
    "b24988ac-6180-42a0-ab88-20f7382dd24c"
)
HERE = {"location": "westeurope"}
SYSTEM = {
    "computerName": "nfs",
    "adminUsername": "azureuser",
    "customData": base64.b64encode(b"#cloud-config\n").decode(),
    "linuxConfiguration": {"ssh": {"publicKeys": [{"path": "/x", "keyData": "ssh-ed25519 A"}]}},
}

Made = dict[str, dict[str, Any]]
CHAIN: list[tuple[str, Callable[[Made], dict[str, Any]]]] = [
    (GROUP, lambda _: {"resourceGroupName": "lab", **HERE}),
    (IDENTITY, lambda _: {"resourceName": "nodes", **HERE, "tags": {"ranklift-stack": "a"}}),
    (
        VNET,
        lambda _: {"virtualNetworkName": "n", "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, **HERE},
    ),
    (
        SUBNET,
        lambda _: {
            "virtualNetworkName": "n",
            "subnetName": "nodes",
            "addressPrefix": "10.0.0.0/20",
            "serviceEndpoints": [{"service": "Microsoft.Storage"}],
        },
    ),
    (
        ACCOUNT,
        lambda made: {
            "accountName": "labstore1",
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "allowSharedKeyAccess": False,
            "enableHttpsTrafficOnly": True,
            "networkRuleSet": {
                "defaultAction": "Deny",
                "ipRules": [{"iPAddressOrRange": "1.2.3.4", "action": "Allow"}],
                "virtualNetworkRules": [{"virtualNetworkResourceId": made[SUBNET]["id"], "action": "Allow"}],
            },
            **HERE,
        },
    ),
    (
        BLOBS,
        lambda _: {
            "accountName": "labstore1",
            "blobServicesName": "default",
            "isVersioningEnabled": True,
        },
    ),
    (CONTAINER, lambda _: {"accountName": "labstore1", "containerName": "data", "publicAccess": "None"}),
    (FILES, lambda _: {"accountName": "labstore1", "fileServicesName": "default"}),
    (SHARE, lambda _: {"accountName": "labstore1", "shareName": "shared", "shareQuota": 100}),
    (
        ASSIGNMENT,
        lambda made: {
            "scope": made[CONTAINER]["id"],
            "principalId": made[IDENTITY]["principalId"],
            "principalType": "ServicePrincipal",
            "roleDefinitionId": CONTRIBUTOR,
        },
    ),
    (
        DEFINITION,
        lambda made: {
            "scope": made[GROUP]["id"],
            "roleName": "ends itself",
            "assignableScopes": [made[GROUP]["id"]],
            "permissions": [{"actions": ["Microsoft.Compute/virtualMachineScaleSets/delete"]}],
        },
    ),
    (
        ENDPOINT,
        lambda made: {
            "privateEndpointName": "pe",
            "subnet": {"id": made[SUBNET]["id"]},
            "privateLinkServiceConnections": [
                {"name": "blob", "privateLinkServiceId": made[ACCOUNT]["id"], "groupIds": ["blob"]}
            ],
            **HERE,
        },
    ),
    (ZONE, lambda _: {"privateZoneName": "privatelink.blob.core.windows.net", "location": "Global"}),
    (
        LINK,
        lambda made: {
            "privateZoneName": "privatelink.blob.core.windows.net",
            "virtualNetworkLinkName": "n",
            "location": "Global",
            "registrationEnabled": False,
            "virtualNetwork": {"id": made[VNET]["id"]},
        },
    ),
    (
        ZONE_GROUP,
        lambda made: {
            "privateEndpointName": "pe",
            "privateDnsZoneGroupName": "default",
            "privateDnsZoneConfigs": [{"name": "blob", "privateDnsZoneId": made[ZONE]["id"]}],
        },
    ),
    (
        NIC,
        lambda made: {
            "networkInterfaceName": "nic",
            "ipConfigurations": [{"name": "ip", "primary": True, "subnet": {"id": made[SUBNET]["id"]}}],
            **HERE,
        },
    ),
    (
        DISK,
        lambda _: {
            "diskName": "d0",
            "creationData": {"createOption": "Empty"},
            "diskSizeGB": 512,
            "sku": {"name": "Premium_LRS"},
            **HERE,
        },
    ),
    (
        VM,
        lambda made: {
            "vmName": "nfs",
            "hardwareProfile": {"vmSize": "Standard_E8s_v5"},
            "identity": {"type": "UserAssigned", "userAssignedIdentities": [made[IDENTITY]["id"]]},
            "networkProfile": {"networkInterfaces": [{"id": made[NIC]["id"], "primary": True}]},
            "osProfile": SYSTEM,
            "storageProfile": {
                "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
                "imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "1.0.0"},
                "dataDisks": [{"lun": 0, "createOption": "Attach", "managedDisk": {"id": made[DISK]["id"]}}],
            },
            **HERE,
        },
    ),
    (GALLERY, lambda _: {"galleryName": "gallery", **HERE}),
    (
        IMAGE,
        lambda _: {
            "galleryName": "gallery",
            "galleryImageName": "hpc",
            "osType": "Linux",
            "osState": "Generalized",
            "identifier": {"publisher": "p", "offer": "o", "sku": "s"},
            **HERE,
        },
    ),
    (
        f"{ASSIGNMENT}#builder",
        lambda made: {
            "scope": made[GALLERY]["id"],
            "principalId": made[IDENTITY]["principalId"],
            "roleDefinitionId": CONTRIBUTOR,
        },
    ),
    (
        TEMPLATE,
        lambda made: {
            "imageTemplateName": "t",
            "identity": {"type": "UserAssigned", "userAssignedIdentities": [made[IDENTITY]["id"]]},
            "source": {"type": "PlatformImage", "publisher": "p", "offer": "o", "sku": "s", "version": "1"},
            "customize": [{"type": "Shell", "name": "recipe", "inline": ["true"]}],
            "distribute": [
                {
                    "type": "SharedImage",
                    "galleryImageId": made[IMAGE]["id"],
                    "runOutputName": "out",
                    "replicationRegions": ["westeurope"],
                }
            ],
            **HERE,
        },
    ),
    (WORKSPACE, lambda _: {"azureMonitorWorkspaceName": "m", "publicNetworkAccess": "Enabled", **HERE}),
    (
        COLLECTION_ENDPOINT,
        lambda _: {
            "dataCollectionEndpointName": "m",
            "networkAcls": {"publicNetworkAccess": "Enabled"},
            **HERE,
        },
    ),
    (
        COLLECTION_RULE,
        lambda made: {
            "dataCollectionRuleName": "m",
            "dataCollectionEndpointId": made[COLLECTION_ENDPOINT]["id"],
            "destinations": {
                "monitoringAccounts": [{"name": "w", "accountResourceId": made[WORKSPACE]["id"]}]
            },
            "dataFlows": [{"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["w"]}],
            **HERE,
        },
    ),
]
ELSEWHERE = {
    # Their own tests go through with these.
    "azure-native:compute:GalleryImageVersion",
    "azure-native:compute:Image",
    "azure-native:network:InboundNatRule",
    "azure-native:network:LoadBalancer",
    "azure-native:network:NatGateway",
    "azure-native:network:NetworkSecurityGroup",
    "azure-native:network:PublicIPAddress",
    "azure-native:network:SecurityRule",
    SCALE_SET,
}


async def given(engine: Engine, token: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The inputs as the engine would send them on."""
    if token != GROUP and "scope" not in wanted:
        wanted = {**wanted, "resourceGroupName": "lab"}
    checked = await engine.check(token, "x", wanted)
    assert not checked.failures
    return decode(checked.inputs)


def unknown(value: Any) -> bool:
    return isinstance(value, Unknown)


def test_what_was_made_is_found_as_it_was_wanted_and_can_be_taken_away(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> None:
        made: Made = {}
        for name, wanted in CHAIN:
            token = name.partition("#")[0]
            inputs = await given(engine, token, wanted(made))
            previewed = decode((await engine.create(token, inputs, preview=True)).properties)
            made[name] = outputs = await engine.make(token, inputs)
            wrong = {
                n: (v, outputs.get(n))
                for n, v in previewed.items()
                if not unknown(v) and not isinstance(v, dict | list) and v != outputs.get(n)
            }
            # Regions are written as Azure does.
            assert {n for n, (a, b) in wrong.items() if str(a).lower() != str(b).lower()} == set(), name
            read = await engine.read(token, outputs["id"], inputs)
            assert read.id == outputs["id"], name
            difference = await engine.diff(token, inputs, decode(read.inputs))
            assert dict(difference.detailedDiff) == {}, name
        for name, _ in reversed(CHAIN):
            await engine.delete(name.partition("#")[0], made[name]["id"])

    with_engine(azure.url, scenario)
    assert azure.subscription.resources == {}
    assert azure.subscription.groups == {}


def test_every_kind_is_gone_through_with() -> None:
    assert {name.partition("#")[0] for name, _ in CHAIN} | ELSEWHERE == set(RESOURCE_TYPES.tokens)


def test_names_that_azure_needs_are_made_up_in_its_form(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> None:
        assignment = await given(engine, ASSIGNMENT, {"scope": BASE, "principalId": "x"})
        assert len(assignment["roleAssignmentName"].split("-")) == 5
        blobs = await given(engine, BLOBS, {"accountName": "a"})
        assert blobs["blobServicesName"] == "default"

    with_engine(azure.url, scenario)


def test_a_right_that_is_gone_is_found_gone_unless_its_scope_is(azure: Endpoint) -> None:
    """azure-native fails to refresh a role assignment on something that was deleted (its issue 4528)."""
    right = f"providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"

    async def scenario(engine: Engine) -> str:
        await engine.make(GROUP, {"resourceGroupName": "lab", "location": "westeurope"})
        found = await engine.read(ASSIGNMENT, f"{BASE}/{right}")
        lost = f"{BASE}/providers/Microsoft.Compute/virtualMachineScaleSets/nodes/{right}"
        with pytest.raises(Refused, match='Code="ResourceNotFound"'):
            await engine.read(ASSIGNMENT, lost)
        return str(found.id)

    assert with_engine(azure.url, scenario) == ""


def test_a_service_that_is_always_there_is_put_back(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> Any:
        made: Made = {}
        for token, wanted in CHAIN[:6]:
            made[token] = await engine.make(token, await given(engine, token, wanted(made)))
        assert made[BLOBS]["isVersioningEnabled"] is True
        await engine.delete(BLOBS, made[BLOBS]["id"])
        return decode((await engine.read(BLOBS, made[BLOBS]["id"])).properties)

    assert "isVersioningEnabled" not in with_engine(azure.url, scenario)


@pytest.mark.parametrize(
    ("token", "changed", "replaces"),
    [
        (ASSIGNMENT, {"principalId": "other"}, True),
        (ACCOUNT, {"kind": "FileStorage"}, True),
        (ACCOUNT, {"allowSharedKeyAccess": True}, False),
        (ENDPOINT, {"subnet": {"id": "other"}}, True),
        (DISK, {"diskSizeGB": 1024}, False),
        (VM, {"osProfile": {**SYSTEM, "customData": "other"}}, True),
        (TEMPLATE, {"customize": []}, True),
        (IDENTITY, {"tags": {}}, False),
    ],
)
def test_what_azure_never_changes_takes_a_new_one(
    azure: Endpoint, token: str, changed: dict[str, Any], replaces: bool
) -> None:
    wanted = dict(CHAIN)[token]
    names: Made = {name: {"id": f"{BASE}/x", "principalId": "p"} for name, _ in CHAIN}

    async def scenario(engine: Engine) -> Any:
        before = wanted(names)
        return await engine.diff(token, before, {**before, **changed})

    difference = with_engine(azure.url, scenario)
    assert difference.detailedDiff
    assert bool(difference.replaces) is replaces


def test_a_scope_that_is_none_is_said_to_be_none(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> None:
        await engine.make(ASSIGNMENT, {"scope": "nowhere", "roleAssignmentName": "x", "principalId": "p"})

    with pytest.raises(Refused, match="nowhere: not the id of a subscription"):
        with_engine(azure.url, scenario)
