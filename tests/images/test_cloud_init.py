"""What a node is told at its first boot."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from images.cloud_init import NodeSetup, cloud_config, known_hosts, node_patterns

GOLDEN = Path(__file__).parent / "golden" / "cloud_config.yaml"

SETUP = NodeSetup(
    user="azureuser",
    computer_name_prefix="node",
    subnet_prefix="10.0.0.0/22",
    host_public_key="ssh-ed25519 AAAAhost",
    host_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nhost\n-----END OPENSSH PRIVATE KEY-----\n",
    cluster_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\ncluster\n-----END OPENSSH PRIVATE KEY-----\n",
)


def test_is_the_text_that_was_reviewed() -> None:
    assert cloud_config(SETUP) == GOLDEN.read_text("utf-8")


@pytest.mark.skipif(shutil.which("cloud-init") is None, reason="cloud-init is not installed")
def test_satisfies_cloud_inits_own_schema(tmp_path: Path) -> None:
    document = tmp_path / "user-data"
    document.write_text(cloud_config(SETUP), "utf-8")
    checked = subprocess.run(
        ["cloud-init", "schema", "-c", str(document)], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "text", ["a: b", '"', "'", "\\", "{{ user }}", "# no comment", "ü😀", "\ttab\n\nend"]
)
def test_carries_any_content_unharmed(text: str) -> None:
    document = yaml.safe_load(cloud_config(replace(SETUP, host_private_key=text, cluster_private_key=text)))
    assert document["ssh_keys"]["ed25519_private"] == text
    assert document["write_files"][0]["content"] == text


def files() -> dict[str, dict[str, object]]:
    return {file["path"]: file for file in yaml.safe_load(cloud_config(SETUP))["write_files"]}


def test_only_the_user_reads_the_cluster_key() -> None:
    key = files()["/home/azureuser/.ssh/id_ed25519"]
    assert (key["permissions"], key["owner"]) == ("0600", "azureuser:azureuser")
    assert key["defer"], "the account does not exist before cloud-init's last stage"


def test_never_asks_and_never_trusts_an_unknown_host() -> None:
    config = str(files()["/home/azureuser/.ssh/config"]["content"])
    assert "StrictHostKeyChecking yes" in config
    assert "BatchMode yes" in config
    assert "IdentityAgent none" in config


def test_takes_no_passwords_and_many_connections() -> None:
    sshd = str(files()["/etc/ssh/sshd_config.d/10-ranklift.conf"]["content"]).splitlines()
    assert {"PasswordAuthentication no", "MaxStartups 400:30:1000", "MaxSessions 200"} <= set(sshd)


@pytest.mark.parametrize(
    ("subnet", "last"),
    [("10.0.0.0/20", "10.0.15.*"), ("10.1.2.0/24", "10.1.2.*"), ("10.1.2.64/26", "10.1.2.*")],
)
def test_pins_the_host_key_on_the_whole_subnet(subnet: str, last: str) -> None:
    assert node_patterns(replace(SETUP, subnet_prefix=subnet))[-1] == last


@pytest.mark.parametrize(("host", "known"), [("node00000a", True), ("10.0.1.7", True), ("github.com", False)])
def test_openssh_finds_nodes_and_nobody_else(host: str, known: bool, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text(known_hosts(replace(SETUP, host_public_key=public)))
    found = subprocess.run(
        ["ssh-keygen", "-F", host, "-f", str(tmp_path / "known_hosts")],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (found.returncode == 0) is known


def test_shows_no_private_key_when_printed() -> None:
    assert "PRIVATE" not in json.dumps(repr(SETUP))
