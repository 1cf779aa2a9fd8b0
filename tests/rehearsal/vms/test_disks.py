"""The folders that rehearsed nodes live on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.errors import InputError
from playbooks.nodes.host_report import physical_host
from rehearsal.vms.api import Machine
from rehearsal.vms.cloud_init import parse
from rehearsal.vms.disks import make_disk, make_image, place, remove_tree, sshd_config_text


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_an_image_has_users_and_sshd_of_its_own_and_no_secret_of_this_machine(tmp_path: Path) -> None:
    make_image(tmp_path / "image", "/node/bin")
    etc = tmp_path / "image" / "etc"
    assert (etc / "ssh" / "sshd_config").read_text() == sshd_config_text("/node/bin")
    assert "/node/bin" in (etc / "profile.d" / "node-python.sh").read_text()
    assert (etc / "hosts").readlink() == Path("/run/vnet/hosts")
    assert not list(etc.glob("ssh/ssh_host_*"))
    assert not (etc / "shadow").exists()


def test_a_disk_has_keys_with_the_modes_that_ssh_demands(tmp_path: Path) -> None:
    make_image(tmp_path / "image", None)
    machine = Machine("node000000", "10.0.0.4", "ada", ("ssh-ed25519 A", "ssh-ed25519 B\n"), "")
    config = parse("#cloud-config\nwrite_files: [{path: /etc/profile, content: x, append: true}]\n", "ada")
    disk = tmp_path / "disk"
    make_disk(disk, tmp_path / "image", machine, config)
    make_disk(disk, tmp_path / "image", machine, parse("", "ada"))  # a reboot
    assert (disk / "home/.ssh/authorized_keys").read_text() == "ssh-ed25519 A\nssh-ed25519 B\n"
    assert mode(disk / "home/.ssh/authorized_keys") == 0o600
    assert mode(disk / "home/.ssh") == 0o700
    assert mode(disk / "home") == 0o755
    assert mode(disk / "etc/ssh/ssh_host_ed25519_key") == 0o600
    assert "ada:x:1000:1000::/home/ada:" in (disk / "etc/passwd").read_text()
    assert (disk / "etc/hostname").read_text() == "node000000\n"


@pytest.mark.parametrize(
    "place",
    ["home/.ssh", "home/.ssh/authorized_keys", "home/.profile", "etc/hostname", "etc/passwd", "etc/cloud"],
)
@pytest.mark.parametrize("kind", ["link to a folder", "link to a file", "dangling link", "pipe", "folder"])
def test_what_a_job_put_in_the_place_of_a_file_leads_no_boot_elsewhere(
    tmp_path: Path, place: str, kind: str
) -> None:
    make_image(tmp_path / "image", None)
    skeleton = tmp_path / "image/etc/skel"
    skeleton.mkdir(exist_ok=True)
    (skeleton / ".profile").write_text("umask 022\n")
    machine = Machine("node000000", "10.0.0.4", "ada", ("ssh-ed25519 A",), "")
    config = parse(
        "#cloud-config\npackages: [nfs-common]\nwrite_files: [{path: /etc/cloud/x, content: x}]\n", "ada"
    )
    disk, outside = tmp_path / "disk", tmp_path / "outside"
    outside.mkdir()
    (outside / "authorized_keys").write_text("mine")
    make_disk(disk, tmp_path / "image", machine, config)
    path = disk / place
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        name = {"link to a folder": ".", "link to a file": "authorized_keys"}.get(kind, "none")
        path.symlink_to(outside / name)
    make_disk(disk, tmp_path / "image", machine, config)
    assert {one.name: one.read_text() for one in outside.iterdir()} == {"authorized_keys": "mine"}
    assert not path.is_symlink()
    assert (disk / "home/.ssh/authorized_keys").read_text() == "ssh-ed25519 A\n"
    assert (disk / "etc/hostname").read_text() == "node000000\n"
    assert (disk / "home/.profile").read_text() == "umask 022\n"


def test_a_vm_learns_from_a_file_on_which_host_it_is(tmp_path: Path) -> None:
    make_image(tmp_path / "image", None)
    machine = Machine("node000000", "10.0.0.4", "ada", (), "", host="RHRSL0000007")
    make_disk(tmp_path / "disk", tmp_path / "image", machine, parse("", "ada"))
    pool = (tmp_path / "disk/hyperv/.kvp_pool_3").read_bytes()
    assert len(pool) == 3 * (512 + 2048)
    assert physical_host(pool) == "RHRSL0000007"
    assert physical_host(pool[:2560] + pool[5120:]) == ""


def test_a_place_that_no_node_can_write_is_refused() -> None:
    with pytest.raises(InputError, match=r"/usr/local/bin/x.*read-only on a rehearsed node"):
        place("/usr/local/bin/x", "azureuser")


def test_folders_without_any_permission_are_removed_too(tmp_path: Path) -> None:
    inner = tmp_path / "disk" / "work" / "work"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (inner / "link").symlink_to(tmp_path)
    inner.chmod(0)
    remove_tree(tmp_path / "disk")
    remove_tree(tmp_path / "disk")
    assert list(tmp_path.iterdir()) == []
