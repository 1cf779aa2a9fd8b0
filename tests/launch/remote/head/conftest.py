"""What several test modules of the head use."""

from __future__ import annotations

from pathlib import Path

import pytest

TORCH = """\
import os
IB = "node%s:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/{device}/GDRDMA"
SOCKET = "node%s:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"
rank = os.environ["NODE_RANK"]
import sys, time
on = os.environ.get
if on("TORCH_HANGS"):
    time.sleep(600)
end = time.monotonic() + float(on("TORCH_IS_SLOW", "0"))
while time.monotonic() < end:
    pass
if on("TORCH_FAILS") == rank:
    sys.exit("NCCL Error 2: unhandled system error")
if on("TORCH_IS_SILENT") in (rank, "all"):
    os.environ.pop("NCCL_DEBUG", None)
if os.environ.get("NCCL_DEBUG") == "INFO":
    for device in range(2):
        print(IB.format(device=device) % rank)
    if os.environ.get("TORCH_FALLS_BACK") == rank:
        print(SOCKET % rank)

class Tensor:
    def __eq__(self, other): return self
    def all(self): return self
    def item(self): return True

class cuda:
    device_count = staticmethod(lambda: 0)
device, ones = (lambda *words: None), (lambda *words, **more: Tensor())
"""
DISTRIBUTED = """\
is_available = is_nccl_available = lambda: True
init_process_group = all_reduce = barrier = destroy_process_group = lambda *words, **more: None
"""
"""A torch whose NCCL is lines alone: no GPU is here."""


@pytest.fixture
def torch(tmp_path: Path) -> dict[str, str]:
    """Variables by which ranks get that torch; it claims NCCL in place of Gloo."""
    folder = tmp_path / "packages/torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(TORCH)
    (folder / "distributed.py").write_text(DISTRIBUTED)
    (folder.parent / "sitecustomize.py").write_text(
        "import builtins, sys\n"
        "write = sys.stdout.write\n"
        "sys.stdout.write = lambda text: write(text.replace('backend gloo', 'backend nccl'))\n"
    )
    return {"PYTHONPATH": str(folder.parent)}
