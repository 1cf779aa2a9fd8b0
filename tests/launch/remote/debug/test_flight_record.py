"""A rank's newest collective, as its flight recorder's file has it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from launch.remote.debug.flight_record import newest_collective, read_record, request_record
from launch.remote.debug.process_state import started_at


def entry(
    number: int, *, retired: bool = True, state: str = "scheduled", **more: object
) -> dict[str, object]:
    """An entry of the forms that PyTorch 2.15 writes for Gloo."""
    return {
        "record_id": number - 1,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": "gloo:all_reduce",
        "process_group": ["0", "default_pg"],
        "state": state,
        "retired": retired,
        "is_p2p": False,
        **more,
    }


RECORD = {"version": "2.10", "entries": [entry(1840), entry(1841, retired=False)]}
NEWEST = [{"sequence": 1841, "name": "gloo:all_reduce", "state": "scheduled", "group": "0"}]


@pytest.mark.parametrize("data", [json.dumps(RECORD).encode(), pickle.dumps(RECORD, protocol=2)])
def test_the_unfinished_collective_is_read(data: bytes) -> None:
    assert newest_collective(data) == NEWEST


def test_of_a_rank_that_has_finished_all_the_newest_is_read() -> None:
    record = {"entries": [entry(7, state="completed"), entry(6)]}
    assert newest_collective(json.dumps(record).encode())[0]["sequence"] == 7


def test_point_to_point_operations_do_not_count() -> None:
    record = {"entries": [entry(7), entry(9, retired=False, is_p2p=True)]}
    assert newest_collective(json.dumps(record).encode())[0]["sequence"] == 7


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch /tmp/ranklift-evil",))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\x80\x02", pickle.dumps({"entries": [Evil()]}), b'{"entries": [{}]}', b'{"entries": []}'],
)
def test_rubbish_is_nothing(data: bytes) -> None:
    assert newest_collective(data) == []
    assert not Path("/tmp/ranklift-evil").exists()


def test_the_file_is_found_by_the_ranks_own_variables(tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_text(json.dumps(RECORD))
    assert read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 3) == NEWEST
    assert read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 4) == []
    assert read_record({}, 3) == []


def test_the_file_of_an_earlier_job_is_not_the_ranks(tmp_path: Path) -> None:
    file = tmp_path / "trace_3"
    file.write_text(json.dumps(RECORD))
    environ = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    assert read_record(environ, 3, started_at(os.getpid())) == NEWEST
    os.utime(file, (1.0, 1.0))
    assert read_record(environ, 3, started_at(os.getpid())) == []


def test_a_rank_that_listens_is_asked_for_its_record(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe_3.pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        request_record({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_"}, 3)
        assert os.read(reading, 10) == b"1\n"
    finally:
        os.close(reading)
    request_record({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_"}, 3)  # nobody listens any more
