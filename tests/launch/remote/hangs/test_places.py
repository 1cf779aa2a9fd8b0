"""Where a stack is: in which collective, called at which line of the user's."""

from __future__ import annotations

import pytest

from launch.remote.debug.debug_records import StackFrame
from launch.remote.hangs.places import NOWHERE, place_of
from launch.remote.hangs.stack_folding import fold_stacks, format_ranks
from tests.launch.remote.hangs.hanging_ranks import Job, all_reduce, broadcast, frame, loading

SITE = "/opt/venv/lib/python3.11/site-packages/"


def library(function: str, file: str) -> StackFrame:
    return frame(function, SITE + file, 10)


CASES: dict[str, tuple[list[StackFrame], tuple[str, str]]] = {
    "a collective of torch's": (all_reduce(), ("all_reduce", "train.py:88")),
    "inside of another function of torch's": (
        [
            library("barrier", "torch/distributed/distributed_c10d.py"),
            library("wrapper", "torch/distributed/c10d_logger.py"),
            frame("main", line=5),
        ],
        ("barrier", "train.py:5"),
    ),
    "the gradients' collective": (
        [
            library("_engine_run_backward", "torch/autograd/graph.py"),
            library("backward", "torch/_tensor.py"),
            frame("main", line=7),
        ],
        ("backward", "train.py:7"),
    ),
    "Horovod's": (
        [library("synchronize", "horovod/torch/mpi_ops.py"), frame("main", line=8)],
        ("synchronize", "train.py:8"),
    ),
    "TensorFlow's": (
        [library("quick_execute", "tensorflow/python/eager/execute.py"), frame("main", line=9)],
        ("quick_execute", "train.py:9"),
    ),
    "mpi4py's, by the user's own line": (
        [frame("main", line=3, text="total = world.allreduce(value)")],
        ("allreduce", "train.py:3"),
    ),
    "a tensor's, for which the GPU has to end": (
        [frame("main", line=3, text="print(loss.item())")],
        ("item", "train.py:3"),
    ),
    "start-up": (
        [
            library("rendezvous_handler", "torch/distributed/rendezvous.py"),
            library("init_process_group", "torch/distributed/distributed_c10d.py"),
            frame("main", line=2),
        ],
        ("init_process_group", "train.py:2"),
    ),
    "data": (loading(), ("", "train.py:60")),
    "sleep": ([frame("main", line=4, text="time.sleep(3)")], ("", "train.py:4")),
    "a library alone": ([library("run", "lightning/pytorch/loops/loop.py")], ("", "")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_place_of(name: str) -> None:
    frames, (operation, line) = CASES[name]
    found = place_of(frames)
    assert (found.operation, found.line) == (operation, line)


def test_no_frames_are_nowhere() -> None:
    assert place_of([]) == NOWHERE
    assert NOWHERE.text == "no Python code"


def test_a_library_function_is_named_with_its_file() -> None:
    assert place_of(loading()).text == "__next__ of torch/utils/data/dataloader.py at train.py:60"


def test_equal_stacks_are_one() -> None:
    job = Job(64)
    job.puts(17, broadcast())
    job.main(18).update({"threads": [], "problem": "Permission denied"})
    folds = fold_stacks(job.facts)
    assert [(format_ranks(fold.ranks), len(fold.frames), fold.why) for fold in folds] == [
        ("ranks 0-16,19-63", 3, ""),
        ("rank 17", 3, ""),
        ("rank 18", 0, "Permission denied"),
    ]
