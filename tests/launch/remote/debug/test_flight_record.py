"""A rank's newest collective, as its flight recorder's file has it."""

from __future__ import annotations

import json
import os
import pickle
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.remote.debug.bounded import NotRead
from launch.remote.debug.flight_record import newest_collective, read_record, request_record
from launch.remote.debug.process_state import started_at
from tests.launch.remote.debug.hostile_records import HOSTILE


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


def test_texts_of_a_record_are_printable() -> None:
    hostile = entry(7, profiling_name="\x1b]0;x\x07\u202e", state="\ud800\r\n", process_group=["\x9b2J"])
    (found,) = newest_collective(json.dumps({"entries": [hostile]}).encode())
    assert found == {"sequence": 7, "name": "?]0;x??", "state": "???", "group": "?2J"}


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch /tmp/ranklift-evil",))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\x80\x02", pickle.dumps({"entries": [Evil()]}), b'{"entries": [{}]}', b'{"entries": 3}'],
)
def test_rubbish_is_not_a_record(data: bytes) -> None:
    with pytest.raises(NotRead, match="not a flight record"):
        newest_collective(data)
    assert not Path("/tmp/ranklift-evil").exists()


def test_a_record_without_entries_has_no_collective() -> None:
    assert newest_collective(b'{"entries": []}') == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record_costs_its_time_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "trace_3").write_bytes(HOSTILE[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    with pytest.raises(NotRead, match=f"rank 3's flight record '{tmp_path}/trace_3'"):
        read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 3, seconds=0.5)
    assert time.monotonic() - begun < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _written_fifo(path: Path) -> None:
    os.mkfifo(path)
    held.append(os.open(path, os.O_RDWR))  # a reader does not see its end


def _link(path: Path) -> None:
    (path.parent / "other").write_text(json.dumps(RECORD))
    path.symlink_to(path.parent / "other")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(path))


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


held: list[int] = []


@pytest.fixture
def _nothing_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # a socket's path has 108 bytes
    yield
    while held:
        os.close(held.pop())


@pytest.mark.usefixtures("_nothing_held")
@pytest.mark.parametrize(
    ("place", "why"),
    [
        (_fifo, "is not a regular file"),
        (_written_fifo, "is not a regular file"),
        (_socket, "No such device or address"),
        (os.mkdir, "is not a regular file"),
        (_link, "is a symbolic link"),
        (_endless, "is a symbolic link"),
        (_sparse, "has more than 16 MiB"),
    ],
)
def test_what_is_not_a_file_of_the_ranks_is_named(
    place: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    place(tmp_path / "trace_3")
    begun = time.monotonic()
    with pytest.raises(NotRead, match=f"rank 3's flight record '{tmp_path}/trace_3'.* {why}"):
        read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 3)
    assert time.monotonic() - begun < 5


def test_another_users_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace_3").write_text(json.dumps(RECORD))
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(NotRead, match=f"belongs to the user {owner}"):
        read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 3)


def test_without_time_left_no_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(NotRead, match="no time left"):
        read_record({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}, 3, seconds=0.0)


def test_a_file_in_place_of_the_pipe_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "pipe_3.pipe"
    file.write_text("mine")
    request_record({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_"}, 3)
    assert file.read_text() == "mine"


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
