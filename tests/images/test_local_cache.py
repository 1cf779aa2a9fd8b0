"""The script that puts the user's caches on a node's own disk, with a double of ``mountpoint``."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from images.templates import render


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home/azureuser"
    folder.mkdir(parents=True)
    return folder


def boot(tmp_path: Path, home: Path, *mounted: str) -> str:
    """Runs the script on a machine on which these disks are mounted."""
    ran = run(tmp_path, home, *mounted)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def run(tmp_path: Path, home: Path, *mounted: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "bin").mkdir(exist_ok=True)
    for name in ("resource", "resource_nvme"):
        (tmp_path / "mnt" / name).mkdir(parents=True, exist_ok=True)
    pattern = "|".join(f"{tmp_path}/mnt/{name}" for name in mounted) or "none"
    double = tmp_path / "bin/mountpoint"
    double.write_text(f"#!/bin/sh\ncase $2 in {pattern}) exit 0 ;; *) exit 1 ;; esac\n")
    double.chmod(0o755)
    script = render("scripts/local-cache.sh").replace("/mnt/", f"{tmp_path}/mnt/")
    for name in ("chown", "install"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/owners\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return subprocess.run(
        ["sh", "-c", script, "local-cache", str(home)],
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("mounted", "disk"),
    [
        (("resource",), "resource"),
        (("resource_nvme",), "resource_nvme"),
        (("resource", "resource_nvme"), "resource_nvme"),
    ],
)
def test_they_are_on_the_nvme_disks_else_on_the_temporary_one(
    tmp_path: Path, home: Path, mounted: tuple[str, ...], disk: str
) -> None:
    boot(tmp_path, home, *mounted)
    (home / ".cache/model").write_text("weights")
    assert (tmp_path / "mnt" / disk / "cache/model").read_text() == "weights"
    assert (tmp_path / "mnt" / disk).stat().st_mode & 0o7777 == 0o1777
    boot(tmp_path, home, *mounted)
    assert (home / ".cache/model").read_text() == "weights"


def test_a_disk_that_comes_back_empty_has_an_empty_cache(tmp_path: Path, home: Path) -> None:
    boot(tmp_path, home, "resource")
    (tmp_path / "mnt/resource/cache").rmdir()
    boot(tmp_path, home, "resource")
    (home / ".cache/model").write_text("weights")


def test_without_such_a_disk_nothing_is_in_the_way(tmp_path: Path, home: Path) -> None:
    boot(tmp_path, home)
    assert not (home / ".cache").is_symlink()
    boot(tmp_path, home, "resource")
    (tmp_path / "mnt/resource/cache").rmdir()
    boot(tmp_path, home)
    (home / ".cache").mkdir()


def test_a_cache_that_is_there_already_stays(tmp_path: Path, home: Path) -> None:
    (home / ".cache").mkdir()
    (home / ".cache/model").write_text("weights")
    assert "stays where it is" in boot(tmp_path, home, "resource")
    assert not (home / ".cache").is_symlink()
    assert (home / ".cache/model").read_text() == "weights"


def a_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim)


def a_dangling_link(place: Path, victim: Path) -> None:
    place.symlink_to(victim / "new")


def a_file(place: Path, victim: Path) -> None:
    assert victim.exists()
    place.touch()


def a_pipe(place: Path, victim: Path) -> None:
    assert victim.exists()
    os.mkfifo(place)


@pytest.mark.parametrize("plant", [a_link, a_dangling_link, a_file, a_pipe], ids=lambda plant: plant.__name__)
def test_root_follows_nothing_that_a_user_put_in_its_place(
    tmp_path: Path, home: Path, plant: Callable[[Path, Path], None]
) -> None:
    """The top of the disk is everybody's, and keeps what they put there over a restart."""
    boot(tmp_path, home, "resource")
    (tmp_path / "mnt/resource/cache").rmdir()
    victim = tmp_path / "victim"
    victim.mkdir(0o700)
    plant(tmp_path / "mnt/resource/cache", victim)
    ran = run(tmp_path, home, "resource")
    assert ran.returncode == 1
    assert ran.stderr == (
        f"{tmp_path}/mnt/resource/cache is not a folder of user {home.stat().st_uid}: remove it and restart "
        "ranklift-cache.service\n"
    )
    assert list(victim.iterdir()) == []
    assert not (tmp_path / "owners").exists()
    assert not (home / ".cache").is_symlink()


def test_nothing_changes_its_owner(tmp_path: Path, home: Path) -> None:
    boot(tmp_path, home, "resource")
    assert not (tmp_path / "owners").exists()
    assert (tmp_path / "mnt/resource/cache").stat().st_mode & 0o777 == 0o700
