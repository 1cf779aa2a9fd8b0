"""What measures which size, how its output is read, and what it is held to."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.health.bandwidth_programs import figure_of, program_of
from launch.remote.probe.mpi_ring import MARK

H100, V100, HB = "Standard_ND96isr_H100_v5", "Standard_ND40rs_v2", "Standard_HB120rs_v3"

# Output of nccl-tests 2.13 as its README shows it, columns shortened.
NCCL = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong
 17179869184    4294967296     float     sum      -1    71634  239.83  449.68    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 449.684
#
"""


def test_gpus_are_measured_by_nccl_tests_and_the_average_is_read() -> None:
    program = program_of(H100, None)
    spec = program.spec("/home/ada", "0" * 16)
    assert spec.command[0] == "/opt/nccl-tests/build/all_reduce_perf"
    assert spec.processes_per_node is None
    assert spec.env == {"NCCL_MNNVL_ENABLE": "0"}
    assert [found for line in NCCL.splitlines() if (found := program.read(line)) is not None] == [449.684]


def test_a_gpu_of_little_memory_gets_a_smaller_message() -> None:
    command = program_of(V100, None).command
    assert command[command.index("-b") + 1] == command[command.index("-e") + 1] == "8G"


def test_other_nodes_are_measured_by_the_ring_under_any_mpi() -> None:
    program = program_of(HB, None)
    spec = program.spec("/home/ada", "0" * 16)
    assert spec.mpi is None
    assert spec.command[3].startswith("/home/ada/.ranklift/remote/")
    assert program.read(f"{MARK}0.123") == 0.123
    assert program.read(f"{MARK}1.5e+01\n") == 15.0
    assert [program.read(text) for text in ("0.123", f"{MARK}1.2.3", f"{MARK}e", f"{MARK}nan")] == [None] * 4


def test_measuring_jobs_are_neither_looked_at_nor_probed() -> None:
    spec = program_of(HB, None).spec("/home/ada", "0" * 16)
    assert (spec.health, spec.probe) == ("off", False)
    assert spec.timeout_s is not None


def test_figures_are_for_what_they_were_measured_with() -> None:
    figure = figure_of(H100, program_of(H100, None))
    assert figure is not None
    assert (figure.expected, figure.warn, figure.report) == (450, 400, 300)
    assert "SHARP" in figure.source
    assert figure_of(H100, program_of(H100, "mpi")) is None
    assert figure_of(V100, program_of(V100, None)) is None
    assert figure_of("Standard_A0", program_of("Standard_A0", None)) is None


@pytest.mark.parametrize(
    ("size", "name"), [(HB, "nccl"), ("Standard_ND96isr_MI300X_v5", "nccl"), (HB, "imb")]
)
def test_a_program_that_cannot_measure_the_size_is_refused(size: str, name: str) -> None:
    with pytest.raises(InputError, match="--by"):
        program_of(size, name)
