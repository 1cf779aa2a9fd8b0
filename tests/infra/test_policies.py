"""What must hold for every stack whatever it is configured to be."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from infra.naming import OWN_TAGS
from rehearsal.arm.resource_types import RESOURCE_TYPES
from tests.infra.programs import (
    ACCOUNT,
    CONFIGURATIONS,
    REGISTRY,
    SUBNET,
    VNET,
    Program,
    kind_of,
    programs,
    texts,
)

GIVEN = ("vnetId", "subnetId", "storageAccountId")
KEY_TEXT = "PRIVATE"
"""What every private key of a recorded program begins with."""


@pytest.fixture(params=CONFIGURATIONS)
def program(request: pytest.FixtureRequest) -> Program:
    return programs()[request.param]


# -- the network ------------------------------------------------------------------------------------------


def test_no_port_is_open_to_the_world(program: Program) -> None:
    for group in program.all("NetworkSecurityGroup"):
        rules = group["securityRules"]
        for rule in rules:
            if rule["access"] != "Allow":
                continue
            assert rule["direction"] == "Inbound"
            prefix = rule.get("sourceAddressPrefix")
            for source in [*([prefix] if prefix else []), *rule.get("sourceAddressPrefixes", [])]:
                if source == "VirtualNetwork":
                    # Peered networks and those on the premises too: the operator of a private cluster.
                    assert rule["destinationPortRange"] == "22"
                    assert program.settings.get("access") == "private"
                    continue
                network = ipaddress.ip_network(source)
                assert network.prefixlen >= 8
                assert rule["destinationPortRange"] == "22" or network.is_private
        assert rules[-1]["access"] == "Deny"
        assert rules[-1]["sourceAddressPrefix"] == "*"
        assert rules[-1]["priority"] == max(rule["priority"] for rule in rules)


def test_every_port_is_open_to_the_nodes_own_subnet_alone(program: Program) -> None:
    given = "subnetId" in program.settings
    prefix = program.settings["subnetPrefix"] if given else program.only("Subnet")["addressPrefix"]
    (group,) = program.all("NetworkSecurityGroup")
    (wide,) = [
        rule
        for rule in group["securityRules"]
        if rule["access"] == "Allow" and rule["destinationPortRange"] == "*"
    ]
    assert wide["sourceAddressPrefix"] == prefix
    assert "sourceAddressPrefixes" not in wide


def test_the_metrics_are_open_to_the_stacks_own_network_alone(program: Program) -> None:
    (group,) = program.all("NetworkSecurityGroup")
    found = [rule for rule in group["securityRules"] if rule["destinationPortRange"] not in ("22", "*")]
    port = program.settings.get("metricsPort")
    if port is None:
        assert found == []
    else:
        (network,) = program.only("VirtualNetwork")["addressSpace"]["addressPrefixes"]
        wanted = [(port, "Tcp", "Inbound", network)]
        keys = ("destinationPortRange", "protocol", "direction", "sourceAddressPrefix")
        assert [tuple(rule[key] for key in keys) for rule in found] == wanted


def test_every_way_into_a_machine_has_a_guard(program: Program) -> None:
    nic = nodes_nic(program)
    subnets = program.all("Subnet")
    assert all(subnet["networkSecurityGroup"]["id"].endswith("/ranklift-dev-nsg") for subnet in subnets)
    assert all(subnet["defaultOutboundAccess"] is False for subnet in subnets)
    if not subnets:  # given
        machines = [nic, *program.all("NetworkInterface")]
        assert all(
            machine["networkSecurityGroup"]["id"].endswith("/ranklift-dev-nsg") for machine in machines
        )


def test_no_machine_has_a_public_address(program: Program) -> None:
    for name, inputs in program.resources.items():
        if kind_of(name) in ("VirtualMachineScaleSet", "NetworkInterface", "VirtualMachine"):
            assert not [path for path, _ in texts(inputs) if "publicIP" in path]
    addresses = {
        inputs["publicIpAddressName"].rpartition("-")[0][-3:] for inputs in program.all("PublicIPAddress")
    }
    ways_out = set() if "subnetId" in program.settings else {"nat"}
    assert addresses == ways_out | (set() if program.settings.get("access") == "private" else {"-lb"})


def test_the_load_balancer_opens_ssh_alone(program: Program) -> None:
    for balancer in program.all("LoadBalancer"):
        assert [rule["backendPort"] for rule in balancer["inboundNatRules"]] == [22]
        assert "loadBalancingRules" not in balancer


# -- storage ----------------------------------------------------------------------------------------------


def test_no_blob_is_public(program: Program) -> None:
    for account in program.all("StorageAccount"):
        assert account["allowBlobPublicAccess"] is False
        assert account["networkRuleSet"]["defaultAction"] == "Deny"
        assert account["networkRuleSet"]["bypass"] == "None"
        for rule in account["networkRuleSet"]["ipRules"]:
            network = ipaddress.ip_network(rule["iPAddressOrRange"])
            assert network.num_addresses <= 256
            assert "/" not in rule["iPAddressOrRange"] or network.prefixlen <= 30
    assert all(container["publicAccess"] == "None" for container in program.all("BlobContainer"))


def test_no_storage_has_a_shared_key(program: Program) -> None:
    for account in program.all("StorageAccount"):
        assert account["allowSharedKeyAccess"] is False
        assert account["isLocalUserEnabled"] is False
        assert account["defaultToOAuthAuthentication"] is True


def test_storage_is_encrypted_at_rest_and_on_its_way(program: Program) -> None:
    for account in program.all("StorageAccount"):
        assert account["minimumTlsVersion"] == "TLS1_2"
        encryption = account["encryption"]
        assert encryption["requireInfrastructureEncryption"] is True
        assert all(service["enabled"] for service in encryption["services"].values())
        # NFS has no encryption to insist on.
        assert account["enableHttpsTrafficOnly"] is (account["kind"] != "FileStorage")


def test_what_a_private_endpoint_serves_has_no_other_way_in(program: Program) -> None:
    private = program.settings.get("storage") == "privateEndpoint"
    for account in program.all("StorageAccount"):
        rules = account["networkRuleSet"]
        assert account["publicNetworkAccess"] == ("Disabled" if private else "Enabled")
        assert bool(rules["virtualNetworkRules"]) is not private
        if private:
            assert rules["ipRules"] == []


def test_blobs_keep_their_versions(program: Program) -> None:
    blob_accounts = [account for account in program.all("StorageAccount") if account["kind"] == "StorageV2"]
    assert [each["isVersioningEnabled"] for each in program.all("BlobServiceProperties")] == [True] * len(
        blob_accounts
    )


def test_no_disk_can_be_downloaded(program: Program) -> None:
    for disk in program.all("Disk"):
        assert (disk["networkAccessPolicy"], disk["publicNetworkAccess"]) == ("DenyAll", "Disabled")


# -- rights -----------------------------------------------------------------------------------------------


NODES = ("ServicePrincipal", "PRINCIPAL")


def test_rights_are_on_one_container_the_given_registry_a_rule_or_the_nodes_own_group(
    program: Program,
) -> None:
    """None is on a scale set, which its nodes may delete: the right would go with it, and break a refresh."""
    for assignment in program.all("RoleAssignment"):
        scope = assignment["scope"]
        container = "/blobServices/default/containers/"
        own = "/resourceGroups/ranklift-dev"
        rule = "/dataCollectionRules/ranklift-dev"
        assert scope == REGISTRY or scope.endswith((f"{container}data", f"{container}results", own, rule))
        operators = program.settings.get("dataOperators", "").split(",") if "/containers/" in scope else []
        who = ("User", assignment["principalId"]) if assignment["principalId"] in operators else NODES
        assert (assignment["principalType"], assignment["principalId"]) == who
    assert len(program.all("VirtualMachineScaleSet")) == 1


def test_roles_name_each_action_and_no_more_than_is_used(program: Program) -> None:
    wanted = {"Microsoft.Compute/virtualMachineScaleSets/read"}
    wanted |= {"Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"}
    if "idleStopMinutes" in program.settings:
        wanted |= {"Microsoft.Compute/virtualMachineScaleSets/delete/action"}
    if "ttlHours" in program.settings:
        wanted |= {"Microsoft.Compute/virtualMachineScaleSets/delete"}
    for role in program.all("RoleDefinition"):
        (permission,) = role["permissions"]
        assert set(permission["actions"]) == wanted
        assert "dataActions" not in permission
        assert role["assignableScopes"] == [role["scope"]]
        assert role["scope"].endswith("/resourceGroups/ranklift-dev")


def test_who_asks_for_nothing_needs_no_right_to_hand_out_rights(program: Program) -> None:
    rights = {"RoleAssignment", "RoleDefinition", "UserAssignedIdentity"} & {
        kind_of(n) for n in program.resources
    }
    asks = {"storage", "ttlHours", "idleStopMinutes", "monitor"} & set(program.settings)
    assert bool(rights) is bool(asks)
    assert ("identity" in program.only("VirtualMachineScaleSet")) is bool(asks)


def test_the_nodes_may_send_metrics_to_their_own_rule_and_do_nothing_else_at_azure_monitor(
    program: Program,
) -> None:
    made = [name for name in program.resources if ":monitor:" in name.split()[0]]
    publisher = "3913510d-42f4-4e42-8a64-420c390055eb"
    rights = [one for one in program.all("RoleAssignment") if one["roleDefinitionId"].endswith(publisher)]
    tag = program.only("VirtualMachineScaleSet")["tags"].get("ranklift-monitor")
    if "monitor" not in program.settings:
        assert (made, rights, tag) == ([], [], None)
        return
    (workspace,) = program.all("AzureMonitorWorkspace")
    (rule,) = program.all("DataCollectionRule")
    (right,) = rights
    group = "/subscriptions/s/resourceGroups/ranklift-dev/providers"
    assert right["scope"] == f"{group}/Microsoft.Insights/dataCollectionRules/ranklift-dev"
    (target,) = rule["destinations"]["monitoringAccounts"]
    assert target["accountResourceId"] == f"{group}/Microsoft.Monitor/accounts/ranklift-dev"
    assert workspace["azureMonitorWorkspaceName"] == "ranklift-dev"
    assert rule["dataFlows"] == [
        {"streams": ["Microsoft-PrometheusMetrics"], "destinations": [target["name"]]}
    ]
    assert tag == "https://own.metrics.ingest.monitor.azure.com/dataCollectionRules/dcr-1"


# -- the nodes --------------------------------------------------------------------------------------------


def test_the_nodes_are_one_infiniband_network(program: Program) -> None:
    nodes = program.only("VirtualMachineScaleSet")
    assert (nodes["orchestrationMode"], nodes["singlePlacementGroup"]) == ("Uniform", True)
    assert nodes["overprovision"] is False
    assert nodes["platformFaultDomainCount"] == 1
    assert nodes["upgradePolicy"]["mode"] == "Manual"
    assert len(nodes.get("zones", [])) <= 1
    assert nodes["sku"]["capacity"] == int(program.settings["nodeCount"])


def test_nobody_logs_in_with_a_password(program: Program) -> None:
    profiles = [program.only("VirtualMachineScaleSet")["virtualMachineProfile"]["osProfile"]]
    profiles += [machine["osProfile"] for machine in program.all("VirtualMachine")]
    for profile in profiles:
        assert profile["linuxConfiguration"]["disablePasswordAuthentication"] is True
        assert "adminPassword" not in profile


def test_the_shared_folders_server_takes_no_key_that_lies_on_the_nodes(program: Program) -> None:
    for machine in program.all("VirtualMachine"):
        keys = machine["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"]
        assert [key["keyData"] for key in keys] == ["ssh-ed25519 AAAAuser-key"]


def test_jobs_hear_of_their_end(program: Program) -> None:
    profile = program.only("VirtualMachineScaleSet")["virtualMachineProfile"]
    if profile["priority"] == "Spot":
        assert "scheduledEventsProfile" not in profile, "Azure refuses it, and gives notice without"
        assert profile["evictionPolicy"] == "Delete"
        return
    notice = profile["scheduledEventsProfile"]["terminateNotificationProfile"]
    assert notice == {"enable": True, "notBeforeTimeout": "PT5M"}


# -- tags, secrets, lives ---------------------------------------------------------------------------------


def test_everything_that_takes_tags_has_the_stacks_and_the_users(program: Program) -> None:
    wanted = {"ranklift-stack": "dev"}
    if "tags" in program.settings:
        wanted |= {"team": "vision"}
    for token, inputs in program.azure:
        kind = RESOURCE_TYPES.by_token(token)
        assert kind is not None
        if kind.tracked:
            assert wanted.items() <= inputs["tags"].items(), token
            assert {tag for tag in inputs["tags"] if tag.startswith("ranklift-")} <= OWN_TAGS
        else:
            assert "tags" not in inputs


def test_the_nodes_read_their_limits_from_tags(program: Program) -> None:
    tags = program.only("VirtualMachineScaleSet")["tags"]
    assert tags.get("ranklift-ttl-hours") == program.settings.get("ttlHours")
    assert tags.get("ranklift-idle-stop-minutes") == program.settings.get("idleStopMinutes")
    assert tags.get("ranklift-nfs") == program.settings.get("nfs")


def test_the_nodes_read_who_they_are_from_a_tag(program: Program) -> None:
    nodes = program.only("VirtualMachineScaleSet")
    assert nodes["tags"].get("ranklift-identity") == ("CLIENT" if "identity" in nodes else None)


def test_no_secret_is_in_a_plain_input(program: Program) -> None:
    booted = 0
    for name, inputs in program.resources.items():
        if ":KeyPair " in name:
            continue
        for path, text in texts(inputs):
            if KEY_TEXT in text:
                hidden = program.hidden.get(name, [])
                assert any(path == own or path.startswith(f"{own}.") for own in hidden), (name, path)
                assert path.endswith("customData")
                booted += 1
    assert booted == 1, "only the nodes are told keys, and not the server of their shared folder"


def test_no_secret_is_in_a_plain_output(program: Program) -> None:
    assert program.secrets == ["userPrivateKey"]
    for name, value in program.outputs.items():
        assert name in program.secrets or KEY_TEXT not in str(value)


def test_only_data_that_is_to_be_kept_outlives_the_stack(program: Program) -> None:
    kept = {
        name
        for name, options in program.options.items()
        if options["retainOnDelete"] and not name.split()[0].endswith(":KeyPair")
    }
    data = {
        name
        for name, inputs in program.resources.items()
        if inputs.get("resourceGroupName", "").endswith("-data")
    }
    assert kept == (data if program.settings.get("retainData") == "true" else set())
    assert bool(data) is (
        "nfs" in program.settings
        or ("storage" in program.settings and "storageAccountId" not in program.settings)
    )


def test_what_is_given_is_named_and_never_made(program: Program) -> None:
    for name, inputs in program.resources.items():
        if inputs.get("resourceGroupName") == "corporate":
            assert kind_of(name) == "Subnet", "the one thing that is made in a given network"
            assert inputs["virtualNetworkName"] == "hub"
            assert inputs["subnetName"] == "ranklift-dev"
    given = {program.settings.get(key, "").partition("/subnets/")[0] for key in GIVEN} - {""}
    assert set(program.reads) == given, "looked at, all of them"
    written = {text for inputs in program.resources.values() for _, text in texts(inputs)}
    if "subnetId" in program.settings:
        assert SUBNET in written
        assert {"Subnet", "VirtualNetwork", "NatGateway"} & {
            kind_of(name) for name in program.resources
        } == set()
    if "vnetId" in program.settings:
        assert program.all("VirtualNetwork") == []
    if "storageAccountId" in program.settings:
        assert f"{ACCOUNT}/blobServices/default/containers/data" in written
        assert [account for account in program.all("StorageAccount") if account["kind"] == "StorageV2"] == []


def test_nodes_may_pull_from_the_given_registry_and_do_nothing_else_there() -> None:
    made = [
        right for right in programs()["mi300x-idle-stop"].all("RoleAssignment") if right["scope"] == REGISTRY
    ]
    assert [right["roleDefinitionId"].rpartition("/")[2] for right in made] == [
        "7f951dda-4ed3-4680-a7ca-43fe172d538d",  # AcrPull
        "b93aa761-3e63-49ed-ac28-beffa264f7ac",  # Container Registry Repository Reader, in the other mode
    ]
    assert {right["principalType"] for right in made} == {"ServicePrincipal"}


def test_nodes_wait_for_what_they_use_at_their_first_boot(program: Program) -> None:
    after = set(program.options["azure-native:compute:VirtualMachineScaleSet nodes"]["dependsOn"])
    if program.settings.get("nfs") == "files":
        assert "shared" in after
    if program.settings.get("nfs") == "vm":
        assert "nfs-server" in after
    if program.settings.get("storage", "none") != "none":
        assert {"data-right", "results-right"} <= after
    if program.settings.get("storage") == "privateEndpoint":
        assert {"blob-records", "blob-zone-link"} <= after


def nodes_nic(program: Program) -> dict[str, Any]:
    profile = program.only("VirtualMachineScaleSet")["virtualMachineProfile"]
    nic: dict[str, Any]
    (nic,) = profile["networkProfile"]["networkInterfaceConfigurations"]
    return nic


def test_given_networks_are_those_that_were_given() -> None:
    assert programs()["v100-given-network"].settings["vnetId"] == VNET
    private_link = programs()["a100-given-subnet"].only("VirtualNetworkLink")
    assert private_link["virtualNetwork"] == {"id": VNET}
