"""Programs that measure the bandwidth of a group of nodes, and the figure that their size reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from catalogue.size import Size
from catalogue.sizes import find
from launch.code.node_code import remote_id
from launch.errors import InputError
from launch.health.measurement import Figure
from launch.job.spec import JobSpec
from launch.remote.probe.mpi_ring import MARK

__all__ = ["PROGRAMS", "BandwidthProgram", "figure_of", "program_of"]

_ALL_REDUCE = "/opt/nccl-tests/build/all_reduce_perf"
"""Where Azure's HPC images have nccl-tests (azhpc-images, install_nccl.sh)."""
_NCCL_GIB = 16
"""What the sizes' figures were measured with."""
_RING_BYTES, _RING_S = 1 << 20, 2.0
_BITS = 8
_FIGURE = r"(\d+(?:\.\d*)?(?:e[+-]\d+)?)(?:\s|$)"
_RING_LINE = re.compile(re.escape(MARK) + _FIGURE)
_NCCL_LINE = re.compile(r"# Avg bus bandwidth\s*: " + _FIGURE)


@dataclass(frozen=True, slots=True)
class BandwidthProgram:
    """A program, and how it runs as a job."""

    name: str
    does: str
    command: tuple[str, ...]
    limit_s: float
    """Time for one measurement, from its start."""
    line: re.Pattern[str]
    """The line that has the figure, in GB/s."""
    processes_per_node: int | None = 1
    """None: one for each slot."""
    mpi: str | None = None
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def spec(self, home: str, snapshot: str) -> JobSpec:
        """Return the job; ``snapshot`` is its working folder, ``home`` that of the nodes' user."""
        return JobSpec(
            name="check",
            kind="mpi",
            command=tuple(
                word.replace("~", home, 1) if word.startswith("~/") else word for word in self.command
            ),
            processes_per_node=self.processes_per_node,
            mpi=self.mpi,
            env=self.env,
            snapshot=snapshot,
            timeout_s=self.limit_s,
            health="off",  # what a look finds is in the check's report
            probe=False,
            home=home,
        )

    def read(self, line: str) -> float | None:
        """Return the GB/s that a line of the first rank states; None for any other line."""
        found = self.line.search(line)
        return None if found is None else float(found[1])


def _ring(_size: Size | None) -> BandwidthProgram:
    return BandwidthProgram(
        name="mpi",
        does="one rank a node sends to the next around a ring, by the MPI that the nodes have",
        command=(
            *("python3", "-I", "-S", f"~/.ranklift/remote/{remote_id()}/__main__.py"),
            *("ring", str(_RING_BYTES), str(_RING_S)),
        ),
        limit_s=90.0,
        line=_RING_LINE,
    )


def _nccl(size: Size | None) -> BandwidthProgram:
    if size is None or not size.gpus or size.gpu_driver == "rocm":
        name = None if size is None else size.name
        raise InputError("--by", "nccl", f"needs NVIDIA's GPUs, which {name} has not", "give --by mpi")
    most = _NCCL_GIB if size.gpu_memory_gib is None else min(_NCCL_GIB, size.gpu_memory_gib // 4)
    return BandwidthProgram(
        name="nccl",
        does=f"all_reduce of {most} GiB over all GPUs, by the image's nccl-tests",
        command=(_ALL_REDUCE, *("-b", f"{most}G", "-e", f"{most}G", "-f", "2", "-g", "1", "-c", "0")),
        limit_s=300.0,
        line=_NCCL_LINE,
        processes_per_node=None,
        mpi="openmpi",  # what nccl-tests were built with
        env={"NCCL_MNNVL_ENABLE": "0"},  # the network, not the NVLink of a rack, is what is measured
    )


PROGRAMS: Mapping[str, Callable[[Size | None], BandwidthProgram]] = {"mpi": _ring, "nccl": _nccl}


def program_of(size: str, name: str | None) -> BandwidthProgram:
    """Return the program called ``name``; by default NCCL's for a size with NVIDIA's GPUs, else MPI's.

    >>> program_of("Standard_ND96isr_H100_v5", None).name, program_of("Standard_HB120rs_v3", None).name
    ('nccl', 'mpi')
    """
    row = find(size)
    if name is None:
        name = "nccl" if row is not None and row.gpus and row.gpu_driver != "rocm" else "mpi"
    if name not in PROGRAMS:
        raise InputError("--by", name, "is not a program that measures", f"use {' or '.join(PROGRAMS)}")
    return PROGRAMS[name](row)


def figure_of(size: str, program: BandwidthProgram) -> Figure | None:
    """Return what nodes of the size are known to reach by that program; None where no source says it.

    >>> figure_of("Standard_ND96isr_H100_v5", program_of("Standard_ND96isr_H100_v5", None)).warn
    400
    >>> figure_of("Standard_HB120rs_v3", program_of("Standard_HB120rs_v3", None)).expected
    25.0
    """
    row = find(size)
    if row is None:
        return None
    if program.name == "nccl" and row.allreduce_gbs is not None:
        limits = row.allreduce_warn_gbs, row.allreduce_report_gbs
        return Figure(row.allreduce_gbs, *limits, row.sources["allreduce_gbs"])
    if program.name == "mpi" and row.infiniband and row.hcas == 1 and row.hca_gbps is not None:
        return Figure(row.hca_gbps / _BITS, None, None, f"rate of its adapter: {row.sources['hca_gbps']}")
    return None
