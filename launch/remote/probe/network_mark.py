"""A mark of what a node itself says about networks: a proof of transport holds while it stays the same."""

from __future__ import annotations

import os
from glob import glob
from hashlib import blake2b
from itertools import islice

from launch.remote.base.files import expand_home, read_regular, which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LIBRARIES", "network_mark"]

LIBRARIES = (
    *("NCCL_", "UCX_", "I_MPI_", "FI_", "MPICH_", "MPIR_CVAR_", "HCOLL_", "SHARP_"),
    *("OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_coll", "OMPI_MCA_opal"),
    *("OMPI_MCA_mca_", "PMIX_MCA_mca_", "PRTE_MCA_mca_", "OPAL_PREFIX"),
    *("RDMAV_", "IBV_", "MLX5_", "PATH", "LD_", "PYTHON"),
    *("CUDA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"),
)
"""Beginnings of variables that choose the libraries, or what they use; not those of mpirun's own, which
differ from job to job."""
_OF_A_JOB = ("I_MPI_HYDRA_", "I_MPI_INFO_", "CUDA_VISIBLE_DEVICES")
"""Of these, what a launcher or the job itself sets."""
_FILES = (
    *("/etc/nccl.conf", "~/.nccl.conf", "/etc/ucx/ucx.conf", "~/ucx.conf"),
    *("/etc/openmpi/openmpi-mca-params.conf", "~/.openmpi/mca-params.conf"),
    *("~/.pmix/mca-params.conf", "~/.prte/mca-params.conf", "~/.pam_environment", "/etc/environment"),
)
"""Settings that NCCL ("Environment Variables" of its user guide), Open MPI (FAQ "Run-time tuning"), UCX (FAQ
"Configuration file") and a login read."""
_OF_A_PREFIX = ("etc/openmpi-mca-params.conf", "etc/ucx/ucx.conf", "etc/pmix-mca-params.conf")
_NAMED = ("NCCL_CONF_FILE", "OMPI_MCA_mca_base_param_files", "PMIX_MCA_mca_base_param_files")
"""Variables that name settings files."""
_PACKAGES = ("torch", "nvidia", "mpi4py", "usercustomize", "sitecustomize")
"""Of the packages that pip installs for one user: what trains, and what each start of Python runs."""
_MOST_BYTES, _MOST_NAMES = 1 << 20, 10_000


def network_mark(inherited: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return a digest of the variables that a rank inherits on this node and that are not the job's ``own``,
    of the settings files, of the mpirun found first, and of the boot: after one, drivers may differ."""
    found = [
        f"{name}={value}"
        for name, value in sorted(inherited.items())
        if name not in own and name.startswith(LIBRARIES) and not name.startswith(_OF_A_JOB)
    ]
    mpirun = os.path.realpath(which("mpirun", inherited.get("PATH", os.defpath)))
    prefix = inherited.get("OPAL_PREFIX") or os.path.dirname(os.path.dirname(mpirun))
    named = [path for name in _NAMED for path in inherited.get(name, "").replace(",", ":").split(":")]
    named += [f"{prefix}/{name}" for name in _OF_A_PREFIX]
    named.append(f"{inherited.get('UCX_CONFIG_DIR', '')}/ucx.conf")
    found.append(mpirun)
    found += [_content(path) for path in (*_FILES, *filter(None, named))]
    found += _packages(inherited.get("PYTHONUSERBASE") or "~/.local")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        found.append(file.read())
    return blake2b("\0".join(found).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _content(path: str) -> str:
    try:
        data = read_regular(os.path.realpath(expand_home(path)), _MOST_BYTES)
    except OSError as error:
        return f"{path}: {error.errno}"
    return data.decode("utf-8", "backslashreplace")


def _packages(base: str) -> list[str]:
    """Return the user's own packages that count, each with when it last changed."""
    found = []
    for folder in sorted(glob(f"{expand_home(base)}/lib/python*/site-packages")):
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_NAMES):
                if entry.name.startswith(_PACKAGES) or entry.name.endswith(".pth"):
                    changed = entry.stat(follow_symlinks=False).st_mtime_ns
                    found.append(f"{folder}/{entry.name} {changed}")
    return sorted(found)
