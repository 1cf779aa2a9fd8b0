"""Evidence in the records of a job's output, however the records cut its lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from launch.remote.base.job_dir import Folder
from launch.remote.base.records import Plan
from launch.remote.probe.rank_stream import RankStream
from launch.remote.probe.torch_program import _write_lines_whole

IB = b"n%d:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
SOCKET = b"n0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
PLAN = {
    "health": {"mode": "strict", "promise": {"size": "Standard_ND40rs_v2", "hcas": 1}},
    "nodes": [{"name": f"node00000{rank}", "ranks": [{"rank": rank}]} for rank in range(2)],
}


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankStream:
    """That of a job with one rank on each of two nodes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = Folder("t-1")
    Path(folder.path).mkdir(parents=True)
    return RankStream(folder, cast("Plan", PLAN))


def found(stream: RankStream) -> list[tuple[str, str]]:
    """The verdict and the transport of each event of the job, once its output has ended."""
    stream.close()
    events = Path(Folder("t-1").path, "events.jsonl")
    lines = events.read_text().splitlines() if events.exists() else []
    return [(one["verdict"], one["transport"]) for one in map(json.loads, lines)]


@pytest.mark.parametrize("cut", range(1, len(SOCKET)))
def test_a_line_is_read_wherever_a_record_cuts_it(stream: RankStream, cut: int) -> None:
    stream.write(0, 0, 1, b"step 1\n" + SOCKET[:cut])
    stream.write(0, 0, 1, SOCKET[cut:] + b"step 2\n")
    assert found(stream) == [("refused", "TCP (NCCL)")]


def test_a_line_after_much_output_without_an_end_is_read(stream: RankStream) -> None:
    for _ in range(100):
        stream.write(0, 0, 1, b"\r 10 %" * 1000)
    stream.write(0, 0, 1, SOCKET)
    assert found(stream) == [("refused", "TCP (NCCL)")]


def test_infiniband_is_proven_by_lines_of_every_node(stream: RankStream) -> None:
    for rank in range(2):
        stream.write(rank, rank, 1, IB % rank)
    assert found(stream) == [("proven", "InfiniBand, 1 HCA a node, GPUDirect")]


def test_the_lines_of_one_node_prove_nothing_of_the_others(stream: RankStream) -> None:
    """As those of rank 0 alone, which many jobs let print them."""
    stream.write(0, 0, 1, IB % 0)
    assert found(stream) == []


LINES = 3000
PRINTS = f"""\
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from launch.remote.probe.torch_program import {_write_lines_whole.__name__} as whole
whole()
libc = ctypes.CDLL(None)
for number in range({LINES}):
    libc.puts(b"n0:" + sys.argv[2].encode() + b" [0] NCCL INFO Channel %d" % number)
"""


def test_lines_of_processes_that_share_a_pipe_come_whole() -> None:
    """As NCCL's in the processes of one node, which C would write in blocks."""
    root = str(Path(__file__).parents[4])
    shell = 'for n in 1 2 3 4; do "$0" -c "$1" "$2" $n:$n & done; wait'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable, PRINTS, root], stdout=subprocess.PIPE, check=True
    )
    lines = done.stdout.decode().splitlines()
    wanted = {f"n0:{n}:{n} [0] NCCL INFO Channel {number}" for n in range(1, 5) for number in range(LINES)}
    assert (len(lines), set(lines)) == (4 * LINES, wanted)
