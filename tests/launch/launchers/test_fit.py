"""What a command says of nodes, held against the job."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.launchers.fit import fitted
from launch.launchers.launches import launches

STATIC = "--nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
C10D = (
    "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --rdzv-id $RANKLIFT_JOB_ID "
    "--rdzv-conf is_host=$AZ_BATCH_IS_CURRENT_NODE_MASTER --local-addr $RANKLIFT_NODE_ADDR"
)
ACCELERATE = "--num_machines 2 --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR"


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT train.py",
        "torchrun --nnodes $AZUREML_NODE_COUNT --node-rank $NODE_RANK --master-addr $MASTER_ADDR train.py",
        'torchrun --nnodes="$(wc -l < hosts)" --node-rank $NODE_RANK --master-addr $MASTER_ADDR train.py',
        "torchrun --nnodes `wc -l < hosts` --node-rank $NODE_RANK --master-addr $MASTER_ADDR train.py",
        "torchrun --nproc_per_node $(ls x|wc -l) --node-rank $NODE_RANK --nnodes 2 --master-addr 10.0.0.4 a",
        "torchrun $ARGS train.py",
        "torchrun --nproc_per_node 2 ${ARGS[@]} train.py",
        "PET_NNODES=2 torchrun --node_rank $NODE_RANK --master_addr $MASTER_ADDR train.py",
        "PET_RDZV_BACKEND=$BACKEND torchrun --nnodes 2 train.py",
        "if [ $NODE_RANK = 0 ]; then torchrun prepare.py; fi",
        '[[ "$RANK" == 0 ]] && torchrun prepare.py',
        "test $AZ_BATCHAI_TASK_INDEX -eq 0 && mpirun -np 4 -H a,b hostname",
        "case $(hostname) in node0) deepspeed train.py;; esac",
        f"accelerate launch {ACCELERATE} --num_processes 4 train.py",
        "accelerate launch --config_file /home/azureuser/2nodes.yaml train.py",
        "accelerate launch --config_file node$NODE_RANK.yaml train.py",
        "deepspeed --no_ssh --node_rank $NODE_RANK --hostfile hosts train.py",
        "deepspeed $ARGS train.py",
        "python train.py --nnodes 4 --standalone",
        "echo torchrun; python train.py # torchrun train.py",
        "command -v torchrun && python train.py",
        "mpirun --version; python train.py > log_$RANK",
        "torchrun --help",
        "cat > run.sh <<END\ntorchrun train.py\nEND\npython train.py",
        "./launch.sh torchrun train.py",
        "bash run.sh",
        "torchrun 'open",
    ],
)
@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_what_fits_or_cannot_be_known_is_passed_on(line: str, kind: str) -> None:
    found = fitted("command", line, 2, kind, {})
    assert (found.command, found.notices) == (line, ())


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node 2 train.py",
        "torchrun --standalone --nproc_per_node 2 train.py",
        "torchrun --nnodes 1 --node_rank 0 train.py",
        "python -m torch.distributed.launch --nproc_per_node 2 --use_env train.py",
        "accelerate launch --num_processes 2 train.py",
        "accelerate launch --num_machines 1 --machine_rank 0 train.py",
        "deepspeed --num_gpus 2 train.py",
        "deepspeed --hostfile hosts train.py",
        "horovodrun -np 4 -H localhost:4 python train.py",
        "mpirun -np 2 python train.py",
        "srun -N 1 python train.py",
    ],
)
def test_on_one_node_a_launcher_needs_nothing(line: str) -> None:
    assert fitted("command", line, 1, "pytorch", {}).command == line


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("torchrun --nproc_per_node 2 train.py", "torchrun @ --nproc_per_node 2 train.py"),
        ("torchrun  --nproc-per-node=2 \\\n  a.py", "torchrun @  --nproc-per-node=2 \\\n  a.py"),
        ("torchrun train.py --nnodes 4", "torchrun @ train.py --nnodes 4"),
        ("torchrun -m pkg.train --nnodes 4", "torchrun @ -m pkg.train --nnodes 4"),
        ("/opt/env/bin/torchrun a.py", "/opt/env/bin/torchrun @ a.py"),
        ("python -u -m torch.distributed.run a.py", "python -u -m torch.distributed.run @ a.py"),
        ("python -um torch.distributed.launch a.py", "python -um torch.distributed.launch @ a.py"),
        ("python /opt/env/bin/torchrun a.py", "python /opt/env/bin/torchrun @ a.py"),
        ("cd x && LR=1 torchrun a.py | tee 'a b'", "cd x && LR=1 torchrun @ a.py | tee 'a b'"),
        ("[ -d data ] || unzip data; torchrun a.py", "[ -d data ] || unzip data; torchrun @ a.py"),
        ("torchrun a.py && torchrun b.py", "torchrun @ a.py && torchrun @ b.py"),
        ("(torchrun a.py)", "(torchrun @ a.py)"),
        ("hostname > $RANK.log; torchrun a.py", "hostname > $RANK.log; torchrun @ a.py"),
        ("[ -d $RANKLIFT_OUTPUT_DIR ] || torchrun a", "[ -d $RANKLIFT_OUTPUT_DIR ] || torchrun @ a"),
        ("cat > a <<'X'\ntorchrun\nX\ntorchrun a", "cat > a <<'X'\ntorchrun\nX\ntorchrun @ a"),
        ("for i in 1 2; do torchrun a.py; done", "for i in 1 2; do torchrun @ a.py; done"),
        ("conda run --no-capture-output -n x torchrun a", "conda run --no-capture-output -n x torchrun @ a"),
        ("env -u A B=c nohup torchrun a.py &", "env -u A B=c nohup torchrun @ a.py &"),
        ("time timeout -k 5 -s INT 1h torchrun a.py", "time timeout -k 5 -s INT 1h torchrun @ a.py"),
        ("numactl -N 0 --membind=0 torchrun a.py", "numactl -N 0 --membind=0 torchrun @ a.py"),
        ("nsys profile -o out -w true torchrun a.py", "nsys profile -o out -w true torchrun @ a.py"),
        ("exec sudo -E torchrun a.py", "exec sudo -E torchrun @ a.py"),
        ("poetry run torchrun a.py", "poetry run torchrun @ a.py"),
        ("uv run --with x torchrun a", "uv run --with x torchrun @ a"),
        ("py-spy record -o x -- torchrun a.py", "py-spy record -o x -- torchrun @ a.py"),
        ("bash -c 'cd x; torchrun a.py'", "bash -c 'cd x; torchrun @ a.py'"),
        ('bash -lc "torchrun a.py"', 'bash -lc "torchrun @ a.py"'),
        ("bash -eo pipefail -c 'torchrun a.py'", "bash -eo pipefail -c 'torchrun @ a.py'"),
    ],
)  # fmt: skip
def test_a_torchrun_that_says_nothing_of_nodes_is_completed(line: str, made: str) -> None:
    found = fitted("command", line, 2, "pytorch", {})
    assert found.command == made.replace("@", STATIC)
    assert len(found.notices) == made.count("@")
    assert all(f": added {STATIC}: " in notice for notice in found.notices)
    assert fitted("command", str(found.command), 2, "pytorch", {}).notices == (), "nothing is added twice"


def test_the_words_of_an_argv_are_completed_too() -> None:
    words = fitted("line", ("torchrun", "--nproc_per_node", "2", "a b.py"), 2, "mpi", {}).command
    assert words == ("torchrun", *STATIC.split(), "--nproc_per_node", "2", "a b.py")
    words = fitted("line", ("nice", "bash", "-c", 'torchrun "a b.py"', "x"), 2, "pytorch", {}).command
    assert words == ("nice", "bash", "-c", f'torchrun {STATIC} "a b.py"', "x")


@pytest.mark.parametrize("nnodes", ["--nnodes 2", "--nnodes=$AZUREML_NODE_COUNT", "--nnode ${NNODES:-2}"])
def test_a_torchrun_whose_nodes_would_not_meet_is_completed(nnodes: str) -> None:
    found = fitted("command", f"torchrun {nnodes} a.py", 2, "pytorch", {})
    meeting = STATIC.removeprefix("--nnodes 2 ")
    assert found.command == f"torchrun {meeting} {nnodes} a.py"
    reason = "without it each of the 2 nodes would wait for the others in vain"
    assert found.notices == (f"torchrun: added {meeting}: {reason}",)
    assert fitted("command", found.command, 2, "pytorch", {}).notices == ()


def test_nodes_meet_in_the_way_that_the_line_asks_for() -> None:
    line = "torchrun --rdzv_backend=c10d a.py"
    made = f"torchrun --nnodes 2 {C10D} --rdzv_backend=c10d a.py"
    assert fitted("command", line, 2, "pytorch", {}).command == made
    line = "torchrun --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29400 a.py"
    made = line.replace("torchrun", "torchrun --nnodes 2")
    assert fitted("command", line, 2, "pytorch", {}).command == made


def test_a_variable_of_the_job_may_give_torchrun_its_nodes() -> None:
    line = "torchrun --node_rank $NODE_RANK --master_addr $MASTER_ADDR a.py"
    assert fitted("command", line, 2, "pytorch", {"PET_NNODES": "2"}).notices == ()


@pytest.mark.parametrize(
    ("nodes", "line", "value", "problem", "remedy"),
    [
        (2, "torchrun --nnodes 4 a.py", "--nnodes 4", "has 2 nodes", "--nnodes 2"),
        (2, "cd x; torchrun --nnode=1 a.py", "--nnode=1", "has 2 nodes", "$AZUREML_NODE_COUNT"),
        (1, "torchrun --nnodes 2 a.py", "--nnodes 2", "has 1 node", "--nnodes 1"),
        (2, "torchrun --nnodes 3:4 a.py", "--nnodes 3:4", "has 2 nodes", "--nnodes 2"),
        (2, "nohup torchrun --standalone a.py", "--standalone", "2 nodes alone", "leave it out"),
        (2, "torchrun --nnodes 2 --node_rank 0 a.py", "--node_rank 0", "same on each", "$NODE_RANK"),
        (2, "torchrun --node-rank=1 a.py", "--node-rank=1", "same on each", "--node-rank $NODE_RANK"),
        (2, r'bash -c "torchrun \"a.py\""', "torchrun", "2 nodes would train alone", STATIC),
        (2, "sudo bash -c 'torchrun a.py'", "torchrun", "2 nodes would train alone", STATIC),
        (2, "env -i bash -c 'torchrun a.py'", "torchrun", "2 nodes would train alone", STATIC),
        (2, "accelerate launch a.py", "accelerate launch", "2 nodes alone", "--num_machines 2 --machine_"),
        (2, "python -m accelerate.commands.launch --num_processes 4 a.py", "accelerate.commands.launch",
         "2 nodes alone", "processes of all nodes together"),
        (2, "accelerate launch --num_machines=1 a.py", "--num_machines=1", "has 2 nodes", "--num_machines 2"),
        (2, "accelerate launch --num_machines 2 --machine_rank 0 a.py", "--machine_rank 0", "same on each",
         "--machine_rank $NODE_RANK"),
        (2, f"accelerate launch {ACCELERATE} --num_processes 3 a.py", "--num_processes 3", "all 2 nodes",
         "multiple of 2"),
        (2, "deepspeed a.py", "deepspeed", "own ssh", "--no_ssh --node_rank $NODE_RANK"),
        (2, "deepspeed b.py", "deepspeed", "own ssh", "$AZ_BATCH_HOST_LIST and its GPUs: 10.0.0.4 slots=8"),
        (2, "deepspeed --num_nodes 2 a.py", "--num_nodes 2", "own ssh", "without deepspeed"),
        (2, "deepspeed --num_nodes=3 a.py", "--num_nodes=3", "has 2 nodes", "--num_nodes 2"),
        (2, "deepspeed --hostfile hosts a.py", "--hostfile hosts", "own ssh", "without deepspeed"),
        (2, "deepspeed -H hosts a.py", "-H hosts", "own ssh", "without deepspeed"),
        (2, "deepspeed --include a@b:0,1 a.py", "--include a@b:0,1", "own ssh", "without deepspeed"),
        (2, "deepspeed --no_ssh --node_rank 0 a.py", "--node_rank 0", "same on each", "$NODE_RANK"),
        (2, "horovodrun -np 4 -H a:2,b:2 python a.py", "horovodrun", "each of the 2 nodes", "mpi job"),
        (1, "horovodrun -np 4 -H a:2,b:2 python a.py", "-H a:2,b:2", "names 2 hosts", "leave it out"),
        (2, "mpirun -np 4 python a.py", "mpirun", "each of the 2 nodes", "mpi job"),
        (2, "mpiexec.hydra -n 4 ./a.out", "mpiexec", "each of the 2 nodes", "mpi job"),
        (2, "timeout 5 srun -n 4 ./a.out", "srun", "each of the 2 nodes", "mpi job"),
        (1, "mpirun --host a,b ./a.out", "--host a,b", "names 2 hosts", "leave it out"),
        (1, "srun --nodes=2 ./a.out", "--nodes=2", "has 1 node", "--nodes 1"),
    ],
)  # fmt: skip
def test_what_contradicts_the_job_is_refused(
    nodes: int, line: str, value: str, problem: str, remedy: str
) -> None:
    with pytest.raises(InputError) as caught:
        fitted("command", line, nodes, "pytorch", {})
    assert (caught.value.key, caught.value.value) == ("command", value)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("line", ["mpirun -np 2 a.out", "bash -c 'mpiexec -n 2 a.out'", "srun a.out"])
def test_an_mpi_jobs_ranks_start_no_second_mpirun(line: str, nodes: int) -> None:
    with pytest.raises(InputError, match="mpirun starts the ranks of this job already"):
        fitted("command", line, nodes, "mpi", {})


def test_a_torchrun_on_each_node_of_an_mpi_job_is_completed() -> None:
    found = fitted("command", "torchrun --nproc_per_node 2 a.py", 2, "mpi", {}).command
    assert found == f"torchrun {STATIC} --nproc_per_node 2 a.py"


def test_shells_within_shells_end_somewhere() -> None:
    line = "torchrun a.py"
    for _ in range(4):
        line = "bash -c '" + line.replace("'", "'\\''") + "'"
    assert [one.name for one in launches(line)] == ["torchrun"]
    assert launches("bash -c " * 9 + "torchrun") == ()
