"""NCCL, UCX and Open MPI settings of each size, as Microsoft's images and tests use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["FabricSettings", "fabric_settings"]


@dataclass(frozen=True, slots=True)
class FabricSettings:
    """Defaults for ranks; what the user or the node sets wins over ``env`` and ``files`` alike."""

    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Set only on nodes where the file exists: some images have it, some have not."""


_IMAGE_TOPOLOGIES = "/opt/microsoft"
_EVERY_SIZE = {"NCCL_SOCKET_IFNAME": "eth0"}
_GPUS = {
    **_EVERY_SIZE,
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "OMPI_MCA_coll_hcoll_enable": "0",
}
_GPUS_WITH_TOPOLOGY = {**_GPUS, "NCCL_IGNORE_CPU_AFFINITY": "1"}


def _topology(generation: str) -> Mapping[str, str]:
    return {"NCCL_TOPO_FILE": f"{_IMAGE_TOPOLOGIES}/{generation}-topo.xml"}


_V100 = FabricSettings({**_GPUS_WITH_TOPOLOGY, "NCCL_NET_GDR_LEVEL": "5"}, _topology("ndv2"))
_A100 = FabricSettings(
    {
        **_GPUS_WITH_TOPOLOGY,
        "NCCL_IB_PCI_RELAXED_ORDERING": "1",
        "NCCL_NET_GDR_LEVEL": "5",
        "UCX_IB_PCI_RELAXED_ORDERING": "on",
    },
    _topology("ndv4"),
)
_H100 = FabricSettings(
    {**_GPUS_WITH_TOPOLOGY, "NCCL_IB_PCI_RELAXED_ORDERING": "1", "NCCL_MIN_NCHANNELS": "32"},
    _topology("ndv5"),
)
_GRACE = FabricSettings({**_GPUS, "NCCL_NET_GDR_LEVEL": "5", "UCX_IB_GID_INDEX": "0"})

_BY_SIZE = {
    "standard_nd40rs_v2": _V100,
    "standard_nd96asr_v4": _A100,
    "standard_nd96amsr_a100_v4": _A100,
    "standard_nd96isr_h100_v5": _H100,
    "standard_nd96isr_h200_v5": _H100,
    "standard_nd128isr_ndr_gb200_v6": _GRACE,
    "standard_nd128isr_gb300_v6": _GRACE,
}


def fabric_settings(size: str) -> FabricSettings:
    """The size's settings; sizes without any of their own get the front-end interface's name alone.

    From azhpc-images ``tests/test-definitions.sh`` and ``customizations/*.sh``, azurehpc ``run_nccl_tests_*``
    and azurehpc-health-checks. Two things there are left out on purpose: ``UCX_TLS=tcp``, which those tests
    can afford because MPI only boots NCCL in them, and device names, which differ between images.

    >>> fabric_settings("Standard_ND40rs_v2").files
    {'NCCL_TOPO_FILE': '/opt/microsoft/ndv2-topo.xml'}
    >>> dict(fabric_settings("Standard_HC44rs").env)
    {'NCCL_SOCKET_IFNAME': 'eth0'}
    """
    return _BY_SIZE.get(size.lower(), FabricSettings(_EVERY_SIZE))
