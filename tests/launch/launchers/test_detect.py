"""How a script is to be started, by its text and its command line."""

from __future__ import annotations

import pytest

from launch.launchers.detect import required_modules, runs_under, starts_own_processes


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import torch", ("torch",)),
        ("import os, torch.distributed as dist", ("torch",)),
        ("from tensorflow.keras import layers", ("tensorflow",)),
        ("import horovod.torch as hvd\nimport torch\nimport numpy as np", ("horovod", "numpy", "torch")),
        ("from mpi4py import MPI; import sklearn", ("mpi4py", "sklearn")),
        ("from . import torch", ()),
        ("from .torch import x", ()),
        ("import torchvision, json", ()),
        ("if 1:\n    import torch", ()),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", ()),
        ("def f():\n    import torch", ()),
        ("# -*- coding: utf-8 -*-\nimport torch", ("torch",)),
        ("print 'Python 2'\nimport torch", ()),
        ("import torch\0", ()),
        ("", ()),
    ],
)
def test_frameworks_that_are_imported_whatever_happens(source: str, modules: tuple[str, ...]) -> None:
    assert required_modules(source) == modules


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun --nnodes 2 train.py", "torchrun"),
        ("/opt/env/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.launch --nproc_per_node 4 train.py", "torch.distributed.launch"),
        ("python3.11 -u -m torch.distributed.run train.py", "torch.distributed.run"),
        ("python -W ignore -m torch.distributed.run train.py", "torch.distributed.run"),
        ("accelerate launch train.py", "accelerate launch"),
        ("pip install x && OMP_NUM_THREADS=4 torchrun train.py", "torchrun"),
        ("cd src; exec torchrun train.py", "torchrun"),
        ("pip install x\npython -m torch.distributed.launch train.py", "torch.distributed.launch"),
        ("(torchrun train.py)", "torchrun"),
        ("RATE=$LR torchrun train.py", "torchrun"),
        ("python -m \\\n  torch.distributed.run train.py", "torch.distributed.run"),
        ("conda run -n x torchrun train.py", "torchrun"),
        ("bash -c 'torchrun train.py'", "torchrun"),
        ("timeout 5 numactl -N 0 accelerate launch train.py", "accelerate launch"),
        (("torchrun", "train.py"), "torchrun"),
        (("python", "-m", "torch.distributed.launch", "a.py"), "torch.distributed.launch"),
    ],
)
def test_commands_that_start_a_nodes_processes(command: str, launcher: str) -> None:
    assert starts_own_processes(command) == f"{launcher} starts the processes of a node itself"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python train.py --launcher torchrun",
        "python train.py -m torch.distributed.launch",
        "echo torchrun",
        "python -m trainer",
        "python -m",
        "accelerate env",
        "conda run -n torchrun python train.py",
        "command -v torchrun",
        "deepspeed --version",
        "mpirun -np 8 all_reduce_perf; python train.py",
        "bash torchrun",
        "pip install x # torchrun",
        "echo 'it is open",
        "",
        ("python", "torchrun"),
        ("python", "a b; torchrun x.py"),
    ],
)
def test_commands_that_do_not(command: str) -> None:
    assert starts_own_processes(command) is None


def test_a_script_that_imports_lightning_does_unless_it_may_do_without() -> None:
    for source in (
        "import lightning as L",
        "from pytorch_lightning import Trainer",
        "import lightning.pytorch",
    ):
        reason = starts_own_processes("python train.py", source)
        assert reason is not None
        assert "Lightning" in reason
    assert starts_own_processes("python train.py", "if 0:\n    import lightning") is None
    assert starts_own_processes("python train.py", "import torch") is None


@pytest.mark.parametrize(
    ("python", "command", "known"),
    [
        ("python3", "python train.py", True),
        ("python3", "python3 -u train.py --x 1", True),
        ("python3", ("train.py", "--x"), True),
        ("python3", "LR=1 python train.py", True),
        ("python3", "RATE=$LR python train.py", True),
        ("python3", "echo begin; hostname && torchrun train.py", True),
        ("/opt/env", "python train.py", True),
        ("/opt/env", "accelerate launch train.py", True),
        ("python3.11", "python3.11 train.py", True),
        ("python3.11", ("train.py",), True),
        ("python3.11", "python train.py", False),
        ("python3.11", "torchrun train.py", False),
        ("python3", "pip install torch && python train.py", False),
        ("python3", "source /opt/env/bin/activate; python train.py", False),
        ("python3", "conda run -n env python train.py", False),
        ("python3", "/opt/env/bin/python train.py", False),
        ("python3", "/opt/env/bin/torchrun train.py", False),
        ("python3", "PATH=/opt/env/bin:$PATH python train.py", False),
        ("python3", "PYTHONPATH=libs python train.py", False),
        ("python3", "export PATH=/opt/env/bin:$PATH; python train.py", False),
        ("python3", "env PYTHONPATH=x python train.py", False),
        ("python3", "bash run.sh", False),
        ("python3", "echo train.py", False),
        ("python3", "'open", False),
        ("python3", "", False),
    ],
)
def test_whether_the_jobs_python_is_what_runs_the_script(
    python: str, command: str | tuple[str, ...], known: bool
) -> None:
    assert runs_under(python, command) is known
