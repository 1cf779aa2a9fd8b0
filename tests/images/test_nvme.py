"""The script that joins a node's local NVMe disks, with doubles of the commands that would touch disks."""

import os
import subprocess
from pathlib import Path

import pytest

from images.templates import render

DOUBLES = {
    "mountpoint": '[ "${MOUNTED:-}" = yes ]',
    "udevadm": "exit 0",
    "blkid": """case $1 in
-L) [ -n "${LABELLED:-}" ] && echo "$LABELLED" ;;
--probe) case $2 in *used*) exit 0 ;; *odd*) exit 8 ;; *) exit 2 ;; esac ;;
esac""",
    "lsblk": """for disk; do :; done
case "$* $disk" in
*MODEL*remote*) echo 'MSFT NVMe Accelerator v1.0' ;;
*MODEL*) echo 'Microsoft NVMe Direct Disk' ;;
*) echo "$disk"; case $disk in *parted*) echo "${disk}p1" ;; esac ;;
esac""",
    **{name: f'echo {name} "$@" >>"$LOG"' for name in ("mdadm", "mkfs.xfs", "mount", "chmod", "mkdir")},
}


def run(
    folder: Path, disks: list[str], **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs the script on a machine with these disks; also what it did."""
    (folder / "bin").mkdir()
    (folder / "dev").mkdir()
    for name, body in DOUBLES.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    for disk in disks:
        (folder / "dev" / disk).touch()
    # No test may make block devices: what is there counts as one.
    script = render("scripts/nvme-raid.sh").replace("/dev/", f"{folder}/dev/").replace("[ -b ", "[ -e ")
    environment |= {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LOG": str(folder / "log")}
    ran = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    log = (folder / "log").read_text().replace(str(folder), "") if (folder / "log").exists() else ""
    return ran, [line for line in log.splitlines() if "--assemble" not in line]


def test_all_empty_disks_become_one(tmp_path: Path) -> None:
    ran, done = run(tmp_path, [f"nvme{number}n1" for number in range(8)])
    assert ran.returncode == 0, ran.stderr
    disks = " ".join(f"/dev/nvme{number}n1" for number in range(8))
    assert done == [
        f"mdadm --create /dev/md128 --run --level=0 --force --raid-devices=8 {disks}",
        "mkfs.xfs -q -L rl-nvme /dev/md128",
        "mkdir -p /mnt/resource_nvme",
        "mount -o noatime /dev/md128 /mnt/resource_nvme",
        "chmod 1777 /mnt/resource_nvme",
    ]


@pytest.mark.parametrize("kind", ["used", "odd", "parted", "remote"])
def test_a_disk_that_holds_anything_or_is_none_of_the_nodes_own_is_left_alone(
    kind: str, tmp_path: Path
) -> None:
    ran, done = run(tmp_path, ["nvme0n1", "nvme1n1", f"nvme-{kind}-n1"])
    assert ran.returncode == 0, ran.stderr
    assert done[0].endswith("--raid-devices=2 /dev/nvme0n1 /dev/nvme1n1")


def test_the_file_system_of_an_earlier_boot_is_mounted_as_it_is(tmp_path: Path) -> None:
    ran, done = run(tmp_path, ["nvme0n1"], LABELLED="/dev/md127")
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in done] == ["mkdir", "mount", "chmod"]
    assert "/dev/md127" in done[1]


def test_a_second_start_does_nothing(tmp_path: Path) -> None:
    ran, done = run(tmp_path, ["nvme0n1"], MOUNTED="yes")
    assert (ran.returncode, done) == (0, [])


def test_a_node_without_disks_says_so(tmp_path: Path) -> None:
    ran, done = run(tmp_path, [])
    assert ran.returncode == 0
    assert "no empty local NVMe disk" in ran.stdout
    assert done == []
