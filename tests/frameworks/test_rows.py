"""Each way in which the training guide starts a job: the framework itself, over several nodes.

A row's job is an example as it stands in ``examples/``. A framework that is missing fails its row.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.workplace import FABFILE, ROOT, Ran, Workplace

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

NODE = [f"node{number:06}" for number in range(4)]
TWICE_2 = [NODE[0], NODE[0], NODE[1], NODE[1]]
TWICE_3 = [*TWICE_2, NODE[2], NODE[2]]


@dataclass(frozen=True)
class Row:
    """An example, and what its job has to print at the end."""

    guide: str
    example: str
    exactly: dict[str, Any] = field(default_factory=dict)
    """Values of the result, among them where each rank ran, which only all ranks together know."""
    accuracy: float | None = None
    """At least."""
    losses_fall_to: float | None = None
    """The last is at most this, and less than half of the first."""
    says: str = ""
    """A pattern that is found in what was printed."""
    options: tuple[str, ...] = ()
    """Of ``fab launch``."""

    def __str__(self) -> str:
        return f"{self.guide}-{self.example.removesuffix('.yml').removesuffix('/job')}"


SMALL = (
    *("--nproc-per-node", "1", "--env", "OMP_NUM_THREADS=1", "--set", "inputs.batch_size=2"),
    *("--set", "inputs.image_size=32", "--set", "inputs.warm_up=1", "--set", "inputs.iters=2"),
    *("--set", "inputs.batches=1"),
)
"""What makes a benchmark of GPUs one of a processor here."""
TRAINED = {"nodes": NODE[:2], "equal_weights": True}
ROWS = [
    Row("A7", "resnet50/job.yml", TRAINED, says=r"Iter #1: [0-9.]+ img/sec per CPU", options=SMALL),
    Row("A7", "resnet50/horovod.yml", TRAINED, says=r"Iter #1: [0-9.]+ img/sec per CPU", options=SMALL),
    Row(
        "A7",
        "resnet50/tensorflow.yml",
        {"workers": 2, "equal_weights": True},
        says=r"Iter #1: [0-9.]+ img/sec per worker",
        options=SMALL[2:],  # a worker for each node
    ),
    Row(
        "G1",
        "mpi4py/job.yml",
        {"nodes": TWICE_3, "images": 1440},
        accuracy=0.93,
        says=r'"mpi": "Open MPI v4\.1',
    ),
    Row(
        "G1",
        "mpi4py/openmpi5.yml",
        {"nodes": TWICE_3, "images": 1440},
        accuracy=0.93,
        says=r'"mpi": "Open MPI v5\.',
    ),
    Row("G1", "mpi4py/mpich.yml", {"nodes": TWICE_3, "images": 1440}, accuracy=0.93, says=r'"mpi": "MPICH'),
    Row(
        "G1",
        "mpi4py/intelmpi.yml",
        {"nodes": TWICE_3, "images": 1440},
        accuracy=0.93,
        says=r'"mpi": "Intel\(R\) MPI',
    ),
    Row("G2", "horovod/job.yml", {"nodes": TWICE_3, "images": 1440}, accuracy=0.93),
    Row("G3", "deepspeed/job.yml", {"nodes": TWICE_2, "images": 1440}, accuracy=0.93),
    Row("G5 G6", "torch-per-process/job.yml", {"nodes": TWICE_2, "images": 1440}, accuracy=0.93),
    Row(
        "G7",
        "torch-arguments/job.yml",
        {
            "nodes": TWICE_2,
            "images": 455,
            "local_rank": [0, 1, 0, 1],
            "note": ['two  blanks, "quotes" and ünïcödé costs $5'] * 4,
        },
        accuracy=0.93,
    ),
    Row("G8", "torch-launch/job.yml", {"nodes": TWICE_2, "local_rank": [0, 1, 0, 1]}, losses_fall_to=0.55),
    Row("G8", "torchrun/job.yml", {"nodes": TWICE_2, "samples": 133}, accuracy=0.9),
    Row("G8", "torchrun/elastic.yml", {"samples": 133}, accuracy=0.9),
    Row("G9 a", "lightning/job.yml", {"nodes": TWICE_2, "steps": 48}, accuracy=0.93),
    Row("G9 b", "lightning/per-process.yml", {"nodes": TWICE_2, "steps": 48}, accuracy=0.93),
    Row("G9 c", "lightning-mpi/job.yml", {"nodes": TWICE_2, "steps": 48}, accuracy=0.93),
    Row(
        "G10",
        "transformers/job.yml",
        {"nodes": TWICE_2, "local_rank": [0, 1, 0, 1]},
        accuracy=0.8,
        losses_fall_to=1.0,
    ),
    Row(
        "G10",
        "transformers/per-process.yml",
        {"nodes": TWICE_2, "local_rank": [0, 1, 0, 1]},
        accuracy=0.8,
        losses_fall_to=1.0,
    ),
    Row("G11", "tensorflow-workers/job.yml", {"images": [480, 480, 480]}, accuracy=0.93),
    Row("G11", "tensorflow-parameter-servers/job.yml", accuracy=0.93, says="worker 1 of 2: loss from"),
    Row("G11", "tensorflow-chief/job.yml", accuracy=0.93, losses_fall_to=0.8),
]

FOR_EVERY_CHANGE = {
    "mpi4py/mpich.yml",
    "horovod/job.yml",
    "deepspeed/job.yml",
    "torchrun/job.yml",
    "lightning/job.yml",
    "tensorflow-workers/job.yml",
}
"""One of each environment that `make frameworks` makes and of each way ranks are started, in minutes."""


def cases() -> list[Any]:
    return [
        pytest.param(row, marks=[pytest.mark.for_every_change] * (row.example in FOR_EVERY_CHANGE))
        for row in ROWS
    ]


def result(ran: Ran) -> dict[str, Any]:
    """The JSON object that one rank printed in the end."""
    (found,) = re.findall(r"^\[\d+ node[0-9a-z]{6}\] (\{\".*\})$", ran.out, re.MULTILINE)
    answer: dict[str, Any] = json.loads(found)
    return answer


@pytest.mark.parametrize("row", cases(), ids=str)
def test_a_job_trains_with_all_its_ranks(cluster: Workplace, row: Row) -> None:
    ran = cluster.fab("launch", str(ROOT / "examples" / row.example), "--environment", "bare", *row.options)
    assert re.search(r"^job \S+ SUCCEEDED$", ran.err, re.MULTILINE), ran
    answer = result(ran)
    assert {name: answer.get(name) for name in row.exactly} == row.exactly
    if row.accuracy is not None:
        assert row.accuracy <= answer["accuracy"] <= 1
    if row.losses_fall_to is not None:
        first, last = answer["losses"]
        assert 0 < last <= row.losses_fall_to < first
        assert last < first / 2
    if row.example == "torchrun/elastic.yml":
        assert sorted(answer["nodes"]) == TWICE_2  # the rendezvous gives out the ranks
    if row.example.startswith("tensorflow-parameter"):
        assert answer["steps"] == [150, 150]
        assert "/job:ps/task:0" in answer["weights_on"]
    if row.example.startswith("tensorflow-chief"):
        assert (len(answer["steps"]), sum(answer["steps"])) == (2, 300)  # of either worker
        assert answer["weights_on"].startswith("/job:ps/")
    assert re.search(row.says, ran.out), ran


def test_resnet_50_trains_on_images_in_folders_as_imagenets(cluster: Workplace) -> None:
    """A7: ``examples/resnet50/images.yml`` with small images of its own making."""
    examples = ROOT / "examples" / "resnet50"
    cluster.run(sys.executable, str(examples / "make_images.py"), "imagenet")
    more = ("--set", f"inputs.images.path={cluster.own}/imagenet", "--set", "inputs.workers=0")
    ran = cluster.fab("launch", str(examples / "images.yml"), "--environment", "bare", *SMALL, *more)
    answer = result(ran)
    assert {name: answer[name] for name in TRAINED} == TRAINED, ran
    assert re.search(r"Iter #1: [0-9.]+ img/sec per CPU", ran.out), ran


def test_a_script_for_azure_mls_sdk_v1_trains_with_all_its_ranks(cluster: Workplace) -> None:
    """G12: as it stands in ``examples/``, run in a repository of the operator's."""
    folder = cluster.own.parent / "flowers"
    shutil.copytree(ROOT / "examples" / "run-configuration", folder)
    (folder / "fabfile.py").write_text(FABFILE)
    ran = cluster.run_v1(folder / "submit.py")
    assert ran.out.endswith("status: Completed\n"), ran
    answer = result(ran)
    assert (answer["nodes"], answer["local_rank"], answer["flowers"]) == (TWICE_2, [0, 1, 0, 1], 120)
    assert answer["accuracy"] >= 0.9
