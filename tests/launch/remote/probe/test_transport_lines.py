"""What NCCL, UCX and the MPIs print about the way between nodes, by version, and the verdict on it.

The first lines of each golden file say where its lines come from, and what was put together.
The version in its name is the source's where that states one, else one that prints this form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from launch.remote.base.health_records import Promise
from launch.remote.probe import nccl_lines
from launch.remote.probe.transport_verdict import Evidence, Seen, Verdict, read_line

GOLDEN = Path(__file__).parent / "golden"
_HOST = re.compile(r"(\S+?):\d+:\d+ \[|\[([\w-]+):\d+(?::\d+)?\]")
GPUDIRECT: Promise = {"size": "Standard_ND96isr_H100_v5", "hcas": 8, "gpudirect": 1}
PLAIN: Promise = {"size": "Standard_HB120rs_v3", "hcas": 1}
VERDICTS = {
    "nccl-2.10-socket-azureml": ("refused", "TCP (NCCL)"),
    "nccl-2.12-ib": ("proven", "InfiniBand, 2 HCAs a node, GPUDirect"),
    "nccl-2.18-roce": ("refused", "RoCE (NCCL)"),
    "nccl-2.18-socket-azureml": ("refused", "TCP (NCCL)"),
    "nccl-2.19-ib-without-gpudirect": ("refused", "InfiniBand without GPUDirect (NCCL)"),
    "nccl-2.20-no-libibverbs-azure": ("refused", "TCP (NCCL)"),
    "nccl-2.20-sharp-plugin": ("proven", "InfiniBand, 3 HCAs a node, GPUDirect"),
    "nccl-2.21-ib-v8": ("proven", "InfiniBand, 1 HCA a node, GPUDirect"),
    "nccl-2.21-roce-fused": ("refused", "RoCE (NCCL)"),
    "nccl-2.26-gdr-over-pci": ("proven", "InfiniBand, 2 HCAs a node, GPUDirect"),
    "nccl-2.28-assigned-plugin": ("unproven", ""),
    "ucx-1.10-ib": ("proven", "InfiniBand, 2 HCAs a node"),
    "ucx-1.12-tcp-over-ipoib": ("refused", "TCP (UCX)"),
    "ucx-1.15-intra-node": ("unproven", ""),
    "ucx-1.16-tcp": ("refused", "TCP (UCX)"),
    "ucx-1.19-efa": ("refused", "srd (UCX)"),
    "ucx-1.19-ib": ("proven", "InfiniBand, 4 HCAs a node"),
    "intelmpi-2019-sockets": ("refused", "TCP (libfabric)"),
    "intelmpi-2019-verbs": ("proven", "InfiniBand"),
    "intelmpi-2021-mlx": ("proven", "InfiniBand, 1 HCA a node"),
    "mpich-ofi-tcp": ("refused", "TCP (libfabric)"),
    "openmpi-4-btl": ("refused", "TCP (Open MPI)"),
}
"""By golden file, what is said of a size that promises InfiniBand, and GPUDirect where NCCL is used."""


def seen(lines: list[str]) -> list[Seen]:
    """The lines of use, each host being a node with one rank."""
    hosts: list[str] = []
    found = []
    for line in lines:
        match = _HOST.search(line)
        host = (match[1] or match[2]) if match else "n1"
        if host not in hosts:
            hosts.append(host)
        found += [Seen(hosts.index(host), host, line, fact) for fact in read_line(line, host)]
    return found


def seen_on(node: str, lines: Sequence[str]) -> list[Seen]:
    """The lines of use of one rank."""
    return [Seen(0, node, line, fact) for line in lines for fact in read_line(line, node)]


def judge(found: list[Seen], ranks: dict[int, str], promise: Promise) -> Verdict:
    evidence = Evidence(promise)
    for one in found:
        evidence.add(one)
    return evidence.verdict(ranks)


def verdict(lines: list[str], promise: Promise) -> Verdict:
    found = seen(lines)
    return judge(found, {one.rank: one.node for one in found} or {0: "n1"}, promise)


@pytest.mark.parametrize("name", VERDICTS)
def test_the_lines_of_every_version_have_their_verdict(name: str) -> None:
    lines = (GOLDEN / f"{name}.log").read_text().splitlines()
    assert lines[0].startswith("# ")
    found = verdict(lines, GPUDIRECT if name.startswith("nccl") else PLAIN)
    assert (found.verdict, found.transport) == VERDICTS[name]


def test_every_golden_file_has_a_verdict() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.log")) == sorted(VERDICTS)


IB = "{node}:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/{device}/GDRDMA"
SOCKET = "{node}:1:1 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Socket/0"


def test_what_mpi_uses_is_no_proof_for_nccl() -> None:
    lines = (GOLDEN / "ucx-1.19-ib.log").read_text().splitlines()
    shown = verdict(lines, {**PLAIN, "gpus": 8}).transport
    assert shown == "InfiniBand, 4 HCAs a node, by MPI: NCCL was not probed"


def test_one_socket_among_many_connections_refuses_all_and_is_named() -> None:
    lines = [IB.format(node=node, device=device) for node in ("n1", "n2") for device in range(8)]
    assert verdict(lines, GPUDIRECT).transport == "InfiniBand, 8 HCAs a node, GPUDirect"
    bad = SOCKET.format(node="n2")
    found = verdict([*lines, bad], GPUDIRECT)
    assert (found.verdict, found.node) == ("refused", "n2")
    assert found.reason == f"n2, rank 0: NCCL uses TCP between nodes: {bad}"
    assert [line["line"] for line in found.lines] == [bad]


def test_a_rank_that_shows_no_connection_where_others_do_fails_the_proof() -> None:
    found = judge(seen([IB.format(node="n1", device=0)]), {0: "n1", 1: "n2"}, PLAIN)
    assert (found.verdict, found.node, found.reason) == (
        "failed",
        "n2",
        "rank 1 on n2 has not shown a connection to another node, though others have",
    )


def test_without_any_line_there_is_nothing_to_prove_it_with() -> None:
    found = judge([], {0: "n1", 1: "n2"}, PLAIN)
    assert (found.verdict, found.reason) == (
        "unproven",
        "no rank has shown a connection to another node: their libraries print none that is known",
    )


def test_a_rank_that_reaches_others_over_nvlink_needs_no_connection_of_infiniband() -> None:
    lines = [
        IB.format(node="n1", device=0),
        "n2:1:1 [0] NCCL INFO Channel 00/0 : 4[0] -> 0[0] via P2P/MNNVL",
    ]
    assert judge(seen(lines), {0: "n1", 1: "n2"}, PLAIN).verdict == "proven"
    assert judge(seen(lines[1:]), {0: "n2"}, PLAIN).verdict == "unproven"


_BEFORE_NETWORK = "n1:1:1 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/"


@pytest.mark.parametrize(
    "length", range(len("n1:1:1 [0] NCCL INFO Channel 01/0 : 8[0] ->"), len(_BEFORE_NETWORK))
)
def test_a_torn_line_of_an_unknown_connection_fails_the_proof(length: int) -> None:
    """It may have been the one over TCP."""
    torn = _BEFORE_NETWORK[:length]
    found = verdict([IB.format(node="n1", device=0), torn], PLAIN)
    assert (found.verdict, found.node) == ("failed", "n1")
    assert "a line lacks a part, and its connection is unknown: n1:1:1 [0]" in found.reason


@pytest.mark.parametrize("start", [1, 8, 14, 20])
def test_a_connection_whose_line_lacks_its_beginning_fails_the_proof(start: int) -> None:
    rest = SOCKET.format(node="n1")[start:]
    found = verdict([IB.format(node="n1", device=0), rest], PLAIN)
    assert found.verdict in ("failed", "refused")


def test_what_one_rank_prints_of_all_holds_for_nodes_with_a_port_alone() -> None:
    """Rank 0 may print its provider before another node lists its ports."""
    provider = seen_on("n1", ("ranklift-probe: ports mlx5_ib0:1", "libfabric provider: verbs;ofi_rxm"))
    ranks = {0: "n1", 1: "n2"}
    with_port = [Seen(1, "n2", "", fact) for fact in read_line("ranklift-probe: ports mlx5_ib0:1", "n2")]
    without = [Seen(1, "n2", "", fact) for fact in read_line("ranklift-probe: ports", "n2")]
    assert judge([*provider, *with_port], ranks, PLAIN).verdict == "proven"
    for found in (judge([*provider, *without], ranks, PLAIN), judge(provider, ranks, PLAIN)):
        assert (found.verdict, found.node) == ("failed", "n2")


def test_gpudirect_is_asked_for_only_where_the_size_has_it() -> None:
    line = IB.format(node="n1", device=0).removesuffix("/GDRDMA")
    assert verdict([line], {**GPUDIRECT, "gpudirect": 0}).transport == "InfiniBand, 1 HCA a node"
    assert verdict([line], GPUDIRECT).verdict == "refused"


def test_a_device_of_the_front_end_network_is_not_infiniband() -> None:
    """Accelerated networking's device speaks RoCE, which UCX's line does not say."""
    ports = "ranklift-probe: ports mlx5_ib0:1"
    used = "[n1:1:0] w.c:1 UCX  INFO  ucp_context_0 inter-node cfg#1 tag(rc_mlx5/{}:1)"

    def found(*lines: str) -> Verdict:
        return judge(seen_on("n1", lines), {0: "n1"}, PLAIN)

    assert found(ports, used.format("mlx5_ib0")).verdict == "proven"
    assert found(ports, used.format("mlx5_an0")).transport == "RoCE (UCX)"


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("[n1:1:0] w.c:1 UCX  INFO  ucp_context_0 inter-node cfg#1 tag(rc_mlx5/mlx5_an0:1)", "UCX"),
        ("libfabric provider: verbs;ofi_rxm", "libfabric"),
        ("[n1:1] mca: bml: Using openib btl for send to [[1,1],1] on node n2", "Open MPI"),
    ],
)
def test_a_node_that_lists_no_port_of_infiniband_does_not_use_it(line: str, library: str) -> None:
    """Where all its InfiniBand ports are gone, RDMA goes over the front-end network's device."""
    found = judge(seen_on("n1", ("ranklift-probe: ports", line)), {0: "n1"}, PLAIN)
    assert (found.verdict, found.transport) == ("refused", f"RoCE ({library})")
    there = judge(seen_on("n1", ("ranklift-probe: ports mlx5_an0:1", line)), {0: "n1"}, PLAIN)
    assert there.verdict == "proven"


def test_a_message_that_begins_within_another_s_line_is_read() -> None:
    """NCCL's processes write blocks of 4096 bytes into one pipe: lines come torn and mixed."""
    half = "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET"
    assert verdict([half + SOCKET.format(node="n1")], GPUDIRECT).transport == "TCP (NCCL)"


@pytest.mark.parametrize("left", ["", "/", "/GDR", "/GDRDMA(P", "/GDRDMA/Sha"])
def test_a_connection_over_infiniband_that_is_torn_proves_and_refuses_nothing(left: str) -> None:
    """The lack of GPUDirect is seen by the end of a line, which a torn one does not have."""
    torn = f"n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0{left}"
    whole = IB.format(node="n1", device=3)
    (one,) = seen([torn + whole])
    assert (one.fact.used, one.fact.gpudirect) == (("3",), True)
    assert verdict([torn + whole], GPUDIRECT).verdict == "proven"


def test_a_device_that_no_process_of_the_node_has_listed_proves_nothing_beside_one_of_ethernet() -> None:
    listed = (
        "n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_an0:1/RoCE [1]mlx5_ib0:1/IB [RO]; OOB eth0:10.0.0.4<0>"
    )
    of_another = "n1:2:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 9[1] [send] via NET/IB/{}/GDRDMA"
    found = {device: verdict([listed, of_another.format(device)], GPUDIRECT) for device in range(3)}
    assert found[0].transport == "RoCE (NCCL)"
    assert found[1].transport == "InfiniBand, 1 HCA a node, GPUDirect"
    assert (found[2].verdict, found[2].transport) == ("unproven", "")


def test_what_is_kept_of_lines_is_bounded() -> None:
    evidence = Evidence(PLAIN)
    for process in range(200_000):
        line = f"n1:{process}:1 [0] NCCL INFO Channel 00/0 : {process}[0] -> 8[0] [send] via NET/IB/0"
        for fact in (
            nccl_lines.read(line),
            nccl_lines.read(SOCKET.format(node="n1")) if process > 199_990 else None,
        ):
            if fact is not None:
                evidence.add(Seen(0, "n1", line * 40, fact))
    assert len(evidence._connections) == 1 << 17
    assert all(len(one.line) <= 500 for one in evidence._connections)
    assert evidence.verdict({}).transport == "TCP (NCCL)"  # it comes after all that is kept


def test_gloo_is_reported_as_tcp() -> None:
    found = verdict(["ranklift-probe: backend gloo"], PLAIN)
    assert (found.verdict, found.transport) == ("refused", "TCP (Gloo)")


@pytest.mark.parametrize(
    "line",
    [
        "loss 0.5, via NET/Socket/0",
        "n1:1:1 [0] NCCL INFO GPU Direct RDMA Enabled for HCA 0",
        "n1:1:1 [0] NCCL INFO Using network IB",
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "[n1:1] select: component ucx selected",
        "[0] MPI startup(): libfabric provider: mlx",
        "ranklift-probe: backend nccl",
        "ranklift-probe: ",
    ],
)
def test_lines_that_prove_nothing_are_passed_over(line: str) -> None:
    assert read_line(line, "n1") == []


def test_a_rank_of_thousands_of_digits_ends_no_probe() -> None:
    line = f"n:1:1 [0] NCCL INFO Channel 00/0 : {'9' * 5000}[0] -> 1[0] [send] via NET/IB/0"
    assert nccl_lines.read(line) is not None
