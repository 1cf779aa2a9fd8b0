"""Where the launchers of several nodes meet: completed, or refused where each node would mean itself."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.launchers.fit import fitted
from launch.launchers.options import configured

HEAD = "--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
C10D = (
    "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --rdzv-id $RANKLIFT_JOB_ID "
    "--rdzv-conf is_host=$AZ_BATCH_IS_CURRENT_NODE_MASTER --local-addr $RANKLIFT_NODE_ADDR"
)


@pytest.mark.parametrize(
    ("line", "missing", "fate"),
    [
        ("torchrun @--nnodes=1:2 --nproc_per_node=2 --rdzv_backend=c10d a.py", C10D, "train alone"),
        ("torchrun @--nnodes=2:4 --rdzv_backend=c10d a.py", C10D, "wait for the others in vain"),
        ("torchrun @--nnodes 2 --rdzv-backend c10d --master_addr $MASTER_ADDR a.py", C10D, "in vain"),
        ("torchrun @--rdzv_backend=c10d --nnodes 2 --local-addr $RANKLIFT_NODE_ADDR a.py",
         C10D.rpartition(" --local")[0], "in vain"),
        ("torchrun @--nnodes=2 --node_rank $NODE_RANK a.py", HEAD, "in vain"),
        ("torchrun @--nnodes=2 --node_rank $NODE_RANK --master_port 29500 a.py", "--master-addr $MASTER_ADDR",
         "in vain"),
        ("torchrun @--nnodes=$WORLD_SIZE --master_addr $MASTER_ADDR a.py", "--node-rank $NODE_RANK", "vain"),
        ("torchrun @--nnodes 2 --rdzv_endpoint $MASTER_ADDR:29400 a.py", "--node-rank $NODE_RANK", "vain"),
        ("python -m torch.distributed.launch @--nnodes 2 --node_rank $NODE_RANK a.py", HEAD, "in vain"),
        ("PET_NNODES=1:2 PET_RDZV_BACKEND=c10d torchrun @a.py", C10D, "train alone"),
        ("export PET_NNODES=2; torchrun @--node_rank $NODE_RANK a.py", HEAD, "wait for the others in vain"),
        ("torchrun @--master_port 29500 a.py",
         "--nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR", "train alone"),
    ],
)  # fmt: skip
def test_what_a_torchrun_lacks_to_meet_the_others_is_added(line: str, missing: str, fate: str) -> None:
    found = fitted("command", line.replace("@", ""), 2, "pytorch", {})
    assert found.command == line.replace("@", f"{missing} ")
    assert len(found.notices) == 1
    assert f"added {missing}: without it each of the 2 nodes would " in found.notices[0]
    assert found.notices[0].endswith(fate)
    assert fitted("command", found.command, 2, "pytorch", {}).notices == (), "nothing is added twice"


ITSELF = ["localhost", "LOCALHOST", "127.0.0.1", "127.1", "0.0.0.0", "$HOSTNAME", "$RANKLIFT_NODE_ADDR"]


@pytest.mark.parametrize("host", [*ITSELF, "::1", '"$(hostname -i)"', "`hostname`"])
@pytest.mark.parametrize(
    ("line", "option", "ours"),
    [
        ("torchrun --nnodes 2 --node_rank $NODE_RANK --master_addr={} a.py", "--master_addr", "$MASTER_ADDR"),
        ("torchrun --node_rank $NODE_RANK --master_addr {} a.py", "--master_addr", "$MASTER_ADDR"),
        ("accelerate launch --num_machines 2 --machine_rank $NODE_RANK --main_process_ip {} a.py",
         "--main_process_ip", "$MASTER_ADDR"),
        ("deepspeed --no_ssh --node_rank $NODE_RANK --master_addr={} --hostfile h a.py", "--master_addr",
         "$MASTER_ADDR"),
    ],
)  # fmt: skip
def test_a_head_that_is_each_node_itself_is_refused(line: str, option: str, ours: str, host: str) -> None:
    with pytest.raises(InputError, match="is another one on each of the 2 nodes") as caught:
        fitted("command", line.format(host), 2, "pytorch", {})
    assert str(caught.value.value).startswith(option)
    assert caught.value.remedy == f"write {option} {ours}"
    alone = line.replace("nodes 2", "nodes 1").replace("machines 2", "machines 1").format(host)
    assert fitted("command", alone, 1, "pytorch", {}).notices == ()


@pytest.mark.parametrize("host", [*ITSELF, "[::1]", ""])
@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes=1:4 --rdzv_backend=c10d --rdzv_endpoint={}:29400 a.py",
        "torchrun --rdzv_endpoint={}:0 --rdzv_backend=c10d --nproc_per_node=2 a.py",
        "torchrun --nnodes 2 --rdzv-backend etcd-v2 --rdzv-endpoint {}:2379 a.py",
        "cd src && bash -c 'torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint {}:29400 a.py'",
    ],
)
def test_an_endpoint_that_is_each_node_itself_is_refused(line: str, host: str) -> None:
    with pytest.raises(InputError, match="is another one on each of the 2 nodes") as caught:
        fitted("command", line.format(host), 2, "pytorch", {})
    assert "$MASTER_ADDR:$MASTER_PORT" in caught.value.remedy


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("torchrun --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR --rdzv_id $RANDOM a.py",
         "--rdzv_id $RANDOM"),
        ("torchrun --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR --rdzv_id=$(date +%s) a.py",
         "--rdzv_id=$(date +%s)"),
        ("torchrun --master_addr $MASTER_ADDR --master_port=$((20000 + RANDOM)) a.py",
         "--master_port=$((20000 + RANDOM))"),
    ],
)  # fmt: skip
def test_what_each_node_makes_up_is_refused(line: str, value: str) -> None:
    with pytest.raises(InputError, match="which would not meet") as caught:
        fitted("command", line, 2, "pytorch", {})
    assert caught.value.value == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("MASTER_ADDR=localhost python train.py", "MASTER_ADDR=localhost"),
        ("export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500; python train.py", "MASTER_ADDR=127.0.0.1"),
        ("cd src && env MASTER_ADDR=localhost python train.py", "MASTER_ADDR=localhost"),
        ("bash -c 'MASTER_ADDR=localhost python train.py'", "MASTER_ADDR=localhost"),
        ("bash -c 'export MASTER_ADDR=127.0.0.1; exec python train.py'", "MASTER_ADDR=127.0.0.1"),
        ("PET_RDZV_ENDPOINT=localhost:29400 torchrun train.py", "PET_RDZV_ENDPOINT=localhost:29400"),
    ],
)
def test_a_variable_that_is_each_node_itself_is_refused(line: str, value: str) -> None:
    with pytest.raises(InputError, match="nodes, which would not meet") as caught:
        fitted("command", line, 2, "pytorch", {})
    assert caught.value.value == value
    assert fitted("command", line, 1, "pytorch", {}).command == line


@pytest.mark.parametrize(
    "line",
    [
        "MASTER_ADDR=localhost RANK=0 WORLD_SIZE=1 python prepare.py",
        '[ -n "$MASTER_ADDR" ] || MASTER_ADDR=localhost; python train.py',
        "if [ $AZUREML_NODE_COUNT = 1 ]; then export MASTER_ADDR=localhost; fi; python train.py",
        "python train.py --env MASTER_ADDR=localhost",
        "torchrun --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint node000000:29400 train.py",
        "torchrun --nnodes 1:4 --rdzv-backend c10d --rdzv-endpoint ${MASTER_ADDR:-localhost}:29400 train.py",
        "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR --rdzv-id localhost train.py",
    ],
)
def test_what_may_meet_is_passed_on(line: str) -> None:
    found = fitted("command", line, 2, "pytorch", {})
    assert (found.command, found.notices) == (line, ())


@pytest.mark.parametrize(
    ("line", "value", "problem"),
    [
        ("torchrun --nnodes 1:4 a.py", "--nnodes 1:4", "waits for 4 nodes without --rdzv-backend c10d"),
        ("torchrun --nnodes 2 --rdzv_backend c10d --rdzv_conf store_type=file a.py",
         "--rdzv_conf store_type=file", "another file on each of the 2 nodes"),
        ("accelerate launch --num_machines 2 --machine_rank $NODE_RANK a.py", "accelerate launch",
         "would not find the others"),
        ("accelerate launch --num_machines $WORLD_SIZE a.py", "accelerate launch", "not find the others"),
    ],
)  # fmt: skip
def test_what_cannot_meet_is_refused(line: str, value: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        fitted("command", line, 2, "pytorch", {})
    assert caught.value.value == value
    assert problem in caught.value.problem


ONE = "compute_environment: LOCAL_MACHINE\nmachine_rank: 0\nmain_process_ip: null\nnum_machines: 1\n"
TWO = "machine_rank: 0\nmain_process_ip: '10.0.0.4'\nnum_machines: 2  # both\n"
RANK = "--machine_rank $NODE_RANK"
HEADS = "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT"


@pytest.mark.parametrize(
    ("config", "given", "missing"),
    [
        (ONE, "", f"--num_machines 2 {RANK} {HEADS}, and give the processes of all nodes together"),
        (ONE, RANK, f"--num_machines 2 {HEADS}, and give"),
        ('{"num_machines": 1, "machine_rank": 0}', "", f"--num_machines 2 {RANK} {HEADS}, and give"),
        (ONE, f"--num_machines 2 {RANK}", HEADS),
        (TWO, "", f"{RANK} --main_process_port $MASTER_PORT"),
        (TWO.replace("10.0.0.4", "127.0.0.1"), RANK, HEADS),
        ("mixed_precision: bf16\n", "", f"--num_machines 2 {RANK} {HEADS}"),
        (None, "", f"--num_machines 2 {RANK} {HEADS}"),
    ],
)
@pytest.mark.parametrize("name", ["recipes/zero3.yaml", "./recipes/zero3.yaml"])
def test_a_pushed_config_file_of_accelerate_is_held_against_the_job(
    config: str | None, given: str, missing: str, name: str
) -> None:
    line = f"accelerate launch --config_file {name} {given} train.py"
    files = {"recipes/zero3.yaml": config}
    with pytest.raises(InputError) as caught:
        fitted("command", line, 2, "pytorch", {}, files.get)
    assert caught.value.value == f"--config_file {name}"
    assert caught.value.remedy.startswith(f"add {missing}")


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (TWO, RANK),
        (ONE, f"--num_machines 2 {RANK} --main_process_ip $MASTER_ADDR"),
        (None, RANK),
    ],
)
def test_a_config_file_whose_nodes_meet_is_passed_on(config: str | None, given: str) -> None:
    line = f"accelerate launch --config_file zero3.yaml {given} train.py"
    assert fitted("command", line, 2, "pytorch", {}, {"zero3.yaml": config}.get).command == line


def test_a_config_file_for_several_nodes_is_refused_on_one() -> None:
    line = "accelerate launch --config_file zero3.yaml train.py"
    with pytest.raises(InputError, match="has num_machines: 2, the job has 1 node"):
        fitted("command", line, 1, "pytorch", {}, {"zero3.yaml": TWO}.get)
    assert fitted("command", line, 1, "pytorch", {}, {"zero3.yaml": ONE}.get).command == line
    assert configured('{"a": 1, "num_machines": 2}') == {"num-machines": "2"}
