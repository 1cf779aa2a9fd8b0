"""What a rehearsed node takes from a cloud-config document, and what it refuses."""

from __future__ import annotations

import base64

import pytest

from images.cloud_init import NodeSetup, cloud_config
from images.nfs_server import server_cloud_config
from images.recipe import recipe_for
from images.shared_mount import SharedMount
from images.steps import steps
from images.user_data import user_data
from launch.errors import InputError
from rehearsal.vms.cloud_init import CloudConfig, File, Mount, parse
from rehearsal.vms.disks import place


def test_nothing_asks_for_nothing() -> None:
    assert parse("", "azureuser") == CloudConfig()
    assert parse("#cloud-config\n", "azureuser") == CloudConfig()


def test_host_keys_become_files_that_sshd_accepts() -> None:
    config = parse("#cloud-config\nssh_keys: {ed25519_private: 'SECRET', ed25519_public: 'PUB'}\n", "u")
    assert config.files == (
        File("/etc/ssh/ssh_host_ed25519_key", b"SECRET\n", 0o600),
        File("/etc/ssh/ssh_host_ed25519_key.pub", b"PUB\n", 0o644),
    )
    assert config.has_host_key
    assert "SECRET" not in repr(config)


def test_deferred_files_come_after_all_others() -> None:
    text = (
        "#cloud-config\nwrite_files:\n- {path: /etc/a, defer: true}\n- {path: /etc/b, permissions: '0600'}\n"
    )
    assert [(file.path, file.mode) for file in parse(text, "u").files] == [
        ("/etc/b", 0o600),
        ("/etc/a", 0o644),
    ]


def test_contents_may_be_encoded() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    text = (
        f"#cloud-config\nwrite_files: [{{path: /etc/a, encoding: b64, content: {encoded}, append: true}}]\n"
    )
    assert parse(text, "u").files == (File("/etc/a", b"\x00\xff", 0o644, append=True),)


def test_commands_keep_their_words() -> None:
    config = parse("#cloud-config\nruncmd: ['echo $HOME', [echo, 'a b']]\n", "u")
    assert config.runcmd == "#!/bin/sh\necho $HOME\necho 'a b'\n"


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ("bootcmd: [reboot]", "cloud-config bootcmd"),
        ("packages: nginx", "packages"),
        ("package_update: often", "package_update"),
        ("write_file: []", "cloud-config write_file"),
        ("write_files: [{path: /etc/a, mode: '0600'}]", r"write_files\[0\].mode"),
        ("write_files: [{path: etc/a}]", r"write_files\[0\].path"),
        ("write_files: [{path: /etc/../usr/a}]", r"write_files\[0\].path"),
        ("write_files: [{path: /etc/a, owner: bob}]", r"write_files\[0\].owner"),
        ("write_files: [{path: /etc/a, permissions: 600}]", r"write_files\[0\].permissions"),
        ("write_files: [{path: /etc/a, encoding: rot13}]", r"write_files\[0\].encoding"),
        ("write_files: [{path: /etc/a, encoding: b64, content: a}]", r"write_files\[0\].content"),
        ("write_files: [{path: /etc/a, defer: 'yes'}]", r"write_files\[0\].defer"),
        ("ssh_keys: {rsa_private: x}", "ssh_keys.rsa_private"),
        ("ssh_keys: {ed25519_public: x}", "ssh_keys"),
        ("ssh_deletekeys: maybe", "ssh_deletekeys"),
        ("runcmd: reboot", "runcmd"),
        ("mounts: /mnt", "mounts"),
        ("mounts: [[a]]", r"mounts\[0\]"),
        ("mounts: [[/dev/sdc, /mnt, ext4]]", r"mounts\[0\]"),
        ("mounts: [['h:/s', mnt, nfs]]", r"mounts\[0\]"),
        ("mounts: [['h:/s', /mnt]]", r"mounts\[0\]"),
        ("mounts: [[ephemeral0]]", r"mounts\[0\]"),
        ("mounts: [[ephemeral0, mnt]]", r"mounts\[0\]"),
        ("mounts: [[ephemeral1, /mnt/resource]]", r"mounts\[0\]"),
        ("[1]", "cloud-config"),
        ("a: [", "customData"),
    ],
)
def test_the_rest_is_refused_by_name(document: str, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named}"):
        parse(f"#cloud-config\n{document}\n", "azureuser")


def test_a_shell_script_is_no_cloud_config() -> None:
    with pytest.raises(InputError, match="customData"):
        parse("#!/bin/sh\n", "azureuser")


def test_shares_are_mounted() -> None:
    text = "#cloud-config\nmounts: [['10.0.0.9:/srv', /mnt/nfs, nfs4, 'vers=4.1', '0', '0']]\n"
    assert parse(text, "u").mounts == (Mount("10.0.0.9:/srv", "/mnt/nfs"),)


@pytest.mark.parametrize(
    "entry", ["[ephemeral0, /mnt/resource]", "[ephemeral0, /mnt/resource, auto, nofail]"]
)
def test_a_temporary_disk_is_passed_over_for_no_rehearsed_node_has_one(entry: str) -> None:
    assert parse(f"#cloud-config\nmounts: [{entry}]\n", "u").mounts == ()


def test_packages_are_named_in_the_log_and_not_installed() -> None:
    text = "#cloud-config\npackage_update: true\npackages: [lvm2, nfs-kernel-server]\n"
    assert parse(text, "u").packages == ("lvm2", "nfs-kernel-server")


def test_a_node_that_would_make_itself_from_plain_ubuntu_says_what_to_rehearse_with() -> None:
    with pytest.raises(InputError, match=r"image: without drivers, .* leave ranklift:image out"):
        parse(user_data(steps(recipe_for("Standard_ND40rs_v2"))), "u")


def test_every_document_that_a_cluster_s_machines_get_is_understood() -> None:
    public, secret = "ssh-ed25519 A", "PEM"
    node = NodeSetup(
        user="u",
        computer_name_prefix="node",
        subnet_prefix="10.0.0.0/20",
        host_public_key=public,
        user_public_key="ssh-ed25519 AAAAuser",
        host_private_key=secret,
        cluster_private_key=secret,
        shared=SharedMount("10.0.0.9:/srv/shared"),
        nvme=True,
    )
    server = server_cloud_config(user="u", subnet_prefix="10.0.0.0/20", disks=2)
    for text, brings_key in ((cloud_config(node), True), (server, False)):
        assert parse(text, "u").has_host_key is brings_key
        assert all(place(file.path, "u") for file in parse(text, "u").files)
    assert [one.target for one in parse(cloud_config(node), "u").mounts] == ["/mnt/nfs"]
