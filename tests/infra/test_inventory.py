"""The inventory: read from Azure, saved for ssh, read back."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.inventory import (
    Inventory,
    Node,
    StackOutputs,
    known_hosts_text,
    load,
    read_azure,
    remove,
    save,
    ssh_config_text,
)
from launch.errors import GiveUpError, InputError

GOLDEN = Path(__file__).parent / "golden"
GROUP = "/subscriptions/0000/resourceGroups/dev-rg/providers"
ABSENT = r"stack = 'dev': is not up, or only partly created \(output {} is missing\); run `fab up`"
SCALE_SET = f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets/dev-nodes"
BALANCER = f"{GROUP}/Microsoft.Network/loadBalancers/dev-lb"
OUTPUTS = StackOutputs(
    stack="dev",
    scale_set_id=SCALE_SET,
    load_balancer_id=BALANCER,
    backend_pool="nodes",
    public_ip="192.0.2.10",
    ssh_port=22,
    vm_size="Standard_ND40rs_v2",
    location="westeurope",
    node_count=3,
    slots=8,
    admin_user="azureuser",
    access="public",
    host_public_key="ssh-ed25519 AAAAC3Nza",
    user_private_key="PRIVATE",
)
INVENTORY = Inventory(
    stack="dev",
    size="Standard_ND40rs_v2",
    location="westeurope",
    user="azureuser",
    nodes=(
        Node("node000000", 0, "10.0.0.4", "192.0.2.10", 50007, 8, "running"),
        Node("node00000a", 10, "10.0.0.9", "192.0.2.10", 50002, 8, "running"),
    ),
    read_at=1000.0,
)


class FakeAzure:
    """Answers as the SDK's clients do; ports in an order that no arithmetic on instance ids gives."""

    def __init__(self, ids: list[int], in_pool: dict[int, int], asked_alone: dict[int, int]) -> None:
        self.ids, self.in_pool, self.asked_alone, self.questions = ids, in_pool, asked_alone, list[str]()
        self.compute = SimpleNamespace(virtual_machine_scale_set_vms=SimpleNamespace(list=self._machines))
        self.network = SimpleNamespace(
            network_interfaces=SimpleNamespace(
                list_virtual_machine_scale_set_network_interfaces=self._interfaces
            ),
            load_balancer_backend_address_pools=SimpleNamespace(get=self._pool),
            load_balancers=SimpleNamespace(begin_list_inbound_nat_rule_port_mappings=self._query),
        )

    @staticmethod
    def configuration(number: int) -> str:
        return f"{SCALE_SET}/virtualMachines/{number}/networkInterfaces/nic/ipConfigurations/ip"

    def _machines(self, group: str, name: str, expand: str) -> list[Any]:
        assert (group, name, expand) == ("dev-rg", "dev-nodes", "instanceView")
        codes = ["ProvisioningState/succeeded", "PowerState/running"]
        view = SimpleNamespace(statuses=[SimpleNamespace(code=code) for code in codes])
        return [
            SimpleNamespace(
                instance_id=str(number),
                properties=SimpleNamespace(
                    os_profile=SimpleNamespace(computer_name=f"node{number:06d}"),
                    provisioning_state="Creating" if number == 9 else "Succeeded",
                    instance_view=None if number == 9 else view,
                ),
            )
            for number in self.ids
        ]

    def _interfaces(self, group: str, name: str) -> list[Any]:
        assert (group, name) == ("dev-rg", "dev-nodes")
        return [
            SimpleNamespace(
                properties=SimpleNamespace(
                    virtual_machine=SimpleNamespace(id=f"{SCALE_SET}/virtualMachines/{number}"),
                    primary=True,
                    ip_configurations=[
                        SimpleNamespace(
                            id=self.configuration(number),
                            properties=SimpleNamespace(
                                primary=True, private_ip_address=f"10.0.0.{4 + number}"
                            ),
                        )
                    ],
                )
            )
            for number in self.ids
            if number != 9
        ]

    def _mapping(self, port: int) -> list[Any]:
        other = SimpleNamespace(backend_port=8888, frontend_port=60000)
        return [other, SimpleNamespace(backend_port=22, frontend_port=port)]

    def _pool(self, group: str, balancer: str, pool: str) -> Any:
        assert (group, balancer, pool) == ("dev-rg", "dev-lb", "nodes")
        entries = [
            SimpleNamespace(
                properties=SimpleNamespace(
                    # Azure answers ids in whatever case it likes.
                    network_interface_ip_configuration=SimpleNamespace(id=self.configuration(number).upper()),
                    ip_address=None,
                    inbound_nat_rules_port_mapping=self._mapping(port),
                )
            )
            for number, port in self.in_pool.items()
        ]
        return SimpleNamespace(properties=SimpleNamespace(load_balancer_backend_addresses=entries))

    def _query(self, group: str, balancer: str, pool: str, body: dict[str, Any]) -> Any:
        identifier = body["ipConfiguration"]["id"]
        self.questions.append(identifier)
        number = next(number for number in self.ids if self.configuration(number) == identifier)
        mapping = self._mapping(self.asked_alone[number]) if number in self.asked_alone else []
        return SimpleNamespace(result=lambda: SimpleNamespace(inbound_nat_rule_port_mappings=mapping))


def test_ports_are_azures_answer_and_no_arithmetic() -> None:
    azure = FakeAzure([0, 1, 3], in_pool={0: 50007, 1: 50000, 3: 50003}, asked_alone={})
    found = read_azure(OUTPUTS, azure)
    assert [(n.instance_id, n.port, n.private_ip) for n in found.nodes] == [
        (0, 50007, "10.0.0.4"),
        (1, 50000, "10.0.0.5"),
        (3, 50003, "10.0.0.7"),
    ]
    assert {n.host for n in found.nodes} == {"192.0.2.10"}
    assert found.shared_folder is None
    assert read_azure(replace(OUTPUTS, nfs_mount="h:/s"), azure).shared_folder == "/mnt/nfs"
    assert azure.questions == [], "the pool's one answer is enough for all"


def test_a_node_the_pool_does_not_show_is_asked_for_alone() -> None:
    azure = FakeAzure([0, 1], in_pool={0: 50004}, asked_alone={1: 50009})
    assert [n.port for n in read_azure(OUTPUTS, azure).nodes] == [50004, 50009]
    assert azure.questions == [FakeAzure.configuration(1)]


def test_a_node_in_the_making_has_neither_address_nor_port() -> None:
    found = read_azure(OUTPUTS, FakeAzure([9, 0], in_pool={0: 50001}, asked_alone={}))
    assert [(n.instance_id, n.state, n.port, n.private_ip) for n in found.nodes] == [
        (0, "running", 50001, "10.0.0.4"),
        (9, "creating", 0, ""),
    ]
    assert "node000009" not in ssh_config_text(found, Path("/x"))


def test_private_access_goes_to_the_private_address() -> None:
    private = replace(OUTPUTS, public_ip=None, load_balancer_id=None, backend_pool=None, access="private")
    azure = FakeAzure([0], in_pool={}, asked_alone={})
    assert [(n.host, n.port) for n in read_azure(private, azure).nodes] == [("10.0.0.4", 22)]


def test_ssh_config_is_this() -> None:
    assert (
        ssh_config_text(INVENTORY, Path("/home/me/my 100% project/.ranklift/dev"))
        == (GOLDEN / "ssh_config").read_text()
    )


def test_ssh_reads_it_as_meant(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" 100% folder'
    save(INVENTORY, OUTPUTS, folder)
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(folder / "ssh_config"), "node00000a"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout.splitlines()
    for line in (
        "hostname 192.0.2.10",
        "port 50002",
        "user azureuser",
        "hostkeyalias node00000a",
        "stricthostkeychecking true",
        "globalknownhostsfile /dev/null",
        "identitiesonly yes",
        "identityagent none",
        "serveraliveinterval 15",
        "connecttimeout 15",
    ):
        assert line in shown
    (identity,) = (line.partition(" ")[2] for line in shown if line.startswith("identityfile "))
    assert identity.replace("%%", "%") == str(folder / "id_ed25519")


def test_a_path_that_ssh_would_expand_is_refused() -> None:
    with pytest.raises(InputError, match="project folder"):
        ssh_config_text(INVENTORY, Path("/x/${HOME}/y"))


def test_every_node_has_its_pin() -> None:
    assert known_hosts_text(INVENTORY, "ssh-ed25519 AAAA comment") == (
        "node000000 ssh-ed25519 AAAA\nnode00000a ssh-ed25519 AAAA\n"
    )


def test_saved_and_loaded_again(tmp_path: Path) -> None:
    folder = tmp_path / ".ranklift" / "dev"
    save(INVENTORY, OUTPUTS, folder)
    save(INVENTORY, OUTPUTS, folder)
    assert load(folder) == INVENTORY
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(
        ("inventory.json", "ssh_config", "known_hosts", "id_ed25519"), 384
    )
    assert (folder / "id_ed25519").read_text() == "PRIVATE\n"
    assert "PRIVATE" not in (folder / "inventory.json").read_text()
    assert "PRIVATE" not in repr(OUTPUTS)


def test_what_is_in_the_way_is_named_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").mkdir()
    with pytest.raises(GiveUpError, match=r"inventory.json cannot be replaced \(Is a directory\): remove"):
        save(INVENTORY, OUTPUTS, tmp_path)
    assert not list(tmp_path.glob(".inventory*"))


def test_no_inventory_and_a_damaged_one_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fab status"):
        load(tmp_path)
    (tmp_path / "inventory.json").write_text('{"stack": "dev"}')
    with pytest.raises(InputError, match=r"fab status"):
        load(tmp_path)


def test_outputs_by_their_names_and_the_first_missing_one() -> None:
    answer = {
        "stack": "dev",
        "scaleSetId": SCALE_SET,
        "sshPort": 22,
        "vmSize": "S",
        "location": "l",
        "nodeCount": 3.0,
        "slots": 8,
        "adminUser": "azureuser",
        "access": "private",
        "hostPublicKey": "ssh-ed25519 AAAA\n",
        "userPrivateKey": "k",
        "clusterPublicKey": "ssh-ed25519 BBBB",
    }
    outputs = StackOutputs.from_json("dev", answer)
    assert (outputs.public_ip, outputs.node_count, outputs.host_public_key) == (None, 3, "ssh-ed25519 AAAA")
    stored = {"dataGroup": "g-data", "storageAccount": "a"}
    assert StackOutputs.from_json("dev", answer | stored) == outputs
    shared = StackOutputs.from_json("dev", answer | {"nfsMount": "10.0.0.4:/export/shared"})
    assert shared == replace(outputs, nfs_mount="10.0.0.4:/export/shared")
    with pytest.raises(InputError, match=ABSENT.format("scaleSetId")):
        StackOutputs.from_json("dev", answer | {"scaleSetId": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"})
    del answer["slots"]
    with pytest.raises(InputError, match=ABSENT.format("slots")):
        StackOutputs.from_json("dev", answer)


def test_removing_takes_what_was_saved_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "rehearsal"
    save(INVENTORY, OUTPUTS, folder)
    (folder / "rehearsal.json").write_text("{}")
    remove(folder)
    assert [path.name for path in folder.iterdir()] == ["rehearsal.json"]
    (folder / "rehearsal.json").unlink()
    for _ in range(2):
        remove(folder)
        assert not folder.exists()


def test_a_machine_that_goes_down_leaves_what_was_saved_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    save(INVENTORY, OUTPUTS, tmp_path / "dev")
    saved = [path.stat().st_size for path in (tmp_path / "dev").iterdir()]
    assert sorted(synced) == sorted(saved)
