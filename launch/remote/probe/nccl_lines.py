"""NCCL's lines about connections, at ``NCCL_DEBUG=INFO`` with the subsystems INIT and NET.

Forms by version (NVIDIA/nccl, src/transport/net.cc, coll_net.cc, net_ib.cc)::

    2.4-2.7   Ring 00 : 0[40] -> 8[40] [send] via NET/IB/0/GDRDMA
    2.8-2.12  Channel 00 : 0[40] -> 8[40] [send] via NET/IB/0/GDRDMA       bus ids
    2.13-2.17 Channel 00/0 : 0[40] -> 8[40] [send] via NET/IB/0/GDRDMA
    2.18-2.25 Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/0(3)/GDRDMA/Shared    (3): by rank 3
    2.26-     Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA(PCI)/Shared
    all       CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA
    2.21-     Channel 00/0 : 0[0] -> 4[0] via P2P/MNNVL              NVLink, between nodes of one rack

The network's name is IB, Socket or a plugin's: ``IBext...`` is that of the HPC images, which uses InfiniBand.
Ethernet devices are listed as ``/RoCE``. ``Using network IB`` proves nothing: it comes
before connections. ``GPU Direct RDMA Enabled`` is not printed since 2.30.

NCCL writes to C's stdout (src/debug.cc, ncclDebugLog), whose blocks of 4096 bytes several processes send into
one pipe: a message may begin in the middle of another's line, and a line may lack its end or its beginning.
What such a line says of a connection is unknown, unless it has the name of its network.
"""

from __future__ import annotations

import re

from launch.remote.probe.transport_fact import INFINIBAND, NVLINK, ROCE, TCP, TORN, Device, Fact

__all__ = ["MARK", "is_rest", "messages", "read"]

MARK = b"NCCL INFO"
"""In every line that :func:`read` reads."""
_LINE = re.compile(r"(\S*:\d+):\d+ \[-?\d+\] NCCL INFO (.*)")
_BEGIN = re.compile(r"[^\s/:()\[\]]*:\d+:\d+ \[-?\d+\] NCCL INFO ")
_CONNECTION = re.compile(
    r"(?:Channel|Ring|Coll|CollNet) \d+(?:/\d+)? : (\d{1,9})\S* (?:-> (\d{1,9})\S* )?\[(send|receive)\] "
    r"via (?:NET|COLLNET)/([^/]+)/(\d+)(\S*)"
)
_END = re.compile(r"(?:\(\d+\))?(?:/GDRDMA(?:\([\w-]+\))?)?(?:/Shared)?")
"""What may follow a connection's device. Anything else is the beginning of it, and another line's end."""
_DEVICES = re.compile(r"NET/\S+ ?: Using (\[0\].*)")
_DEVICE = re.compile(r"\[(\d+)\](?:=\{\[\d+\] )?([\w.-]+:\d+)/(IB|RoCE)\b")
_BEGUN = re.compile(r"(?:Channel|Ring|Coll|CollNet) \d+(?:/\d+)? : \d+\S* (?:->|\[)")
"""What the line of a connection begins with; the lines of rings and trees have no arrow."""
_REST = re.compile(r"\[(?:send|receive)\] via (?:NET|COLLNET)/")
_WITHIN_NODE = re.compile(r" via [PS]")
_WITHIN_RACK = " via P2P/MNNVL"
_OVER_INFINIBAND = re.compile(r" via (?:NET|COLLNET)/(?:IB|SHARP)")
_NETWORKS = {"IB": INFINIBAND, "SHARP": INFINIBAND, "Socket": TCP}
_PLUGIN = "IBext"


def messages(line: str) -> list[str]:
    """Return the messages in a line, each from its process's name on, after the rest of one without its
    beginning.

    >>> messages("n1:7:9 [0] NCCL INFO Chann1:8:10 [1] NCCL INFO Connected all rings")
    ['', 'n1:7:9 [0] NCCL INFO ', 'Chann1:8:10 [1] NCCL INFO Connected all rings']
    """
    begins = [0, *(found.start() for found in _BEGIN.finditer(line))]
    return [line[start:end] for start, end in zip(begins, [*begins[1:], len(line)])]  # noqa: B905  (Python 3.8)


def is_rest(text: str) -> bool:
    """Return whether a line without the beginning of a message is about a connection."""
    return _REST.search(text) is not None


def read(text: str) -> Fact | None:
    """Return what a message says; None where it is about something else, or torn behind a network's name.

    >>> read("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/2(5)/GDRDMA(PCI)/Shared")[:5]
    ('NCCL', 'InfiniBand', 'n1:7', ('2',), True)
    >>> read("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read")
    >>> read("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Sock").transport
    'torn'
    """
    line = _LINE.search(text)
    if line is None:
        return Fact("NCCL", TORN) if is_rest(text) else None
    process, words = line.groups()
    found = _CONNECTION.match(words)
    if found is not None:
        sender, receiver, way, network, number, rest = found.groups()
        name = INFINIBAND if network.startswith(_PLUGIN) else _NETWORKS.get(network, network)
        if name == INFINIBAND and not _END.fullmatch(rest):
            return None
        rank = int(sender if way == "send" or receiver is None else receiver)
        return Fact("NCCL", name, process, (number,), "/GDRDMA" in rest, rank=rank)
    return _other_connection(process, words) if _BEGUN.match(words) else _devices(process, words)


def _other_connection(process: str, words: str) -> Fact | None:
    """Return what a connection without a network, or with a torn one, is; None within a node."""
    if _WITHIN_RACK in words:
        return Fact("NCCL", NVLINK, process)
    is_known = _WITHIN_NODE.search(words) or _OVER_INFINIBAND.search(words)
    return None if is_known else Fact("NCCL", TORN, process)


def _devices(process: str, words: str) -> Fact | None:
    listed = _DEVICES.match(words)
    if listed is None:
        return None
    kinds = {"IB": INFINIBAND, "RoCE": ROCE}
    devices = tuple(Device(number, name, kinds[kind]) for number, name, kind in _DEVICE.findall(listed[1]))
    return Fact("NCCL", "", process, devices=devices) if devices else None
