"""The moment before the first rank on real nodes: what is refused there, and what is settled there."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.workplace import Ran, Workplace

pytestmark = pytest.mark.timeout(1200)

SUM = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {total.item():g}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Workplace:
    (cluster.own / "starting").mkdir()
    (cluster.own / "starting" / "needy.py").write_text("import horovod.torch\nprint('began')\n")
    (cluster.own / "starting" / "sum.py").write_text(SUM)
    return cluster


def launch(workplace: Workplace, *words: str, status: int | None = 0) -> Ran:
    return workplace.fab(*words, "--source", "starting", "--nodes", "0-1", status=status)


@pytest.mark.parametrize("kind", ["mpi", "torch"])
def test_a_framework_that_nodes_lack_is_named_with_all_of_them(code: Workplace, kind: str) -> None:
    ran = launch(code, f"launch.{kind}", "needy.py", status=255)
    assert "no rank was started: node[000000-000001]: python3 has no module horovod" in ran.err
    assert "began" not in ran.out


def test_every_tensorflow_task_knows_all_others(code: Workplace) -> None:
    line = "sh -c 'echo \"$TF_CONFIG\"; [ $RANK = 2 ] && exec sleep 3600; sleep 0.5'"
    ran = launch(code, "launch.tensorflow", line, "--workers", "2", "--parameter-servers", "1")
    result = dict(re.findall(r"^\[(\d) \S+\] (\{.*)$", ran.out, re.MULTILINE))
    cluster = {"worker": ["10.0.0.4:2222", "10.0.0.5:2222"], "ps": ["10.0.0.4:2223"]}
    tasks = [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}, {"type": "ps", "index": 0}]
    assert result == {
        str(rank): json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
        for rank, task in enumerate(tasks)
    }


def test_torchruns_nodes_meet_at_a_c10d_rendezvous_over_a_range(code: Workplace) -> None:
    ran = launch(code, "launch.torch", "sum.py", "--torchrun", "--nnodes", "1:2", "--nproc-per-node", "2")
    found = sorted(re.findall(r"rank (\d) of (\d) has (\d+)", ran.out))
    assert found == [(str(rank), "4", "10") for rank in range(4)]
