"""The provider as the engine calls it, in front of a real endpoint."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import provider_pb2 as p

from rehearsal.provider.values import UNKNOWN, Secret, decode, encode
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines
from tests.rehearsal.provider.engine import GROUP, SCALE_SET, SUBNET, VNET, Engine, Refused, with_engine

LAB = {"resourceGroupName": "lab", "location": "westeurope", "tags": {"stack": "rehearsal"}}
NET = {
    "resourceGroupName": "lab",
    "virtualNetworkName": "net",
    "location": "West Europe",
    "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
    "subnets": [{"name": "nodes", "addressPrefix": "10.0.0.0/20", "defaultOutboundAccess": False}],
}
USER_DATA = base64.b64encode(b"#cloud-config\n").decode()


def nodes(
    capacity: int = 2, subnet: Any = f"{BASE}/providers/Microsoft.Network/virtualNetworks/net/subnets/nodes"
) -> dict[str, Any]:
    return {
        "resourceGroupName": "lab",
        "vmScaleSetName": "nodes",
        "location": "westeurope",
        "orchestrationMode": "Uniform",
        "singlePlacementGroup": True,
        "overprovision": False,
        "sku": {"name": "Standard_ND40rs_v2", "tier": "Standard", "capacity": capacity},
        "upgradePolicy": {"mode": "Manual"},
        "virtualMachineProfile": {
            "osProfile": {
                "computerNamePrefix": "node",
                "adminUsername": "azureuser",
                "customData": Secret(USER_DATA),
                "linuxConfiguration": {"disablePasswordAuthentication": True},
            },
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {
                        "name": "eth0",
                        "primary": True,
                        "ipConfigurations": [{"name": "ip", "subnet": {"id": subnet}}],
                    }
                ]
            },
        },
    }


async def build(engine: Engine, capacity: int = 2) -> dict[str, Any]:
    await engine.make(GROUP, LAB)
    await engine.make(VNET, NET)
    return await engine.make(SCALE_SET, nodes(capacity))


def test_a_cluster_is_made_through_arm_with_nested_ids_in_its_outputs(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    async def scenario(engine: Engine) -> tuple[dict[str, Any], dict[str, Any]]:
        await engine.make(GROUP, LAB)
        return await engine.make(VNET, NET), await engine.make(SCALE_SET, nodes())

    net, made = with_engine(azure.url, scenario)
    assert net["id"] == f"{BASE}/providers/Microsoft.Network/virtualNetworks/net"
    assert net["subnets"][0]["id"] == f"{net['id']}/subnets/nodes"
    assert net["subnets"][0]["addressPrefix"] == "10.0.0.0/20"
    assert (net["name"], net["location"], net["provisioningState"]) == ("net", "westeurope", "Succeeded")
    assert made["type"] == "Microsoft.Compute/virtualMachineScaleSets"
    assert made["azureApiVersion"] == "2024-11-01"
    assert recorded.booted() == ["node000000", "node000001"]


def test_secret_inputs_stay_secret_in_outputs(azure: Endpoint) -> None:
    made = with_engine(azure.url, build)
    assert made["virtualMachineProfile"]["osProfile"]["customData"] == Secret(USER_DATA)


def test_the_arm_body_has_the_shape_of_the_rest_api(azure: Endpoint) -> None:
    with_engine(azure.url, build)
    body = azure.subscription.resources[
        f"{BASE}/providers/Microsoft.Network/virtualNetworks/net".lower()
    ].body
    assert body == {
        "location": "westeurope",
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [
                {
                    "name": "nodes",
                    "properties": {"addressPrefix": "10.0.0.0/20", "defaultOutboundAccess": False},
                }
            ],
        },
    }


def test_no_difference_right_after_up_and_an_exact_one_after_a_changed_capacity(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    async def scenario(engine: Engine) -> None:
        made = await build(engine)
        same = await engine.diff(SCALE_SET, nodes(2), nodes(2))
        assert (same.changes, dict(same.detailedDiff)) == (p.DiffResponse.DIFF_NONE, {})
        grown = await engine.diff(SCALE_SET, nodes(2), nodes(3))
        assert {k: v.kind for k, v in grown.detailedDiff.items()} == {"sku.capacity": p.PropertyDiff.UPDATE}
        assert (list(grown.diffs), list(grown.replaces)) == (["sku"], [])
        await engine.update(SCALE_SET, made["id"], nodes(3), made)

    with_engine(azure.url, scenario)
    assert recorded.booted() == ["node000000", "node000001", "node000002"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"location": "eastus"}, "location"),
        ({"resourceGroupName": "other"}, "resourceGroupName"),
        ({"vmScaleSetName": "other"}, "vmScaleSetName"),
        ({"orchestrationMode": "Flexible"}, "orchestrationMode"),
    ],
)
def test_what_azure_never_changes_takes_a_new_resource(
    azure: Endpoint, change: dict[str, Any], path: str
) -> None:
    async def scenario(engine: Engine) -> Any:
        return await engine.diff(SCALE_SET, nodes(), {**nodes(), **change})

    found = with_engine(azure.url, scenario)
    assert list(found.replaces) == [path]
    assert found.detailedDiff[path].kind == p.PropertyDiff.UPDATE_REPLACE
    assert found.deleteBeforeReplace == (not path.endswith("Name"))


def test_ignored_paths_and_spelling_of_regions_make_no_difference(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> list[Any]:
        return [
            await engine.diff(SCALE_SET, nodes(2), nodes(3), ("sku.capacity",)),
            await engine.diff(VNET, NET, {**NET, "location": "westeurope"}),
        ]

    assert [d.changes for d in with_engine(azure.url, scenario)] == [p.DiffResponse.DIFF_NONE] * 2


def test_names_are_made_from_the_seed_and_kept(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> list[dict[str, Any]]:
        first = decode((await engine.check(GROUP, "cluster", {"location": "x"})).inputs)
        again = decode((await engine.check(GROUP, "cluster", {"location": "x"})).inputs)
        later = decode(
            (await engine.check(GROUP, "cluster", {"location": "x"}, {"resourceGroupName": "old"})).inputs
        )
        return [first, again, later]

    first, again, later = with_engine(azure.url, scenario)
    assert first == again
    assert first["resourceGroupName"].startswith("cluster")
    assert len(first["resourceGroupName"]) == len("cluster") + 8
    assert later["resourceGroupName"] == "old"


def test_a_missing_parent_is_named(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> Any:
        return await engine.check(SUBNET, "s", {"resourceGroupName": "lab"})

    assert [f.property for f in with_engine(azure.url, scenario).failures] == ["virtualNetworkName"]


def test_unknown_inputs_survive_check_and_preview(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> tuple[Any, Any, Any]:
        checked = await engine.check(SCALE_SET, "n", nodes(2, UNKNOWN))
        scale_set = await engine.create(SCALE_SET, decode(checked.inputs), preview=True)
        net = await engine.create(VNET, NET, preview=True)
        return checked, scale_set, net

    checked, scale_set, net = with_engine(azure.url, scenario)
    assert decode(checked.inputs) == nodes(2, UNKNOWN)
    shown = decode(scale_set.properties)
    assert (scale_set.id, shown["provisioningState"], shown["name"]) == ("", UNKNOWN, "nodes")
    assert shown["virtualMachineProfile"]["osProfile"]["customData"] == Secret(USER_DATA)
    assert decode(net.properties)["subnets"][0]["id"] is UNKNOWN
    assert azure.subscription.resources == {}


def test_a_previewed_update_knows_what_does_not_change(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> dict[str, Any]:
        await engine.make(GROUP, LAB)
        made = await engine.make(VNET, NET)
        return decode((await engine.update(VNET, made["id"], NET, made, preview=True)).properties)

    shown = with_engine(azure.url, scenario)
    assert shown["subnets"][0]["id"].endswith("/subnets/nodes")
    assert shown["provisioningState"] == "Succeeded"


def test_refresh_shows_drift_in_the_inputs_alone_where_it_happened(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> list[Any]:
        made = await build(engine, 3)
        still = decode((await engine.read(SCALE_SET, made["id"], nodes(3))).inputs)
        await asyncio.to_thread(azure.settle, "DELETE", f"{made['id']}/virtualMachines/1")
        drifted = decode((await engine.read(SCALE_SET, made["id"], nodes(3))).inputs)
        await engine.delete(SCALE_SET, made["id"])
        gone = await engine.read(SCALE_SET, made["id"], nodes(3))
        return [still, drifted, gone.id]

    still, drifted, gone = with_engine(azure.url, scenario)
    assert still == nodes(3)
    assert drifted == nodes(2)
    assert gone == ""


def test_an_import_gets_inputs_from_azure(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> dict[str, Any]:
        made = await build(engine)
        return decode(
            (
                await engine.read(
                    VNET,
                    made["virtualMachineProfile"]
                    and f"{BASE}/providers/Microsoft.Network/virtualNetworks/net",
                )
            ).inputs
        )

    inputs = with_engine(azure.url, scenario)
    assert (inputs["resourceGroupName"], inputs["virtualNetworkName"]) == ("lab", "net")
    assert inputs["addressSpace"] == {"addressPrefixes": ["10.0.0.0/16"]}


def test_deleting_what_is_gone_is_fine(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> None:
        made = await build(engine)
        await engine.delete(GROUP, BASE)
        await engine.delete(GROUP, BASE)
        await engine.delete(SCALE_SET, made["id"])

    with_engine(azure.url, scenario)
    assert azure.subscription.resources == {}


def test_refusals_carry_azures_code_and_leave_nothing(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> Refused:
        await engine.make(GROUP, LAB)
        with pytest.raises(Refused) as refused:
            await engine.create(VNET, {**NET, "addressSpace": {"addressPrefixes": ["10.0.0.1/16"]}})
        return refused.value

    refused = with_engine(azure.url, scenario)
    assert 'Code="InvalidCIDRNotation"' in str(refused)
    assert refused.half_made is None


def test_a_half_made_resource_is_told_so_that_the_next_up_mends_it(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    async def scenario(engine: Engine) -> None:
        recorded.broken.add("node000001")
        with pytest.raises(Refused, match="OSProvisioningTimedOut") as refused:
            await build(engine)
        half = refused.value.half_made
        assert half.id.endswith("/virtualMachineScaleSets/nodes")
        assert decode(half.properties)["provisioningState"] == "Failed"
        assert decode(half.inputs) == nodes()
        recorded.broken.clear()
        await engine.update(SCALE_SET, half.id, nodes())

    with_engine(azure.url, scenario)
    assert recorded.booted() == ["node000000", "node000001", "node000001"]


def test_cancel_stops_waiting_and_the_engine_keeps_the_resource(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    async def scenario(engine: Engine) -> Any:
        await engine.make(GROUP, LAB)
        await engine.make(VNET, NET)
        recorded.boot_seconds = 2.5
        creating = asyncio.create_task(engine.create(SCALE_SET, nodes()))
        while not recorded.booted():
            await asyncio.sleep(0.02)
        await engine.call("Cancel", empty_pb2.Empty())
        with pytest.raises(Refused, match="cancelled") as refused:
            await creating
        # Another `up` waits for what Azure still does.
        await engine.call("Configure", p.ConfigureRequest())
        await engine.update(SCALE_SET, refused.value.half_made.id, nodes())

    with_engine(azure.url, scenario)
    assert recorded.booted() == ["node000000", "node000001"]


def test_what_is_asked_for_after_cancel_is_not_begun_until_an_engine_starts_anew(
    azure: Endpoint, recorded: RecordingMachines
) -> None:
    async def scenario(engine: Engine) -> None:
        await engine.make(GROUP, LAB)
        await engine.make(VNET, NET)
        await engine.call("Cancel", empty_pb2.Empty())
        with pytest.raises(Refused, match="cancelled") as refused:
            await engine.create(SCALE_SET, nodes())
        assert refused.value.half_made is None
        assert recorded.booted() == []
        await engine.call("Configure", p.ConfigureRequest())
        await engine.make(SCALE_SET, nodes())

    with_engine(azure.url, scenario)
    assert recorded.booted() == ["node000000", "node000001"]


def test_what_exists_is_not_created_again(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> None:
        await engine.make(GROUP, LAB)
        with pytest.raises(Refused, match="cannot create already existing resource"):
            await engine.create(GROUP, LAB)

    with_engine(azure.url, scenario)


def test_types_and_functions_that_are_not_emulated_are_refused_with_those_that_are(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> dict[str, Any]:
        with pytest.raises(Refused, match=r"azure-native:storage:Account; it knows .*VirtualMachineScaleSet"):
            await engine.check("azure-native:storage:Account", "s", {})
        with pytest.raises(Refused, match="known functions: azure-native:authorization:getClientConfig"):
            await engine.call("Invoke", p.InvokeRequest(tok="azure-native:network:getSubnet"))
        config = await engine.call(
            "Invoke", p.InvokeRequest(tok="azure-native:authorization:getClientConfig")
        )
        return decode(getattr(config, "return"))

    assert with_engine(azure.url, scenario)["subscriptionId"].endswith("0001")


def test_a_parent_written_without_its_children_keeps_them(azure: Endpoint) -> None:
    async def scenario(engine: Engine) -> dict[str, Any]:
        await engine.make(GROUP, LAB)
        bare = {k: v for k, v in NET.items() if k != "subnets"}
        net = await engine.make(VNET, bare)
        subnet = {"resourceGroupName": "lab", "virtualNetworkName": "net", "subnetName": "s"}
        await engine.make(SUBNET, {**subnet, "addressPrefix": "10.0.0.0/24"})
        changed = await engine.update(VNET, net["id"], {**bare, "tags": {"a": "b"}}, net)
        return decode(changed.properties)

    shown = with_engine(azure.url, scenario)
    assert [s["name"] for s in shown["subnets"]] == ["s"]


def test_a_provider_without_its_resource_manager_says_so() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(Refused, match="does not answer"):
            await engine.create(GROUP, LAB)

    with_engine("http://127.0.0.1:9", scenario)


def test_the_engines_greeting() -> None:
    async def scenario(engine: Engine) -> None:
        hello = await engine.call("Handshake", p.ProviderHandshakeRequest(engine_address="127.0.0.1:1"))
        assert hello.accept_secrets
        config = await engine.call("CheckConfig", p.CheckRequest(news=encode({"location": "x"})))
        assert decode(config.inputs) == {"location": "x"}
        configured = await engine.call("Configure", p.ConfigureRequest(args=struct_pb2.Struct()))
        assert configured.supportsPreview
        with pytest.raises(Refused):
            await engine.call("Parameterize", p.ParameterizeRequest())

    with_engine("http://127.0.0.1:9", scenario)
