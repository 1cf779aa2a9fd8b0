"""The cluster as the engine would be asked for it: what is checked here holds for every stack."""

import base64
import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.cluster.network import security_rules
from infra.config.schema import parse

GOLDEN = Path(__file__).parents[1] / "golden" / "cluster.json"
ROOT = Path(__file__).parents[3]
GROUP = "/subscriptions/s/resourceGroups/ranklift-dev"
OWN_IMAGE = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/a/images/b/versions/1.0.0"
)

PUBLIC = {
    "vmSize": "Standard_ND40rs_v2",
    "nodeCount": "4",
    "location": "southcentralus",
    "sshFrom": "203.0.113.7/32",
    "tags": '{"team": "vision"}',
}
KEPT_ACCOUNT = (
    "/subscriptions/s/resourceGroups/ranklift-dev-data/providers/Microsoft.Storage/storageAccounts/corpdata"
)
STORED = PUBLIC | {"storage": "serviceEndpoint"}
VARIANTS = {
    "public": PUBLIC,
    "grown": PUBLIC | {"nodeCount": "6"},
    "private": {key: value for key, value in PUBLIC.items() if key != "sshFrom"} | {"access": "private"},
    "spot": PUBLIC | {"spot": "true"},
    "almalinux": PUBLIC | {"image": "almalinux:almalinux-hpc:9-hpc-v100-gen2:9.6.1"},
    "own image": PUBLIC | {"image": OWN_IMAGE},
    "cpu only": PUBLIC | {"vmSize": "Standard_HC44rs"},
    "storage": STORED,
    "storage kept": STORED | {"retainData": "true"},
    "own account given back": STORED | {"storageAccountId": KEPT_ACCOUNT},
    "account given": STORED | {"storageAccountId": KEPT_ACCOUNT.replace("ranklift-dev-data", "corp")},
    "account given, folder kept": STORED
    | {
        "storageAccountId": KEPT_ACCOUNT.replace("ranklift-dev-data", "corp"),
        "nfs": "files",
        "retainData": "true",
    },
}


class Recorded:
    """Everything that one variant asked the engine for."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.resources: dict[str, dict[str, Any]] = record["resources"]
        self.options: dict[str, dict[str, Any]] = record["options"]
        self.outputs: dict[str, Any] = record["outputs"]
        self.secrets: list[str] = record["secrets"]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The inputs of every resource of a kind."""
        return [inputs for name, inputs in self.resources.items() if name.split()[0].endswith(f":{kind}")]

    def only(self, kind: str) -> dict[str, Any]:
        """The inputs of the one resource of a kind."""
        (found,) = self.all(kind)
        return found

    @property
    def profile(self) -> dict[str, Any]:
        """What every node is made from."""
        profile: dict[str, Any] = self.only("VirtualMachineScaleSet")["virtualMachineProfile"]
        return profile

    @property
    def nic(self) -> dict[str, Any]:
        """Every node's one network interface."""
        nic: dict[str, Any]
        (nic,) = self.profile["networkProfile"]["networkInterfaceConfigurations"]
        return nic


@pytest.fixture(scope="module")
def recorded() -> dict[str, Recorded]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.infra.recorded_program"],
        input=json.dumps(VARIANTS),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return {name: Recorded(record) for name, record in json.loads(ran.stdout).items()}


@pytest.fixture
def public(recorded: dict[str, Recorded]) -> Recorded:
    return recorded["public"]


def test_asks_for_exactly_what_was_reviewed(public: Recorded) -> None:
    inputs = json.loads(json.dumps(public.resources))
    profile = inputs["azure-native:compute:VirtualMachineScaleSet nodes"]["virtualMachineProfile"]
    del profile["osProfile"]["customData"]  # tests/images has its text
    assert inputs == json.loads(GOLDEN.read_text("utf-8"))


def test_port_22_is_open_to_the_operator_and_nothing_to_the_world(public: Recorded) -> None:
    rules = public.only("NetworkSecurityGroup")["securityRules"]
    opened = [rule for rule in rules if rule["access"] == "Allow" and rule["direction"] == "Inbound"]
    for rule in opened:
        for source in [rule.get("sourceAddressPrefix"), *rule.get("sourceAddressPrefixes", [])]:
            if source is not None:
                network = ipaddress.ip_network(source)
                assert network.prefixlen >= 8
                assert rule["destinationPortRange"] == "22" or network.is_private
    assert rules[-1]["access"] == "Deny"
    assert rules[-1]["sourceAddressPrefix"] == "*"
    assert len({rule["priority"] for rule in rules}) == len(rules)


def test_everything_that_takes_tags_has_the_stacks_and_the_users(public: Recorded) -> None:
    wanted = {"ranklift-stack": "dev", "team": "vision"}
    agents = {"ranklift-agent": "2"}
    assert public.only("VirtualMachineScaleSet")["tags"] == wanted | agents
    untagged = {
        name.split()[0]
        for name, inputs in public.resources.items()
        if {tag: value for tag, value in inputs.get("tags", {}).items() if tag not in agents} != wanted
    }
    assert untagged == {
        "azure-native:network:Subnet",
        "pulumi-python:dynamic/ranklift:KeyPair",
        "pulumi-python:dynamic/ranklift:TeardownReport",
        "ranklift:infra:TrainingCluster",
    }


def test_everything_is_gone_before_it_is_said_what_is_left(public: Recorded) -> None:
    options = public.options.items()
    waited_for = {name for name, has in options if "teardown-report" in has["dependsOn"]}
    assert waited_for == set(public.resources) - {
        "pulumi-python:dynamic/ranklift:TeardownReport teardown-report",
        "ranklift:infra:TrainingCluster dev",
    }


def test_the_end_knows_whether_the_group_of_stored_data_stays_on_purpose(
    recorded: dict[str, Recorded],
) -> None:
    variants = [name for name in VARIANTS if "account" in name or name.startswith("storage")]
    stays = {name: recorded[name].only("TeardownReport")["retain"] for name in variants}
    assert stays == {
        "storage": False,
        "storage kept": True,
        "own account given back": True,
        "account given": False,
        "account given, folder kept": True,
    }


def test_the_nodes_share_one_infiniband_network(public: Recorded) -> None:
    nodes = public.only("VirtualMachineScaleSet")
    assert nodes["orchestrationMode"] == "Uniform"
    assert nodes["singlePlacementGroup"] is True
    assert nodes["overprovision"] is False
    assert nodes["upgradePolicy"]["mode"] == "Manual"
    assert nodes["upgradePolicy"]["automaticOSUpgradePolicy"]["enableAutomaticOSUpgrade"] is False


def test_nobody_logs_in_with_a_password(public: Recorded) -> None:
    profile = public.profile["osProfile"]
    assert profile["linuxConfiguration"]["disablePasswordAuthentication"] is True
    assert "adminPassword" not in profile


def test_the_user_and_the_nodes_may_log_in(public: Recorded) -> None:
    profile = public.profile["osProfile"]
    keys = [key["keyData"] for key in profile["linuxConfiguration"]["ssh"]["publicKeys"]]
    assert keys == ["ssh-ed25519 AAAAuser-key", "ssh-ed25519 AAAAcluster-key"]


def test_the_nodes_learn_their_keys_from_cloud_init(public: Recorded) -> None:
    profile = public.profile["osProfile"]
    document = yaml.safe_load(base64.b64decode(profile["customData"]))
    assert document["ssh_keys"] == {
        "ed25519_private": "PRIVATE host-key",
        "ed25519_public": "ssh-ed25519 AAAAhost-key",
    }
    assert document["write_files"][0]["content"] == "PRIVATE cluster-key"


def test_the_subnet_reaches_out_through_its_gateway_alone(public: Recorded) -> None:
    subnet = public.only("Subnet")
    assert subnet["defaultOutboundAccess"] is False
    assert subnet["natGateway"]["id"].endswith("/natGateways/ranklift-dev-nat")
    assert subnet["networkSecurityGroup"]["id"].endswith("/networkSecurityGroups/ranklift-dev-nsg")


def test_every_node_gets_a_port_of_the_load_balancer(public: Recorded) -> None:
    balancer = public.only("LoadBalancer")
    (rule,) = balancer["inboundNatRules"]
    assert "inboundNatPools" not in balancer
    assert (rule["frontendPortRangeStart"], rule["frontendPortRangeEnd"], rule["backendPort"]) == (
        50000,
        50499,
        22,
    )
    assert rule["backendAddressPool"]["id"] == (
        f"{GROUP}/providers/Microsoft.Network/loadBalancers/ranklift-dev-lb/backendAddressPools/nodes"
    )
    nic = public.nic
    (address,) = nic["ipConfigurations"]
    (pool,) = address["loadBalancerBackendAddressPools"]
    assert (nic["name"], address["name"]) == ("nic", "primary")
    assert pool["id"].endswith("/backendAddressPools/nodes")


def test_the_outputs_are_what_the_commands_read(public: Recorded) -> None:
    assert public.outputs == {
        "stack": "dev",
        "scaleSetId": f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/ranklift-dev",
        "loadBalancerId": f"{GROUP}/providers/Microsoft.Network/loadBalancers/ranklift-dev-lb",
        "backendPool": "nodes",
        "publicIp": "198.51.100.9",
        "sshPort": 22,
        "vmSize": "Standard_ND40rs_v2",
        "location": "southcentralus",
        "nodeCount": 4,
        "slots": 8,
        "adminUser": "azureuser",
        "access": "public",
        "hostPublicKey": "ssh-ed25519 AAAAhost-key",
        "userPrivateKey": "PRIVATE user-key",
        "clusterPublicKey": "ssh-ed25519 AAAAcluster-key",
        "resourceGroup": "ranklift-dev",
        "nodesMadeBy": public.outputs["nodesMadeBy"],  # the golden plans have its values
    }


def test_the_private_key_alone_is_a_secret(public: Recorded) -> None:
    assert public.secrets == ["userPrivateKey"]


def test_the_private_halves_are_encrypted_in_the_state(public: Recorded) -> None:
    pairs = {name: given for name, given in public.options.items() if ":KeyPair " in name}
    assert len(pairs) == 3
    for options in pairs.values():
        assert options["additionalSecretOutputs"] == ["private_key"]
        assert options["retainOnDelete"]


def test_everything_belongs_to_the_component(public: Recorded) -> None:
    above = {name: given["parent"] for name, given in public.options.items()}
    del above["pulumi:pulumi:Stack ranklift-dev"], above["ranklift:infra:TrainingCluster dev"]
    assert set(above.values()) == {"dev"}


def test_a_newer_template_leaves_running_nodes_alone(public: Recorded) -> None:
    options = public.options["azure-native:compute:VirtualMachineScaleSet nodes"]
    assert options["ignoreChanges"] == [
        "virtualMachineProfile.osProfile.customData",
        'tags["ranklift-agent"]',
    ]


def test_another_size_or_image_replaces_the_nodes_and_another_count_does_not(public: Recorded) -> None:
    paths = public.options["azure-native:compute:VirtualMachineScaleSet nodes"]["replaceOnChanges"]
    assert {"sku.name", "virtualMachineProfile.storageProfile.imageReference"} <= set(paths)
    assert not {"sku", "sku.capacity"} & set(paths)


def test_a_private_cluster_has_no_way_in_from_outside(recorded: dict[str, Recorded]) -> None:
    private = recorded["private"]
    assert private.all("LoadBalancer") == []
    assert len(private.all("PublicIPAddress")) == 1, "the way out"
    assert [private.outputs[key] for key in ("loadBalancerId", "backendPool", "publicIp")] == [None] * 3
    assert "loadBalancerBackendAddressPools" not in private.nic["ipConfigurations"][0]
    rules = private.only("NetworkSecurityGroup")["securityRules"]
    assert [rule["name"] for rule in rules] == ["allow-network-ssh", "allow-cluster", "deny-rest"]


def test_a_changed_node_count_changes_the_capacity_and_nothing_else(recorded: dict[str, Recorded]) -> None:
    grown, public = recorded["grown"], recorded["public"]
    sku = grown.only("VirtualMachineScaleSet")["sku"]
    assert sku == {"capacity": 6, "name": "Standard_ND40rs_v2", "tier": "Standard"}
    changed = json.loads(json.dumps(grown.resources))
    changed["azure-native:compute:VirtualMachineScaleSet nodes"]["sku"]["capacity"] = 4
    assert changed == public.resources


def test_spot_nodes_are_deleted_when_evicted_and_never_for_their_price(recorded: dict[str, Recorded]) -> None:
    profile = recorded["spot"].profile
    assert (profile["priority"], profile["evictionPolicy"]) == ("Spot", "Delete")
    assert profile["billingProfile"] == {"maxPrice": -1}


def test_other_nodes_are_never_evicted(public: Recorded) -> None:
    assert public.profile["priority"] == "Regular"
    assert not {"evictionPolicy", "billingProfile"} & set(public.profile)


def test_a_publisher_that_asks_for_a_plan_gets_it(recorded: dict[str, Recorded]) -> None:
    assert recorded["almalinux"].only("VirtualMachineScaleSet")["plan"] == {
        "name": "9-hpc-v100-gen2",
        "product": "almalinux-hpc",
        "publisher": "almalinux",
    }
    assert "plan" not in recorded["public"].only("VirtualMachineScaleSet")


def test_an_own_image_is_named_by_its_id(recorded: dict[str, Recorded]) -> None:
    assert recorded["own image"].profile["storageProfile"]["imageReference"] == {"id": OWN_IMAGE}


@pytest.mark.parametrize(("variant", "fast", "slots"), [("public", True, 8), ("cpu only", False, 44)])
def test_network_and_slots_follow_the_size(
    variant: str, fast: bool, slots: int, recorded: dict[str, Recorded]
) -> None:
    assert recorded[variant].nic["enableAcceleratedNetworking"] is fast
    assert recorded[variant].outputs["slots"] == slots


def test_the_rules_name_every_network_of_the_operator() -> None:
    settings = {f"ranklift:{key}": value for key, value in PUBLIC.items()}
    rules = security_rules(parse(settings | {"ranklift:sshFrom": "203.0.113.7, 198.51.100.0/24"}))
    assert rules[0].source_address_prefixes == ("203.0.113.7/32", "198.51.100.0/24")


PROGRAM = """
import json, os, runpy, sys
import pulumi
from pulumi.runtime import mocks

class Engine(mocks.Mocks):
    def new_resource(self, args):
        return args.name, {**args.inputs, "private_key": "k", "public_key": "ssh-ed25519 k", "name": "n"}
    def call(self, args):
        return {}

mocks.set_mocks(Engine(), project="ranklift", stack="dev")
exported = []
pulumi.export = lambda name, value: exported.append(name)
try:
    runpy.run_path("infra", run_name="__main__")
except pulumi.RunError as error:
    sys.exit(str(error))
import azure.mgmt.compute
print(json.dumps(exported))
"""


def run_program(tmp_path: Path, settings: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Runs infra/ as Pulumi does: by path, the project not on Python's own path."""
    script = tmp_path / "run.py"
    script.write_text(PROGRAM, "utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name.startswith("COV")},
            "PULUMI_CONFIG": json.dumps({key: str(value) for key, value in settings.items()}),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_program_exports_what_the_cluster_says(tmp_path: Path, public: Recorded) -> None:
    rehearsal = yaml.safe_load((ROOT / "Pulumi.rehearsal.yaml").read_text("utf-8"))["config"]
    ran = run_program(tmp_path, rehearsal)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == list(public.outputs)


def test_the_program_refuses_a_wrong_configuration_in_plain_words(tmp_path: Path) -> None:
    ran = run_program(
        tmp_path,
        {
            "ranklift:vmSize": "Standard_ND40rs_v2",
            "ranklift:nodeCount": "0",
            "ranklift:location": "westeurope",
        },
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "ranklift:nodeCount = 0: must be at least 1; set it to the number of nodes wanted",
        "ranklift:sshFrom: is not set; set it to the network you connect from, like 203.0.113.7/32, "
        "or ranklift:access to private (fab config set sshFrom …)",
    ]
