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
    ("source", "files", "modules"),
    [
        ("import net", {"net.py": "import torch"}, ("torch",)),
        ("from net import Net", {"net.py": "import torch"}, ("torch",)),
        (
            "import net.small",
            {"net/__init__.py": "import numpy", "net/small.py": "import torch"},
            ("numpy", "torch"),
        ),
        ("from net import small", {"net/__init__.py": "", "net/small.py": "import torch"}, ("torch",)),
        ("from net import small", {"net/__init__.py": "small = 1"}, ()),
        ("import net.small", {"net/small.py": "import torch"}, ("torch",)),
        (
            "import net",
            {"net/__init__.py": "from .small import x", "net/small.py": "import torch"},
            ("torch",),
        ),
        (
            "import net",
            {"net/__init__.py": "from . import small", "net/small.py": "import torch"},
            ("torch",),
        ),
        (
            "import net.deep.a",
            {
                "net/__init__.py": "",
                "net/deep/__init__.py": "",
                "net/deep/a.py": "from ..b import c",
                "net/b.py": "import torch",
            },
            ("torch",),
        ),
        (
            "import a",
            {"a.py": "import b\nimport numpy", "b.py": "import a\nimport torch"},
            ("numpy", "torch"),
        ),
        ("import train", {"train.py": "import torch"}, ()),
        ("import torch", {"torch.py": "import numpy"}, ("numpy",)),
        ("import torch.nn", {"torch/nn.py": "import numpy"}, ("torch",)),
        ("import net, torch", {"net.py": "print 'Python 2'"}, ("torch",)),
        ("import net", {"net.py": "from ..torch import x\nfrom . import numpy"}, ()),
        ("import net", {"net.py": "try:\n    import torch\nexcept ImportError:\n    torch = None"}, ()),
        (
            "import net",
            {"net.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"},
            (),
        ),
        ("try:\n    import net\nexcept ImportError:\n    net = None", {"net.py": "import torch"}, ()),
        ("from .net import Net", {"net.py": "import torch"}, ()),
    ],
)
@pytest.mark.parametrize("folder", ["", "src/"])
def test_frameworks_that_modules_of_the_code_import_count_too(
    source: str, files: dict[str, str], modules: tuple[str, ...], folder: str
) -> None:
    code = {f"{folder}{path}": text for path, text in files.items()}
    assert required_modules(source, f"{folder}train.py", code.get) == modules


def test_modules_that_lie_elsewhere_than_beside_the_script_are_not_taken_for_imported_ones() -> None:
    assert required_modules("import net", "src/train.py", {"net.py": "import torch"}.get) == ()


def test_a_large_code_is_followed_as_far_as_a_launch_can_wait_for() -> None:
    chain = {f"m{number}.py": f"import m{number + 1}" for number in range(10_000)}
    reads: list[str] = []

    def read(path: str) -> str | None:
        reads.append(path)
        return chain.get(path)

    assert required_modules("import m0\nimport torch", "train.py", read) == ("torch",)
    assert len(reads) < 1000
    reads.clear()
    chain = {f"m{number}.py": "#" * (1 << 20) for number in range(100)}
    imports = "\n".join(f"import m{number}" for number in range(100))
    assert required_modules(f"{imports}\nimport torch", "train.py", read) == ("torch",)
    assert len(reads) < 20


def test_links_of_one_import_that_multiply_a_module_are_followed_as_far_too() -> None:
    reads: list[str] = []

    def read(path: str) -> str | None:
        reads.append(path)
        return "" if path == "net/__init__.py" else "#" * 100_000

    names = ", ".join(f"m{number}" for number in range(3000))
    assert required_modules(f"from net import {names}\nimport torch", "train.py", read) == ("torch",)
    assert len(reads) < 30


@pytest.mark.parametrize(
    "source",
    [
        "\n".join(f"import m{number}." + "a." * 800 + "a" for number in range(120)),
        "from net import " + ", ".join(f"m{number}" for number in range(30_000)),
        "from net." + "a." * 400 + "a import " + "x, " * 50_000 + "x",
    ],
    ids=["deep", "wide", "deep and wide"],
)
def test_names_that_lead_nowhere_are_looked_for_as_far_as_a_launch_can_wait_for(source: str) -> None:
    characters = 0

    def read(path: str) -> str | None:
        nonlocal characters
        characters += len(path)
        return "" if path == "net/__init__.py" else None

    assert required_modules(f"{source}\nimport torch", "train.py", read) == ("torch",)
    assert characters < 3_000_000


def test_a_script_and_modules_that_are_very_large_are_not_parsed() -> None:
    source = "import torch\n" + "#" * (256 << 10)
    assert required_modules(source) == ()
    assert required_modules("import net, numpy", "train.py", {"net.py": source}.get) == ("numpy",)
    assert required_modules("import torch, numpy", "train.py", {"torch.py": source}.get) == ("numpy",)


@pytest.mark.parametrize("dot", [".", " . ", ".\\\n"])
def test_a_script_with_a_name_of_endless_length_is_not_parsed(dot: str) -> None:
    assert required_modules(f"import torch, {dot.join('a' * 50_000)}") == ()
    assert required_modules(f"import torch, {dot.join('a' * 500)}") == ("torch",)


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
