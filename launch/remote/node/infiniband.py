"""The InfiniBand ports of a node, to which its ranks' UCX and NCCL are bound.

Names differ between images and between nodes of one scale set: ``mlx5_ib0`` where Azure's naming service ran,
``mlx5_0`` where it did not (Azure/azhpc-images#491). Accelerated networking adds ``mlx5_an0``, an RDMA device
of the front-end Ethernet, which UCX and NCCL would take as well. So ports are chosen by their link layer.
"""

from __future__ import annotations

import os

from launch.remote.node.prepare import Unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["has_infiniband", "rank_defaults"]

_CLASS = "/sys/class/infiniband"
_ACTIVE = "4:"
"""Beginning of ``state`` of a port with a link; NCCL passes over all others (its net_ib.cc)."""
_OVER_INFINIBAND = ("all", "ib", "rc", "ud", "dc")
"""Beginnings of transports in ``UCX_TLS`` that can use InfiniBand (UCX, "FAQ", list of transports)."""


def rank_defaults(env: Mapping[str, str], folder: str = _CLASS) -> dict[str, str]:
    """Return ``UCX_NET_DEVICES`` and ``NCCL_IB_HCA`` for ranks of this node; ``env`` has what is set already.

    NCCL takes names for prefixes unless the list begins with ``=`` (its documentation of ``NCCL_IB_HCA``).
    With a ``UCX_TLS`` without InfiniBand, such as ``tcp``, UCX would find none of these devices and is left
    alone.

    Raise :class:`~launch.remote.node.prepare.Unfit` when no InfiniBand port is active, unless
    ``NCCL_IB_DISABLE`` says that this is wanted: NCCL and MPI would run over Ethernet, and nobody would know.
    """
    usable, found = [], []
    for device in _listed(folder):
        layer, state = (_read(f"{folder}/{device}/ports/1/{name}") for name in ("link_layer", "state"))
        found.append(f"{device} ({layer}, {state})")
        if layer == "InfiniBand" and state.startswith(_ACTIVE):
            usable.append(device + ":1")
    if not usable:
        if env.get("NCCL_IB_DISABLE") == "1":
            return {}
        raise Unfit(
            f"no active InfiniBand port in {folder}, and its VM size has InfiniBand; found: "
            f"{', '.join(found) or 'no device'}; `fab replace` the node, or launch with "
            "--env NCCL_IB_DISABLE=1 to do without InfiniBand"
        )
    ports = ",".join(usable)
    defaults = {"NCCL_IB_HCA": "=" + ports}
    transports = env.get("UCX_TLS")
    if transports is None or has_infiniband(transports):
        defaults["UCX_NET_DEVICES"] = ports
    return defaults


def has_infiniband(transports: str) -> bool:
    """Return whether a value of ``UCX_TLS`` has a transport for InfiniBand.

    A list that begins with ``^`` names what is left out; a backslash makes a name exact (``ucx_info -cf``).
    """
    names = [name.strip(" \\") for name in transports.lstrip(" ^").split(",")]
    if transports.lstrip().startswith("^"):
        return not {"all", "ib"}.intersection(names)
    return any(name.startswith(_OVER_INFINIBAND) for name in names)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder), key=lambda name: (len(name), name))  # mlx5_ib10 after mlx5_ib9
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY)  # open() takes four times as long
        try:
            return os.read(file, 64).decode("ascii", "replace").strip()
        finally:
            os.close(file)
    except OSError as error:
        return error.strerror or "unreadable"
