"""Variables in the options of a launcher that the job starts once on every node."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.launchers.fit import fitted
from launch.launchers.line_variables import Variables, without_assignments

REST = "--nnodes=$WORLD_SIZE --master_addr $MASTER_ADDR a.py"


@pytest.mark.parametrize("rank", ["$RANK", "${RANK}", "${RANK:-0}", "${RANK-0}"])
@pytest.mark.parametrize(
    "line",
    [
        f"torchrun --node_rank=@ {REST}",
        f"cd x && torchrun --node-rank @ {REST}",
        f"bash -c 'torchrun --node_rank=@ {REST}'",
        f'torchrun --node_rank "@" {REST}',
        f"python -m torch.distributed.launch --node_rank @ {REST}",
        "accelerate launch --num_machines 2 --machine_rank @ --main_process_ip $MASTER_ADDR a.py",
        "deepspeed --no_ssh --node_rank @ --hostfile hosts a.py",
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_nodes_number_that_azure_ml_has_in_rank_is_given(line: str, rank: str, nodes: int) -> None:
    line = line if nodes > 1 else line.replace("--num_machines 2", "--num_machines 1")
    found = fitted("command", line.replace("@", rank), nodes, "pytorch", {})
    assert found.command == line.replace("@", "$NODE_RANK")
    assert len(found.notices) == 1
    assert "$NODE_RANK in place of " in found.notices[0]
    assert f"{rank}: nothing sets RANK there" in found.notices[0]


def test_so_it_is_in_an_argv_and_beside_what_is_added() -> None:
    found = fitted("line", ("torchrun", "--nnodes=2", "--node_rank=$RANK", "a.py"), 2, "pytorch", {})
    head = ("--master-addr", "$MASTER_ADDR", "--master-port", "$MASTER_PORT")
    assert found.command == ("torchrun", *head, "--nnodes=2", "--node_rank=$NODE_RANK", "a.py")
    assert len(found.notices) == 2


@pytest.mark.parametrize("before", ["RANK=$NODE_RANK; ", "export RANK=$NODE_RANK && "])
def test_a_rank_that_the_line_sets_is_its_own(before: str) -> None:
    line = f"{before}torchrun --node_rank=$RANK {REST}"
    assert fitted("command", line, 2, "pytorch", {}).command == line


def test_the_ranks_of_mpirun_have_a_rank() -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK"):
        line = f"torchrun --node_rank=${name} {REST}"
        assert fitted("command", line, 2, "mpi", {}).command == line


@pytest.mark.parametrize(
    ("line", "value", "remedy"),
    [
        (f'torchrun --node_rank="$RANK" {REST}', "--node_rank=$RANK", "--node_rank $NODE_RANK"),
        (f"torchrun --node_rank=$((RANK / 8)) {REST}", "--node_rank=$((RANK / 8))", "$NODE_RANK"),
        (f"torchrun --node_rank $OMPI_COMM_WORLD_RANK {REST}", "--node_rank $OMPI_COMM_WORLD_RANK",
         "--node_rank $NODE_RANK"),
        (f"torchrun --node_rank $SLURM_NODEID {REST}", "--node_rank $SLURM_NODEID", "$NODE_RANK"),
        (f"torchrun --node_rank $AZUREML_NODE_RANK {REST}", "--node_rank $AZUREML_NODE_RANK", "$NODE_RANK"),
        ("torchrun --nnodes $NNODES a.py", "--nnodes $NNODES", "--nnodes $AZUREML_NODE_COUNT"),
        ("torchrun --nnodes 1:$SLURM_NNODES a.py", "--nnodes 1:$SLURM_NNODES", "$AZUREML_NODE_COUNT"),
        ("torchrun --master_addr=$MASTER_IP a.py", "--master_addr=$MASTER_IP", "--master_addr $MASTER_ADDR"),
        ("torchrun --master_port ${PORT} a.py", "--master_port ${PORT}", "--master_port $MASTER_PORT"),
        ("torchrun --rdzv_endpoint $HEAD:29400 a.py", "--rdzv_endpoint $HEAD:29400", "$MASTER_ADDR:$MASTER_"),
        ("torchrun --rdzv_id=$JOB_ID a.py", "--rdzv_id=$JOB_ID", "--rdzv_id $RANKLIFT_JOB_ID"),
        ("torchrun --nproc_per_node $LOCAL_WORLD_SIZE a.py", "--nproc_per_node $LOCAL_WORLD_SIZE", "gpu"),
        ("accelerate launch --machine_rank $OMPI_COMM_WORLD_RANK a.py",
         "--machine_rank $OMPI_COMM_WORLD_RANK", "--machine_rank $NODE_RANK"),
        ("deepspeed --no_ssh --node_rank ${SLURM_NODEID} a.py", "--node_rank ${SLURM_NODEID}", "$NODE_RANK"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_variable_that_nothing_sets_is_refused(line: str, value: str, remedy: str, nodes: int) -> None:
    with pytest.raises(InputError, match=r"nothing sets .* where this launcher is started") as caught:
        fitted("command", line, nodes, "pytorch", {})
    assert caught.value.value == value
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "before",
    ["NNODES=2; ", "export NNODES=$AZUREML_NODE_COUNT && ", "source nodes.sh; ", ". ./nodes.sh && ",
     "eval $(cat nodes); ", "read NNODES < nodes; ", "export $(cat .env); "],
)  # fmt: skip
def test_a_variable_that_the_line_may_set_is_left(before: str) -> None:
    line = f"{before}torchrun --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR a.py"
    assert fitted("command", line, 2, "pytorch", {}).command == line


def test_of_processes_the_nodes_may_have_a_variable() -> None:
    line = f"torchrun --nproc_per_node $NUM_GPUS --node_rank $NODE_RANK {REST}"
    assert fitted("command", line, 2, "pytorch", {}).command == line


@pytest.mark.parametrize(
    ("line", "given", "value", "problem"),
    [
        ("torchrun --nnodes=${NNODES:-1} --node-rank $NODE_RANK a.py", {}, "--nnodes=${NNODES:-1}", "has 2"),
        ("torchrun --nnodes=$N a.py", {"N": "4"}, "--nnodes=$N", "has 2 nodes"),
        ("N=4; torchrun --nnodes=$N a.py", {}, "--nnodes=$N", "has 2 nodes"),
        ("N=4; torchrun --nnodes=$N a.py", {"N": "2"}, "--nnodes=$N", "has 2 nodes"),
        (f"NODE_RANK=0 && torchrun --node_rank $NODE_RANK {REST}", {}, "--node_rank $NODE_RANK", "the same"),
        (f"torchrun --node_rank ${{SLURM_NODEID:-0}} {REST}", {}, "--node_rank ${SLURM_NODEID:-0}", "same"),
        ("torchrun --master_addr $HEAD a.py", {"HEAD": "localhost"}, "--master_addr $HEAD", "would not meet"),
        ("H=127.0.0.1; torchrun --master_addr $H a.py", {}, "--master_addr $H", "would not meet"),
        ("torchrun --rdzv_endpoint ${H:-localhost}:1 a.py", {}, "--rdzv_endpoint ${H:-localhost}:1", "meet"),
    ],
)  # fmt: skip
def test_a_value_that_is_known_counts_as_if_it_were_written(
    line: str, given: dict[str, str], value: str, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        fitted("command", line, 2, "pytorch", given)
    assert caught.value.value == value
    assert problem in caught.value.problem


@pytest.mark.parametrize("option", ["--nnodes=$NNODES", "--nnodes=${NNODES:-2}", "--nnodes=${WORLD_SIZE:-2}"])
def test_without_a_shell_nothing_but_the_jobs_own_variables_is_replaced(option: str) -> None:
    with pytest.raises(InputError, match="stays as it is: no shell reads this line"):
        fitted("line", ("torchrun", option, "a.py"), 2, "pytorch", {"NNODES": "2"})
    assert fitted("line", ("torchrun", "--nnodes=${WORLD_SIZE}", "a.py"), 1, "pytorch", {}).notices == ()


def test_variables_before_a_program_are_told_from_its_arguments() -> None:
    given, rest = without_assignments("line", """A=1 B="x y" C=  D='a=b' python train.py E=1  'F G'""")
    assert given == ("A=1", "B=x y", "C=", "D=a=b")
    assert rest == "python train.py E=1  'F G'"
    for line in ("python A=1", "-m x", "", "A='open", "env A=1 python"):
        assert without_assignments("line", line) == ((), line)


def test_a_value_of_the_users_with_a_variable_in_it_is_not_known() -> None:
    line = "torchrun --nnodes $N --node_rank $NODE_RANK --master_addr $MASTER_ADDR a.py"
    for value in ("$AZUREML_NODE_COUNT", "$N$N"):
        assert fitted("command", line, 2, "pytorch", {"N": value}).command == line


@pytest.mark.parametrize(
    "constants",
    [{f"A{n}": f"$A{n + 1}" * 60 for n in range(6)}, {"A0": "x" * 100_000}],
    ids=["nested", "long"],
)
def test_values_that_multiply_are_left_as_they_are(constants: dict[str, str]) -> None:
    found = Variables(frozenset(), constants).resolved("$A0" * 1000)
    assert len(found) < 1_000_000
