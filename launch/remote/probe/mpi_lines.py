"""Lines about connections of the MPIs and of what they use: UCX, libfabric, Open MPI's own transports.

- UCX, at ``UCX_LOG_LEVEL=info``, prints every combination of transports that a process begins to use: until
  1.14 ``ep_cfg[3]: tag(rc_mlx5/mlx5_0:1)``, where combinations with memory are those within a node
  (openucx/ucx#3511, #9560), since then ``inter-node cfg#3 tag(...)`` (openucx/ucx#8699).
- Open MPI, at ``btl_base_verbose 10``: ``mca: bml: Using tcp btl for send to [[1,1],1] on node n1``.
  ``select: component ucx selected`` proves nothing: UCX may use TCP.
- libfabric's provider, of Intel MPI (``I_MPI_DEBUG=5``) and of MPICH (``MPIR_CVAR_DEBUG_SUMMARY=1``), is
  printed by rank 0 alone and holds for all ranks: endpoints of two providers cannot reach each other. ``mlx``
  is UCX, which prints its own lines.
"""

from __future__ import annotations

import re

from launch.remote.probe.transport_fact import INFINIBAND, TCP, Fact

__all__ = ["MARKS", "read"]

MARKS = ("UCX ", "mca: bml: Using", "libfabric provider: ")
"""One of them is in every line that :func:`read` reads."""
_UCX = re.compile(r"UCX +INFO +(?:ep_cfg\[\d+\]: ?|(?:\S+ +)?inter-node cfg#\d+ *)(.+)")
_LANES = re.compile(r"(?:tag|rma|amo|am|stream)\(([^)]*)\)")
_BTL = re.compile(r"mca: bml: Using (\S+) btl for send to \S+ on node (\S+)")
_PROVIDER = re.compile(r"(?:^|MPI startup\(\): )libfabric provider: (\S+)")
_OVER_INFINIBAND = ("rc", "dc", "ud")
_WITHIN_NODE = {"self", "memory", "cuda", "cuda_ipc", "rocm", "rocm_ipc", "gdr_copy", "xpmem", "knem", "cma"}


def read(text: str, node: str) -> Fact | None:
    """Return what a line of a rank on ``node`` says; None where it is about something else.

    >>> read("w.c:1912 UCX  INFO    ucp_context_0 inter-node cfg#2 tag(tcp/eth0)  rma(tcp/eth0)", "n0")[:2]
    ('UCX', 'TCP')
    >>> read("w.c:1720 UCX  INFO  ep_cfg[1]: tag(self/memory rc_mlx5/mlx5_0:1);", "n0")
    >>> read("[n0:1] mca: bml: Using vader btl for send to [[1,1],1] on node n0", "n0")
    """
    found = _UCX.search(text)
    if found is not None:
        return _of_ucx(found[1], is_any="ep_cfg" in text)
    found = _BTL.search(text)
    if found is not None:
        if found[2] == node:
            return None
        name = {"tcp": TCP, "openib": INFINIBAND}.get(found[1], found[1])
        return Fact("Open MPI", name)
    found = _PROVIDER.search(text)
    if found is None or found[1] == "mlx":
        return None
    core = found[1].partition(";")[0]
    known = {"verbs": INFINIBAND, "tcp": TCP, "sockets": TCP, "udp": TCP, "net": TCP}
    return Fact("libfabric", known.get(core, core), is_for_all=True)


def _of_ucx(words: str, *, is_any: bool) -> Fact | None:
    """Return what a combination of transports is; with ``is_any`` it may be one within a node."""
    lanes = [lane.partition("/")[::2] for lanes in _LANES.findall(words) for lane in lanes.split()]
    outward = [lane for lane in lanes if not _WITHIN_NODE.intersection(lane)]
    if not outward or (is_any and len(outward) < len(lanes)):
        return None
    others = [lane for lane in outward if not lane[0].startswith(_OVER_INFINIBAND)]
    transport = others[0][0] if others else INFINIBAND
    used = tuple(sorted({device for _, device in outward}))
    return Fact("UCX", TCP if transport == "tcp" else transport, used=used)
