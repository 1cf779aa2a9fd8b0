"""The software that a size's node gets on plain Ubuntu, every version pinned.

>>> recipe = recipe_for("Standard_ND40rs_v2")
>>> recipe.ubuntu, recipe.driver_package, recipe.cuda, recipe.nccl, recipe.mpi_name
('22.04', 'cuda-drivers', '12.9', '2.28.9-1+cuda12.9', 'hpcx-2.18')
>>> recipe_for("Standard_ND96isr_H100_v5", ubuntu="24.04").driver_package
'nvidia-open'

The versions are data, in ``versions.json``, each with its source and, where a source gives it, the SHA-256
of the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from catalogue.size import CpuArch, GpuDriver, Size
from catalogue.sizes import catalogue, lookup
from launch.errors import InputError

__all__ = ["Download", "Mpi", "Ofed", "Recipe", "Ubuntu", "recipe_for"]

Ubuntu = Literal["22.04", "24.04"]
Ofed = Literal["doca", "mlnx"]
Mpi = Literal["hpcx", "openmpi"]

NvidiaPackage = Literal["cuda-drivers", "nvidia-open"]
_CUDA = "13.0"
_NVIDIA: dict[GpuDriver, tuple[NvidiaPackage, str]] = {
    "nvidia-proprietary": ("cuda-drivers", "12.9"),
    "nvidia-open": ("nvidia-open", _CUDA),
}
"""Package and CUDA by kernel modules. CUDA 13 dropped Volta, which the open modules do not drive;
Azure's V100 images hold 12.9 (azhpc-images versions.json)."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file to fetch."""

    version: str
    url: str
    sha256: str | None
    """``None``: no source gives it. The node then records the digest of what came, and compares nothing."""

    @property
    def digest(self) -> str:
        """Return the digest, or ``unknown``."""
        return self.sha256 or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The input of the steps."""

    size: str
    ubuntu: Ubuntu
    cpu_arch: CpuArch
    ofed: Ofed | None
    """``None`` on a size without InfiniBand."""
    ofed_file: Download | None
    gpu: str | None
    driver: str | None
    """Version; ``None`` on a size without GPUs, as ``keyring``, ``cuda`` and ``nccl``."""
    driver_package: NvidiaPackage | None
    """NVIDIA's kernel modules: ``cuda-drivers`` are the proprietary ones."""
    keyring: Download | None
    cuda: str | None
    nccl: str | None
    fabric_manager: bool
    topology_name: str | None
    topology: Download | None
    mpi: Mpi
    mpi_file: Download
    nvme: bool

    @property
    def mpi_name(self) -> str:
        """``hpcx-2.18``: how the MPI's module file is called."""
        return f"{self.mpi}-{self.mpi_file.version}"

    @property
    def ofed_name(self) -> str | None:
        """``DOCA-OFED 3.2.1``, for people."""
        if self.ofed_file is None:
            return None
        return f"{'DOCA-OFED' if self.ofed == 'doca' else 'MLNX_OFED'} {self.ofed_file.version}"

    def inventory(self) -> dict[str, Any]:
        """Return the node's record of what it holds: every field but the absent ones."""
        return {key: value for key, value in asdict(self).items() if value not in (None, False)}


def recipe_for(
    size: str, *, ubuntu: Ubuntu | None = None, ofed: Ofed | None = None, mpi: Mpi | None = None
) -> Recipe:
    """Return the recipe of a size. Without a choice: Ubuntu 22.04 (24.04 on Arm64), DOCA-OFED, HPC-X.

    Raises :class:`~launch.errors.InputError` for a size that no recipe fits and for a combination of which
    no source gives a version: nothing is guessed.
    """
    node = lookup(size, "size")
    _refuse(node)
    release: Ubuntu = ubuntu or ("24.04" if node.cpu_arch == "Arm64" else "22.04")
    platform = f"{release}/{node.cpu_arch}"
    chosen_ofed = (ofed or "doca") if node.infiniband else None
    if ofed and not node.infiniband:
        raise InputError("ofed", ofed, f"{node.name} has no InfiniBand", "leave it out")
    package, cuda = _NVIDIA[node.gpu_driver] if node.gpu_driver else (None, None)
    chosen_mpi: Mpi = mpi or ("hpcx" if node.infiniband else "openmpi")
    if chosen_mpi == "hpcx":
        if not node.infiniband:
            raise InputError("mpi", mpi, f"HPC-X wants OFED, and {node.name} has none", "use openmpi")
        # Where there is no GPU, HPC-X's build for CUDA is the one that Azure's images carry too.
        mpi_file = _file("hpcx", f"{platform}/{(cuda or _CUDA).partition('.')[0]}", "mpi", "use openmpi")
    else:
        mpi_file = _download(_versions()["openmpi"])
    arm = "use ubuntu 24.04 and doca" if node.cpu_arch == "Arm64" else "use doca"
    return Recipe(
        size=node.name,
        ubuntu=release,
        cpu_arch=node.cpu_arch,
        ofed=chosen_ofed,
        ofed_file=_file(chosen_ofed, platform, "ofed", arm) if chosen_ofed else None,
        gpu=node.gpu,
        driver=_versions()["driver"]["version"] if node.gpu else None,
        driver_package=package,
        keyring=_file("keyring", platform, "ubuntu", "use 24.04") if node.gpu else None,
        cuda=cuda,
        nccl=f"{_versions()['nccl']['version']}+cuda{cuda}" if node.gpu else None,
        fabric_manager=bool(node.fabric_manager),
        topology_name=node.topology,
        topology=_file("topology", node.topology, "size", "") if node.topology else None,
        mpi=chosen_mpi,
        mpi_file=mpi_file,
        nvme=bool(node.nvme),
    )


def _refuse(node: Size) -> None:
    if not node.drivers_known:
        known = ", ".join(one.name for one in catalogue() if one.drivers_known)
        raise InputError("size", node.name, "is not a size whose drivers are known", f"use one of {known}")
    if node.gpu_driver == "rocm":
        raise InputError(
            "size",
            node.name,
            "its GPUs need ROCm, for which no recipe exists",
            "use the marketplace image microsoft-dsvm:ubuntu-hpc:2204-rocm",
        )
    if node.connectx3:
        raise InputError(
            "size",
            node.name,
            "its ConnectX-3 Pro needs OFED 4.9, which today's Ubuntu kernels do not take",
            "use Standard_ND40rs_v2",
        )


def _file(component: str, platform: str, key: str, remedy: str) -> Download:
    found = _versions()[component]
    if platform not in found["files"]:
        known = ", ".join(found["files"])
        raise InputError(
            key, component, f"no source gives a file for {platform}", remedy or f"known are {known}"
        )
    return _download(found | found["files"][platform])


def _download(found: dict[str, Any]) -> Download:
    return Download(found.get("version", "unversioned"), found["url"], found.get("sha256"))


@cache
def _versions() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("versions.json").read_text("utf-8")
    versions: dict[str, Any] = json.loads(text)
    return versions
