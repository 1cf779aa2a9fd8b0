"""Which script a command runs: said where it is certain, and not otherwise."""

from __future__ import annotations

import pytest

from launch.job.plan import plan
from launch.job.spec import JobNode, JobSpec
from launch.launchers.script import script_of, script_on_nodes


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python train.py --config x.py", "train.py"),
        ("python3.11 -u -X dev -W ignore ./src/train.py", "src/train.py"),
        ("A=1 B='x y' /opt/env/bin/python train.py", "train.py"),
        ("python -m torch.distributed.launch --nproc_per_node 2 --use_env train.py a.py", "train.py"),
        ("accelerate launch --config_file c.yaml train.py", "train.py"),
        ("bash -x run.sh", "run.sh"),
        ("./run.sh", "run.sh"),
        ("pip install -r requirements.txt; python \\\n  train.py | tee log", "train.py"),
        ("python -m pip install . && python train.py", "train.py"),
        ("python -c 'import x' train.py", None),
        ("python -m pkg.main train.py", None),
        ("cd src && python train.py", None),
        ("echo 'print()' > train.py && python train.py", None),
        ("cp a.py train.py; python train.py", None),
        ("python $SCRIPT", None),
        ("python ~/train.py", None),
        ("python /opt/train.py", None),
        ("python ../train.py", None),
        ("python 'train.py", None),
        ("python -mpkg.main train.py", None),
        ("python - train.py", None),
        ("python -uW ignore train.py", "train.py"),
        ("python < train.py", None),
        ("bash -lc 'python train.py'", None),
        ("bash -c 'train.py'", None),
        ("bash -euo pipefail run.sh", "run.sh"),
        ("bash --rcfile env.sh run.sh", None),
        ("bash -l run.sh", None),
        ("source env.sh", None),
        (". ./env.sh", "env.sh"),
        ("train.py", None),
        ("2>err.py python train.py", None),
        ("torchrun -m pkg.train config.py", None),
        ("torchrun --no-python ./run.sh x.py", None),
        ("torchrun $ARGS train.py", None),
        ("torchrun -- train.py", "train.py"),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.py", "train.py"),
        ("horovodrun -np 2 python train.py", "train.py"),
        ("accelerate env train.py", None),
        ("hostname", None),
    ],
)
def test_which_script_a_line_runs(line: str, script: str | None) -> None:
    assert script_of(line) == script


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python /opt/train.py", "/opt/train.py"),
        ("echo a; LR=1 torchrun --nnodes 2 /opt/train.py", "/opt/train.py"),
        ("python train.py", "train.py"),
        ("pip install x && python /usr/local/x.py", None),
        ("git clone x /opt/x && python /opt/x/train.py", None),
        ("python $HOME/train.py", None),
    ],
)
def test_which_script_the_nodes_have_to_have(line: str, script: str | None) -> None:
    assert script_on_nodes(line) == script


@pytest.mark.parametrize(
    ("spec", "script"),
    [
        (JobSpec("t", "mpi", ("/opt/x.py",)), "/opt/x.py"),
        (JobSpec("t", "mpi", ("ls; bash /opt/x.sh",), shell=True), "/opt/x.sh"),
        (JobSpec("t", "mpi", ("python made.py",), shell=True, setup="touch made.py"), "made.py"),
        (JobSpec("t", "mpi", ("train.py",)), None),
    ],
)
def test_a_script_that_is_no_part_of_the_code_is_looked_for_by_the_nodes(
    spec: JobSpec, script: str | None
) -> None:
    planned = plan(spec, [JobNode("node000000", "10.0.0.4", 1)], size="Standard_HC44rs", remote="hash")
    assert planned.as_dict()["checks"].get("script") == script
