"""What PyTorch prints because its flight recorder was asked, told from what a rank prints itself."""

from __future__ import annotations

import pytest

from launch.remote.debug.dump_lines import DumpLines
from tests.launch.fake_recorder import LINE

DUMP = LINE.format(rank=0).encode()
PREFIX = DUMP[: DUMP.index(b"ProcessGroupNCCL preparing")]


AT_INFO = PREFIX.replace(b":[E", b":[I")
RECORDER = b"[rank0]:[I1126 20:31:25.2 FlightRecorder.cpp:21] "
GLOG = b"E1126 20:31:25.213316 12345 ProcessGroupNCCL.cpp:1536] [PG ID 0 Rank 0] "


@pytest.mark.parametrize(
    "line",
    [
        DUMP,
        b"[default0]:" + DUMP,
        DUMP.replace(b"[rank0]:", b""),
        GLOG + b"ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1\n",
        AT_INFO + b"Dump signal received through pipe, triggering FR dump.\n",
        AT_INFO + b"ProcessGroupNCCL dumping nccl trace to /j/recorder/0\n",
        AT_INFO + b"Flight Recorder trace successfully dumped.\n",
        RECORDER + b"Writing Flight Recorder debug info to a static file name\n",
        RECORDER + b"Finished writing Flight Recorder debug info to /j/0\n",
        RECORDER.replace(b":[I", b":[E")
        + b"Error opening file for writing Flight Recorder debug info: /j/0\n",
        b"[rank0]:[I703 20:31:25.2 FlightRecorder.cpp:90] Finished writing NCCLPG debug info to /j/0\n",
    ],
)
def test_every_line_of_a_dump_is_pytorchs_own_wherever_it_is_cut(line: bytes) -> None:
    for cut in range(len(line)):
        lines = DumpLines()
        assert not lines.has_more(0, 2, line[:cut])
        assert not lines.has_more(0, 2, line[cut:]), cut


@pytest.mark.parametrize(
    "data",
    [
        b"step 201 loss 0.1\n",
        b"step 201\n" + DUMP,
        DUMP + b"step 201\n",
        b"\r 10%|###",
        b"50%|###" + DUMP,
        b".",
        b"[1/100] loss",
        b"[#####      ",
        b"I am at step 3",
        b"Epoch 3",
        b"E: 3",
        PREFIX + b"Received a dump signal due to a collective timeout from this local rank\n",
        PREFIX + b"Watchdog caught collective operation timeout\n",
        b"preparing to dump debug info\n",
        b"[rank0]: Traceback (most recent call last):\n",
    ],
)
def test_anything_else_is_the_ranks(data: bytes) -> None:
    assert DumpLines().has_more(0, 2, data)


def test_a_line_that_only_begins_like_pytorchs_counts_once_it_differs() -> None:
    lines = DumpLines()
    assert not lines.has_more(0, 2, PREFIX)
    assert lines.has_more(0, 2, b"Watchdog caught collective operation timeout\n")


def test_ranks_and_streams_have_lines_of_their_own() -> None:
    lines = DumpLines()
    assert not lines.has_more(0, 2, DUMP[:40])
    assert lines.has_more(1, 2, DUMP[40:])
    assert lines.has_more(0, 1, DUMP[40:])
    assert not lines.has_more(0, 2, DUMP[40:])


def test_output_after_a_bar_without_an_end_is_judged_by_itself() -> None:
    lines = DumpLines()
    assert lines.has_more(0, 2, b"\r 50%|#####     |")
    assert not lines.has_more(0, 2, DUMP)


def test_what_is_kept_of_a_line_is_bounded() -> None:
    lines = DumpLines()
    assert lines.has_more(0, 2, PREFIX + b"x" * 5000)
