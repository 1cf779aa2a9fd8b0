"""The recipes, run: every apt, sed and systemctl line of theirs in a real Debian root.

Only what the vendors would serve is replaced (:mod:`tests.azure.vendors`), and the kernel's packages are
named for the kernel that runs here. The root is Debian, which apt here reaches, not Ubuntu: what differs
between the two is not seen. ``mmdebstrap`` makes the root in a user namespace of its own, as root or as
anyone, and nothing of it stays.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from images import steps as steps_module
from images.recipe import Download, Recipe, recipe_for
from images.steps import steps
from tests import bare_root
from tests.azure import vendors

pytestmark = [
    pytest.mark.azure,
    pytest.mark.for_every_change,
    pytest.mark.timeout(2 * 600),
]

INCLUDED = (
    "apt-utils,bzip2,ca-certificates,curl,dkms,environment-modules,g++,make,mdadm,nfs-common,pciutils,systemd,udev,"
    "unattended-upgrades,waagent,xfsprogs"
)
"""What the steps would install from Debian's mirror anyway: fetched once for all recipes."""
LIMIT_S = 600
"""Seconds. All of it takes under two minutes of one core, and four beside much else on two."""

RUN = """\
#!/bin/bash
# Twice: a second run must go through, and must change nothing.
set -eu
cd /recipe
state() {
    dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Abbrev}\\n' >"/results/packages.$1"
    apt-mark showhold >"/results/held.$1"
    (cd / && find etc opt usr/local usr/share/modules -type f ! -path 'etc/apt/*' ! -name '*.cache' \\
        ! -path 'etc/ssl/*' -exec sha256sum {} + | sort -k 2) >"/results/files.$1"
    find /etc/systemd/system -type l -printf '%P -> %l\\n' | sort >"/results/units.$1"
}
for turn in 1 2; do
    for script in [0-9]*.sh; do
        if ! bash "$script" >>/results/log 2>&1 </dev/null; then
            echo "$script failed in turn $turn" >>/results/log
            exit 1
        fi
        echo "== $turn $script: $SECONDS s" >>/results/log
    done
    state "$turn"
done
bash -lc 'module load mpi/$(cat /recipe/mpi) && command -v mpirun && mpirun' >/results/mpirun 2>&1
bash -lc 'command -v nvcc && nvcc; nvidia-smi' >/results/gpu 2>&1 || true
apt-cache policy dkms >/results/dkms
status=0
bash /recipe/wrong/60-mpi.sh >/results/wrong 2>&1 || status=$?
echo "status $status" >>/results/wrong
tar -C / -cf /results/etc.tar etc opt usr/local/lib/ranklift var/log usr/share/modules/modulefiles
cp /var/cache/ranklift/SHA256SUMS /results/
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What a recipe left behind."""

    recipe: Recipe
    folder: Path

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def file(self, path: str) -> str:
        with tarfile.open(self.folder / "etc.tar") as tar:
            content = tar.extractfile(path)
            assert content is not None
            return content.read().decode()

    def version(self, package: str) -> str | None:
        for line in self.said("packages.1").splitlines():
            name, version, *_ = line.split()
            if name == package:
                return version
        return None

    def units(self) -> str:
        return self.said("units.1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with what the recipes install from the distribution's own mirror."""
    folder = tmp_path_factory.mktemp("root")
    archive = folder / "root.tar"
    bare_root.make_archive(archive, include=INCLUDED, temporary=folder / "tmp", limit_s=LIMIT_S)
    yield archive
    archive.unlink()


def make(root: Path, folder: Path, recipe: Recipe) -> Made:
    """Runs the recipe in a fresh copy of the root."""
    mirror, scripts, results = folder / "mirror", folder / "recipe", folder / "results"
    scripts.mkdir(parents=True)
    vendors.build_mirror(mirror, recipe)
    vendors.build_kernel(mirror)
    recipe = vendors.pinned(recipe, mirror)
    for step in steps(recipe):
        (scripts / step.file_name).write_text(step.script)
    other = replace(recipe, mpi_file=Download("0", f"{recipe.mpi_file.url}.other.tbz", "0" * 64))
    vendors.put(mirror, other.mpi_file, b"something else")
    (scripts / "wrong").mkdir()
    for step in steps(other):
        (scripts / "wrong" / step.file_name).write_text(step.script)
    (scripts / "mpi").write_text(recipe.mpi)
    (scripts / "run").write_text(RUN)
    ran = in_root(root, folder, "bash /recipe/run")
    assert ran.returncode == 0, (
        (results / "log").read_text()[-3000:] if (results / "log").exists() else ran.stderr
    )
    return Made(recipe, results)


def in_root(root: Path, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` in a copy of the root that has ``recipe`` and ``mirror`` of ``folder``."""
    kernel = "deb [trusted=yes] file:///mirror/ubuntu ./"
    install = "dpkg -i /mirror/ubuntu/linux-image*.deb /mirror/ubuntu/linux-azure*.deb"
    # Outside the namespace only mmdebstrap's own hooks may read and write.
    hooks = [
        "mkdir -p $1/results $1/recipe $1/mirror $1/etc/ranklift",
        f"sync-in {folder / 'recipe'} /recipe",
        f"sync-in {folder / 'mirror'} /mirror",
        f"echo file://{vendors.MIRROR} >$1{steps_module.MIRROR}",
        f"echo '{kernel}' >$1/etc/apt/sources.list.d/ubuntu.list",
        "cp /etc/resolv.conf /etc/hosts $1/etc/",
        f'chroot $1 sh -c "{install}" >/dev/null',
        f"status=0; chroot $1 {command} >$1/results/out 2>&1 || status=$?; echo $status >$1/results/status",
    ]
    (folder / "results").mkdir()
    hooks.append(f"sync-out /results {folder / 'results'}")
    ran = bare_root.run(bare_root.unpack(root, hooks, temporary=folder / "tmp"), limit_s=LIMIT_S)
    status = folder / "results/status"
    assert status.exists(), ran.stdout + ran.stderr
    return subprocess.CompletedProcess(
        command, int(status.read_text()), stdout=(folder / "results/out").read_text(), stderr=ran.stderr
    )


@pytest.fixture(scope="module")
def both(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Made]:
    """The two recipes that have every step between them, run side by side."""
    recipes = (
        recipe_for("Standard_ND96isr_H100_v5"),
        recipe_for("Standard_ND40rs_v2", ofed="mlnx", mpi="openmpi"),
    )
    folders = [tmp_path_factory.mktemp("recipe") for _ in recipes]
    with ThreadPoolExecutor(len(recipes)) as pool:
        first, second = pool.map(partial(make, root), folders, recipes)
    return first, second


@pytest.fixture(scope="module")
def h100(both: tuple[Made, Made]) -> Made:
    return both[0]


@pytest.fixture(scope="module")
def v100(both: tuple[Made, Made]) -> Made:
    return both[1]


def test_a_second_run_goes_through_and_changes_nothing(h100: Made, v100: Made) -> None:
    for made in (h100, v100):
        for what in ("packages", "held", "files", "units"):
            assert made.said(f"{what}.2") == made.said(f"{what}.1"), what


def test_the_kernel_stays_and_nothing_upgrades_itself(h100: Made) -> None:
    held = set(h100.said("held.1").split())
    kernel = os.uname().release
    assert {"linux-azure", "linux-image-azure-lts-22.04", f"linux-image-{kernel}"} <= held
    for unit in ("unattended-upgrades.service", "apt-daily.timer", "apt-daily-upgrade.timer"):
        assert f"{unit} -> /dev/null" in h100.units()


@pytest.mark.parametrize("which", ["h100", "v100"])
def test_openibd_starts_at_boot_after_udev(which: str, request: pytest.FixtureRequest) -> None:
    made: Made = request.getfixturevalue(which)
    assert "multi-user.target.wants/openibd.service" in made.units()
    assert "After=systemd-udev-settle.service" in made.file(
        "etc/systemd/system/openibd.service.d/10-ranklift.conf"
    )
    peermem = made.file("etc/systemd/system/openibd.service.d/20-ranklift-peermem.conf")
    assert "modprobe nvidia-peermem" in peermem


def test_dkms_stays_the_distributions_own(h100: Made) -> None:
    policy = dict(line.strip().split(": ") for line in h100.said("dkms").splitlines()[1:3])
    assert policy["Candidate"] == policy["Installed"]
    assert "99:9-1" in h100.said("dkms"), "the vendor's is there to be taken"


def test_mlnx_ofed_is_installed_once_and_leaves_firmware_alone(v100: Made) -> None:
    called = v100.file("var/log/mlnxofedinstall").splitlines()
    assert called == ["--add-kernel-support --skip-unsupported-devices-check --without-fw-update"]


@pytest.mark.parametrize(("which", "package"), [("h100", "nvidia-open"), ("v100", "cuda-drivers")])
def test_the_driver_is_the_pinned_one(which: str, package: str, request: pytest.FixtureRequest) -> None:
    made: Made = request.getfixturevalue(which)
    assert made.version(package) == f"{made.recipe.driver}-1"
    assert made.version("cuda-drivers" if package == "nvidia-open" else "nvidia-open") is None


def test_the_fabric_manager_starts_where_there_are_switches(h100: Made, v100: Made) -> None:
    assert h100.version("nvidia-fabricmanager") == f"{h100.recipe.driver}-1"
    assert "multi-user.target.wants/nvidia-fabricmanager.service" in h100.units()
    assert v100.version("nvidia-fabricmanager") is None


def test_cuda_and_nccl_are_the_pinned_ones_and_stay(h100: Made, v100: Made) -> None:
    for made in (h100, v100):
        assert made.version("libnccl2") == made.version("libnccl-dev") == made.recipe.nccl
        assert {"libnccl2", "libnccl-dev"} <= set(made.said("held.1").split())
        assert f"release {made.recipe.cuda}" in made.said("gpu")


def test_a_login_finds_the_mpi_by_its_module(h100: Made, v100: Made) -> None:
    assert "of HPC-X" in h100.said("mpirun")
    assert "/opt/openmpi-5.0.10/bin/mpirun" in v100.said("mpirun")


def test_open_mpi_is_built_for_the_fabric_and_the_gpus(v100: Made) -> None:
    options = v100.file("var/log/openmpi-configure").split()
    assert {"--with-ucx", "--with-cuda=/usr/local/cuda", "--enable-mpirun-prefix-by-default"} <= set(options)


def test_hpcx_knows_where_it_lies(h100: Made) -> None:
    folder = h100.recipe.mpi_file.url.rpartition("/")[2].removesuffix(".tbz")
    assert h100.file(f"opt/{folder}/ucx/lib/pkgconfig/ucx.pc") == f"prefix=/opt/{folder}/ucx\n"


def test_the_agent_looks_after_infiniband_once(h100: Made) -> None:
    lines = [line for line in h100.file("etc/waagent.conf").splitlines() if "EnableRDMA" in line]
    assert lines == ["OS.EnableRDMA=y"]


def test_the_disks_become_one_at_boot(h100: Made, v100: Made) -> None:
    assert "multi-user.target.wants/ranklift-nvme.service" in h100.units()
    assert "ranklift-nvme" not in v100.units()


def test_what_came_without_a_pinned_digest_is_written_down(h100: Made) -> None:
    assert h100.recipe.ofed_file is not None
    assert h100.recipe.ofed_file.sha256 is None
    assert h100.recipe.ofed_file.url.removeprefix("https://") in h100.said("SHA256SUMS")


def test_a_download_with_another_digest_is_not_used(h100: Made) -> None:
    assert "0000 was pinned: it is not used" in h100.said("wrong")
    assert h100.said("wrong").splitlines()[-1] == "status 1"
