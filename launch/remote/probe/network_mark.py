"""A mark of what a node itself says about networks: a proof of transport holds while it stays the same."""

from __future__ import annotations

import os
from hashlib import blake2b

from launch.remote.base.files import expand_home, read_regular, which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LIBRARIES", "network_mark"]

LIBRARIES = (
    *("NCCL_", "UCX_", "I_MPI_", "FI_", "MPICH_", "MPIR_CVAR_", "HCOLL_", "SHARP_"),
    *("OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_coll", "OMPI_MCA_opal"),
    *("OPAL_PREFIX", "PMIX_MCA_", "PRTE_MCA_"),
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"),
    *("CUDA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"),
)
"""Beginnings of variables that choose the libraries, or what they use; not those of mpirun's own, which
differ from job to job."""
_OF_A_JOB = ("I_MPI_HYDRA_", "I_MPI_INFO_", "PMIX_MCA_", "PRTE_MCA_", "CUDA_VISIBLE_DEVICES")
"""Of these, what a launcher or the job itself sets."""
_FILES = (
    *("/etc/nccl.conf", "~/.nccl.conf"),
    *("/etc/openmpi/openmpi-mca-params.conf", "~/.openmpi/mca-params.conf"),
    *("/etc/ucx/ucx.conf", "~/ucx.conf", "~/.pam_environment", "/etc/environment"),
)
"""Settings that NCCL ("Environment Variables" of its user guide), Open MPI (FAQ "Run-time tuning"), UCX (FAQ
"Configuration file") and a login read."""
_MOST_BYTES = 1 << 20


def network_mark(inherited: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return a digest of the variables that a rank inherits on this node and that are not the job's ``own``,
    of the settings files, of the mpirun found first, and of the boot: after one, drivers may differ."""
    found = [
        f"{name}={value}"
        for name, value in sorted(inherited.items())
        if name not in own and name.startswith(LIBRARIES) and not name.startswith(_OF_A_JOB)
    ]
    found.append(os.path.realpath(which("mpirun", inherited.get("PATH", os.defpath))))
    for path in _FILES:
        try:
            data = read_regular(os.path.realpath(expand_home(path)), _MOST_BYTES)
            found.append(data.decode("utf-8", "backslashreplace"))
        except OSError as error:
            found.append(f"{path}: {error.errno}")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        found.append(file.read())
    return blake2b("\0".join(found).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
