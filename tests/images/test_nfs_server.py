"""The server of the shared folder: its first boot, checked by cloud-init and shellcheck themselves."""

import subprocess
from pathlib import Path

import pytest
import yaml

from images.nfs_server import EXPORT, SERVER_IMAGE, server_cloud_config, stripes
from tests.images.test_steps import SHELLCHECK

TEXT = server_cloud_config(user="azureuser", subnet_prefix="10.0.0.0/22", disks=4)


def files() -> dict[str, str]:
    return {file["path"]: file["content"] for file in yaml.safe_load(TEXT)["write_files"]}


def test_satisfies_cloud_inits_own_schema(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(TEXT)
    command = ["cloud-init", "schema", "-c", str(tmp_path / "user-data")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_shellcheck_finds_nothing_in_its_script(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(files()["/usr/local/sbin/ranklift-nfs-server"])
    command = [SHELLCHECK, str(tmp_path / "script")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_only_the_nodes_subnet_may_mount() -> None:
    (line,) = files()["/etc/exports.d/ranklift.exports"].splitlines()
    assert line.startswith(f"{EXPORT} 10.0.0.0/22(")
    assert line.count("(") == 1
    assert "*" not in line


def test_what_is_acknowledged_is_on_the_disks() -> None:
    (line,) = files()["/etc/exports.d/ranklift.exports"].splitlines()
    assert "sync" in line.partition("(")[2].rstrip(")").split(",")


def test_a_disk_that_holds_the_folder_is_never_formatted_again(tmp_path: Path) -> None:
    doubles = {
        "vgs": "exit 0",
        "lvs": "exit 0",
        "blkid": "exit 0",
        "mountpoint": "exit 1",
        "grep": "exit 0",
        "sleep": "exit 0",
        **{
            name: f'echo {name} "$@"'
            for name in (
                "vgcreate",
                "lvcreate",
                "mkfs.xfs",
                "mount",
                "chown",
                "systemctl",
                "exportfs",
                "mkdir",
            )
        },
    }
    for name, body in doubles.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for lun in range(4):
        (tmp_path / f"lun{lun}").touch()
    script = files()["/usr/local/sbin/ranklift-nfs-server"].replace("/dev/disk/azure/scsi1", str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    did = [line.split()[0] for line in ran.stdout.splitlines()]
    assert did == ["mkdir", "mount", "chown", "systemctl", "systemctl", "exportfs"]


@pytest.mark.parametrize("size", [100, 1024, 5000, 102400])
def test_the_stripes_hold_what_was_asked_for(size: int) -> None:
    found = stripes(size)
    assert found.disks * found.disk_gib >= size
    assert 2 <= found.disks <= 16


def test_the_image_is_pinned() -> None:
    assert "latest" not in SERVER_IMAGE


def test_it_makes_a_host_key_of_its_own() -> None:
    document = yaml.safe_load(TEXT)
    assert (document["ssh_deletekeys"], "ssh_keys" in document) == (True, False)
