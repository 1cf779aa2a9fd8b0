"""A process and its connections, as /proc shows them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from launch.remote.debug.process_state import (
    environ_of,
    environ_rank,
    read_state,
    sockets_of,
    started_at,
    stuck_sockets,
    unsent_of,
)

STAT = (
    "93 (a) b) D 1 93 93 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 100 1 1 1 1 1 1 1 1 0 0 0 0 0 0 17 0 0 0 0"
)
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0500000A:1F90 0600000A:C350 01 00001000:00000000 01:00000014 00000006  1000        0 7001 1 0 20 4 30 10
   1: 0500000A:1F91 0700000A:C350 01 00001000:00000000 01:00000014 00000000  1000        0 7002 1 0 20 4 30 10
   2: 0500000A:0016 0800000A:C350 01 00000000:00000000 02:000A7214 00000000  1000        0 7003 1 0 20 4 30 10
   3: 0500000A:1F92 0900000A:C350 02 00000001:00000000 01:00000014 00000006  1000        0 7004 1 0 20 4 30 10
"""


def proc(folder: Path) -> str:
    """A /proc with process 93, which hangs in the kernel with two of the node's connections."""
    (folder / "93" / "fd").mkdir(parents=True)
    (folder / "net").mkdir()
    (folder / "93" / "stat").write_text(STAT)
    (folder / "93" / "status").write_text("Name:\\ta\nvoluntary_ctxt_switches:\t41\n")
    (folder / "93" / "wchan").write_text("nfs_wait_bit_killable")
    (folder / "93" / "environ").write_bytes(b"RANK=17\0A=b=c\0junk\0")
    for number, inode in enumerate((7001, 7002, 7004)):
        (folder / "93" / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
    (folder / "net" / "tcp").write_text(TCP)
    return str(folder)


def test_a_process_that_hangs_in_the_kernel(tmp_path: Path) -> None:
    state = read_state(93, proc(tmp_path))
    assert state is not None
    assert (state.name, state.state, state.kernel_function) == ("a) b", "D", "nfs_wait_bit_killable")
    assert (state.cpu_ms, state.switches) == (200 * 1000 // os.sysconf("SC_CLK_TCK"), 41)


def test_a_process_in_a_container_has_a_number_of_its_own_there(tmp_path: Path) -> None:
    folder = Path(proc(tmp_path))
    status = "Name:\ta\nNSpid:\t{}\nvoluntary_ctxt_switches:\t41\n"
    for inner, wanted in (("93", 93), ("93\t7", 7), ("93\t20\t1", 1)):
        (folder / "93/status").write_text(status.format(inner))
        state = read_state(93, str(folder))
        assert state is not None
        assert state.inner_pid == wanted
    own = read_state(os.getpid())
    assert own is not None
    assert own.inner_pid == os.getpid()


def test_its_variables(tmp_path: Path) -> None:
    environ = environ_of(93, proc(tmp_path))
    assert environ == {"RANK": "17", "A": "b=c"}
    assert environ_rank(environ) == 17
    for text in ("9" * 50, "²", "1²", "٣", "-1", " 1", ""):
        assert environ_rank({"RANK": text}) is None
    assert environ_of(94, str(tmp_path)) == {}


def test_connections_whose_data_is_sent_again(tmp_path: Path) -> None:
    stuck = stuck_sockets(proc(tmp_path))
    assert stuck == {"7001": {"address": "10.0.0.6", "port": 50000, "bytes": 4096, "retransmits": 6}}
    assert sockets_of(93, str(tmp_path)) == {"7001", "7002", "7004"}
    assert sockets_of(94, str(tmp_path)) == set()
    assert unsent_of({"7001", "7002"}, stuck) == [stuck["7001"]]
    assert unsent_of({"7002"}, stuck) == []


def test_processes_of_this_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            for sent, shown in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "S")):
                process.send_signal(sent)
                until = time.monotonic() + 10
                while (
                    (state := read_state(process.pid)) and state.state != shown and time.monotonic() < until
                ):
                    time.sleep(0.01)
                assert state is not None
                assert state.state == shown
        finally:
            process.kill()
    assert read_state(process.pid) is None


def test_a_processs_start_is_known_within_seconds() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert abs(started_at(process.pid) - time.time()) < 5
        finally:
            process.kill()
    assert started_at(1 << 22) == 0.0
