"""A rank whose PyTorch has a flight recorder: it makes the pipe, and prints and writes, as PyTorch 2.11 does
with NCCL. No GPU is here.

Lines and times were seen with two ranks on one GPU. PyTorch looks at its pipe once a second
(``TORCH_NCCL_COORD_CHECK_MILSEC``).
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["LINE", "write_fake"]

LINE = (
    "[rank{rank}]:[E1126 20:31:25.213316968 ProcessGroupNCCL.cpp:1700] "
    "[PG ID 0 PG GUID 0(default_pg) Rank {rank}] ProcessGroupNCCL preparing to dump debug info. "
    "Include stack trace: 1, only active collectives: 0\n"
)
"""What PyTorch prints on stderr at its default level."""

_DISTRIBUTED = f"""\
import os, pickle, sys, threading, time
LINE = {LINE!r}
RANK = int(os.environ["RANK"])
count = 0

def init_process_group(backend):
    threading.Thread(target=_watch, daemon=True).start()

def all_reduce():
    global count
    count += 1
    if count > 200:
        while True:
            time.sleep(600)

def _watch():
    prefix = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
    if not prefix:
        return
    pipe = f"{{prefix}}{{RANK}}.pipe"
    if os.path.exists(pipe):
        os.unlink(pipe)
    try:
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        os.abort()  # as an exception in a thread of PyTorch's does
    while True:
        time.sleep(1.0)
        try:
            asked = os.read(reading, 128)
        except BlockingIOError:
            continue
        if asked:
            threading.Thread(target=_dump, daemon=True).start()

def _dump():
    os.write(2, LINE.format(rank=RANK).encode())
    time.sleep(float(os.environ.get("DUMP_TAKES", "4")))
    states = ["completed"] * 200 + ["started"] * (count - 200)
    entries = [
        {{"record_id": n, "collective_seq_id": n + 1, "p2p_seq_id": 0, "is_p2p": False,
          "profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg"), "state": state,
          "retired": state == "completed"}}
        for n, state in enumerate(states)
    ]
    with open(f"{{os.environ['TORCH_FR_DUMP_TEMP_FILE']}}{{RANK}}", "wb") as file:
        pickle.dump({{"version": "2.10", "entries": entries}}, file, protocol=2)
"""
_TRAIN = """\
import os, sys, time
sys.path.insert(0, os.path.abspath("site-packages"))
import torch.distributed as dist

def load_next_batch():
    time.sleep(600)

def main():
    dist.init_process_group("nccl")
    for step in range(10000):
        if step == 200 and os.environ["RANK"] == "1":
            load_next_batch()
        dist.all_reduce()

print("trains", flush=True)
main()
"""


def write_fake(folder: Path, version: str = "2.11.0+cu130") -> Path:
    """Write a script of ranks, of which rank 1 stays away from collective 201, and its PyTorch; return the
    script."""
    torch = folder / "site-packages/torch"
    (torch / "distributed").mkdir(parents=True)
    (torch / "lib").mkdir()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text(f"__version__ = {version!r}\ncuda = '12.8'\n")
    (torch / "lib/libtorch_python.so").write_bytes(b"\0sm_70 sm_80 sm_90\0")
    (torch / "distributed/__init__.py").write_text(_DISTRIBUTED)
    script = folder / "train.py"
    script.write_text(_TRAIN)
    return script
