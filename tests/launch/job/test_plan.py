"""What a plan holds, against golden files and rule by rule."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from catalogue.sizes import fabric_settings
from launch.errors import InputError
from launch.job.plan import JobPlan, plan
from launch.job.rank_env import EXPANDED
from launch.job.spec import JobNode, JobSpec, Kind
from launch.launchers.pytorch import torchrun_argv
from launch.remote.base.records import BARE, EnvironmentRecord
from launch.remote.head.runners.runner_spec import runner_spec

GOLDEN = Path(__file__).parent / "golden"
NODES = (
    JobNode("node000000", "10.0.0.4", 8),
    JobNode("node000003", "10.0.0.7", 8),
    JobNode("node00000a", "10.0.1.2", 8),
)


def made(spec: JobSpec, nodes: Sequence[JobNode] = NODES, **options: Any) -> JobPlan:
    settings = {"size": "Standard_ND96asr_v4", "remote": "0123456789ab", **options}
    return plan(
        spec, nodes, now=datetime(2026, 3, 1, 9, 5, 7), random=lambda count: "0f3a"[: 2 * count], **settings
    )


def golden(name: str, text: str) -> None:
    """Compares with the file; WRITE_GOLDEN=1 writes it instead, for a reader to check in a diff."""
    path = GOLDEN / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


SPECS = {
    "mpi": JobSpec("Digits", "mpi", ("train.py", "--lr", "0.1"), processes_per_node=2, snapshot="5eed"),
    "pytorch": JobSpec(
        "digits", "pytorch", ("train.py", "--local_rank=$LOCAL_RANK"), processes_per_node=2, snapshot="5eed",
        env={"GREETING": "it's $HOME\nand \"more\""}, timeout_s=3600,
    ),
    "per_node": JobSpec(
        "digits", "pytorch", torchrun_argv(3, 2, ("train.py",)),
        per_node=True, snapshot="5eed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPECS)
def test_the_whole_plan(kind: str) -> None:
    text = json.dumps(made(SPECS[kind]).as_dict(), indent=2, ensure_ascii=False)
    golden(f"plan-{kind}.json", text + "\n")


def test_arguments_may_name_every_variable_that_ranks_see() -> None:
    seen = {name for spec in SPECS.values() for name in made(spec).environment(0)}
    azures = {name for name in seen if name.startswith(("AZ", "RANK", "WORLD", "LOCAL", "NODE", "MASTER"))}
    assert azures | {f"OMPI_COMM_WORLD_{end}" for end in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")} == set(
        EXPANDED
    )


def test_a_job_with_the_identity_has_its_nodes_to_itself() -> None:
    assert [node.reserve for node in made(SPECS["mpi"]).nodes] == [2, 2, 2]
    assert [node.reserve for node in made(replace(SPECS["mpi"], identity=True)).nodes] == [8, 8, 8]


@pytest.mark.parametrize("first", [None, 0], ids=["node's runner", "rank's runner"])
def test_no_rank_starts_without_a_grant_where_nobody_signed_for_the_identity(first: int | None) -> None:
    """Its runner waits for one in vain."""
    unsigned = made(replace(SPECS["mpi"], identity=True))
    signed = replace(unsigned, identity="signed")
    for job, expected in ((made(SPECS["mpi"]), ("", 0)), (unsigned, ("", 1)), (signed, ("signed", 1))):
        spec = runner_spec(job.as_dict(), 0, first, 6105, [*range(8)])
        assert (spec["identity"], spec["with_identity"]) == expected


def test_only_a_nodes_first_runner_gets_the_signature() -> None:
    job = replace(made(replace(SPECS["mpi"], identity=True)), identity="signed")
    spec = runner_spec(job.as_dict(), 0, 1, 6105, [*range(8)])
    assert (spec["identity"], spec["with_identity"]) == ("", 1)


@pytest.mark.parametrize("kind", SPECS)
def test_the_environment_of_a_rank(kind: str) -> None:
    planned = made(SPECS[kind])
    env = planned.environment(planned.world_size - 1)
    golden(f"environment-{kind}.txt", "".join(f"{name}={env[name]!r}\n" for name in sorted(env)))


def test_what_an_environment_sets_is_the_jobs_and_the_job_wins() -> None:
    record: EnvironmentRecord = {
        **BARE,
        "kind": "python",
        "id": "5eed",
        "path": "~/.ranklift/environments/5eed",
    }
    before = made(SPECS["pytorch"])
    venv = before.in_environment(record, {})
    assert (venv.python, venv.env) == (record["path"], before.env)
    assert venv.paths == {**before.paths, "VIRTUAL_ENV": record["path"]}
    conda = before.in_environment(record, {"CONDA_PREFIX": "/home/me/e", "MASTER_PORT": "1"})
    assert conda.env == {"CONDA_PREFIX": "/home/me/e", **before.env}
    assert (conda.env["MASTER_PORT"], conda.paths) == (before.env["MASTER_PORT"], before.paths)


def test_the_hostfile_gives_every_node_its_ranks() -> None:
    uneven = [JobNode(f"node00000{i}", f"10.0.0.{4 + i}", slots) for i, slots in enumerate((2, 1, 3))]
    spec = JobSpec("t", "mpi", ("hostname",), processes_per_node=None)
    assert made(spec, uneven).hostfile == "node000000 slots=2\nnode000001 slots=1\nnode000002 slots=3\n"


UNEVEN = tuple(JobNode(f"node00000{i}", f"10.0.0.{4 + i}", slots) for i, slots in enumerate((2, 1, 2)))
NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")


@pytest.mark.parametrize("kind", ["mpi", "pytorch"])
def test_over_uneven_slots_ranks_are_numbered_node_by_node(kind: Kind) -> None:
    planned = made(JobSpec("t", kind, ("a",), processes_per_node=None), UNEVEN)
    assert [
        tuple(planned.environment(rank)[name] for name in NUMBERS) for rank in range(planned.world_size)
    ] == [
        ("0", "0", "0", "2", "5"),
        ("1", "1", "0", "2", "5"),
        ("2", "0", "1", "1", "5"),
        ("3", "0", "2", "2", "5"),
        ("4", "1", "2", "2", "5"),
    ]
    assert [(node.node_rank, node.reserve) for node in planned.nodes] == [(0, 2), (1, 1), (2, 2)]
    assert [[rank.local_rank for rank in node.ranks] for node in planned.nodes] == [[0, 1], [0], [0, 1]]
    assert planned.hostfile == "node000000 slots=2\nnode000001 slots=1\nnode000002 slots=2\n"


def test_over_uneven_slots_a_launcher_per_node_is_one_process_of_each() -> None:
    planned = made(JobSpec("t", "pytorch", ("torchrun",), per_node=True, processes_per_node=None), UNEVEN)
    seen = [planned.environment(rank) for rank in range(planned.world_size)]
    assert [(env["NODE_RANK"], env["WORLD_SIZE"], env.get("RANK")) for env in seen] == [
        ("0", "3", None),
        ("1", "3", None),
        ("2", "3", None),
    ]


def test_no_value_of_the_users_is_on_mpiruns_command_line() -> None:
    spec = JobSpec("t", "mpi", ("train.py", "needle-1"), env={"KEY": "needle-2"})
    for line in made(spec).mpirun.values():
        assert "needle" not in " ".join(line.words)


def test_ids_are_readable_sortable_and_unique() -> None:
    spec = JobSpec("My Digits: run #1", "mpi", ("hostname",))
    assert made(spec).id == "my-digits-run-1-20260301-090507-0f3a"
    first, second = (plan(spec, NODES, size="x", remote="r").id for _ in range(2))
    assert first != second
    assert made(JobSpec("日本", "mpi", ("hostname",))).id.startswith("job-2026")


@pytest.mark.parametrize(
    ("per_node", "processes", "reserved"),
    [(True, 1, 8), (False, 1, 8), (False, 2, 2), (False, None, 8)],
    ids=["launcher", "one", "two", "all"],
)
def test_one_process_has_its_node_to_itself(per_node: bool, processes: int | None, reserved: int) -> None:
    spec = JobSpec("t", "pytorch", ("a",), per_node=per_node, processes_per_node=processes)
    assert {node.reserve for node in made(spec).nodes} == {reserved}


@pytest.mark.parametrize(
    ("spec", "argv"),
    [
        (JobSpec("t", "mpi", ("train.py", "a b")), ("python3", "-u", "train.py", "a b")),
        (JobSpec("t", "mpi", ("train.py",), python="/opt/py"), ("python", "-u", "train.py")),
        (JobSpec("t", "mpi", ("t.py",), python="/opt/bin/python3.9"), ("/opt/bin/python3.9", "-u", "t.py")),
        (JobSpec("t", "mpi", ("hostname", "-f")), ("hostname", "-f")),
        (JobSpec("t", "mpi", ("run.sh", "x")), ("bash", "run.sh", "x")),
        (JobSpec("t", "pytorch", ("run.sh",), per_node=True), ("bash", "run.sh")),
        (
            JobSpec("t", "mpi", ("python3 -m torch.distributed.launch train.py",), shell=True),
            ("bash", "-c", "python3 -m torch.distributed.launch train.py"),
        ),
        (
            JobSpec("t", "pytorch", ("echo  '$RANK'",), shell=True, per_node=True),
            ("bash", "-c", "echo  '$RANK'"),
        ),
        (JobSpec("t", "pytorch", ("echo", "$NODE_RANK"), per_node=True), ("echo", "$NODE_RANK")),
    ],
)
def test_what_each_rank_runs(spec: JobSpec, argv: tuple[str, ...]) -> None:
    assert made(spec).argv == argv


def test_ranks_of_pytorch_jobs_are_given_nothing_of_mpis() -> None:
    assert not [name for name in made(SPECS["pytorch"]).environment(0) if name.startswith(("OMPI_", "PMI"))]


def test_the_users_environment_wins_over_the_sizes() -> None:
    spec = JobSpec("t", "mpi", ("a",), env={"NCCL_SOCKET_IFNAME": "ib0", "PYTHONUNBUFFERED": ""})
    env = made(spec).environment(0)
    assert (env["NCCL_SOCKET_IFNAME"], env["PYTHONUNBUFFERED"]) == ("ib0", "")


@pytest.mark.parametrize(("fewest", "own", "seen"), [(None, None, None), (2, None, "1"), (2, "0", "0")])
def test_ranks_that_torchrun_may_start_again_share_no_store_with_the_dead(
    fewest: int | None, own: str | None, seen: str | None
) -> None:
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    command = torchrun_argv(3, 2, ("train.py",), rdzv_backend="c10d", nnodes="2:3")
    env = {} if own is None else {name: own}
    spec = JobSpec("digits", "pytorch", command, per_node=True, min_nodes=fewest, env=env)
    assert made(spec).environment(0).get(name) == seen


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("torchrun --nnodes 3 --rdzv-backend c10d --max-restarts 3 train.py", "1"),
        ("cd src && python -m torch.distributed.run --rdzv_backend=c10d --max_restarts=1 train.py", "1"),
        ("torchrun --nnodes 3 --rdzv-backend c10d --max-restarts 0 train.py", None),
        ("torchrun --nnodes 3 --rdzv-backend c10d train.py", None),
        ("torchrun --nnodes 3 --rdzv-backend static --max-restarts 3 train.py", None),
        ("python train.py --rdzv-backend c10d --max-restarts 3", None),
    ],
)
def test_so_it_is_with_a_torchrun_of_the_users_own(line: str, seen: str | None) -> None:
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    spec = JobSpec("digits", "pytorch", (line,), per_node=True, shell=True)
    assert made(spec).environment(0).get(name) == seen
    words = JobSpec("digits", "pytorch", tuple(line.removeprefix("cd src && ").split()), per_node=True)
    assert made(words).environment(0).get(name) == seen
    assert made(replace(spec, env={name: "0"})).environment(0)[name] == "0"


def test_no_size_is_given_transports_or_devices() -> None:
    for size in (
        "Standard_ND40rs_v2",
        "Standard_ND96asr_v4",
        "Standard_ND96isr_H100_v5",
        "Standard_HB120rs_v3",
    ):
        assert not {"UCX_TLS", "UCX_NET_DEVICES", "NCCL_IB_DISABLE", "NCCL_IB_HCA"} & set(
            fabric_settings(size).env
        )


def test_the_torch_launchers_command_lines() -> None:
    options = "--nnodes 2 --nproc-per-node 8 --node-rank $NODE_RANK"
    options += " --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
    script = ("train.py", "--lr", "1")
    assert " ".join(torchrun_argv(2, 8, script)) == f"torchrun {options} train.py --lr 1"
    assert " ".join(torchrun_argv(2, 8, script, "/opt/py")) == (
        f"python -u -m torch.distributed.run {options} train.py --lr 1"
    )


def test_the_torch_launchers_rendezvous_by_arrival() -> None:
    argv = torchrun_argv(3, 8, ("train.py",), rdzv_backend="c10d", nnodes="2:4")
    assert " ".join(argv) == (
        "torchrun --nnodes 2:4 --nproc-per-node 8 "
        "--rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT "
        "--rdzv-id $RANKLIFT_JOB_ID --rdzv-conf is_host=$AZ_BATCH_IS_CURRENT_NODE_MASTER "
        "--local-addr $RANKLIFT_NODE_ADDR train.py"
    )
    planned = made(JobSpec("t", "pytorch", argv, per_node=True))
    assert [planned.environment(rank)["RANKLIFT_NODE_ADDR"] for rank in range(3)] == [
        node.private_ip for node in NODES
    ]
    assert torchrun_argv(3, 8, ("a.py",), rdzv_backend="c10d")[1:3] == ("--nnodes", "3")


@pytest.mark.parametrize(
    ("rdzv_backend", "nnodes", "words"),
    [
        ("static", "2:4", "nnodes = '2:4': needs a rendezvous .*; use c10d"),
        ("c10d", "4:6", "nnodes = '4:6': does not include the 3 nodes"),
        ("c10d", "1:2", "does not include"),
        ("c10d", "4:2", "is not a range of nodes; write it like 2:4"),
        ("c10d", "0:4", "is not a range"),
        ("c10d", "3", "is not a range"),
        ("etcd", None, "rdzv_backend = 'etcd': .*use static or c10d"),
    ],
)
def test_a_rendezvous_that_cannot_be(rdzv_backend: Any, nnodes: str | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        torchrun_argv(3, 8, ("a.py",), rdzv_backend=rdzv_backend, nnodes=nnodes)


class TestBadInput:
    def test_more_processes_than_slots(self) -> None:
        with pytest.raises(InputError, match=r"processes_per_node = 9: node000000 has 8 slots; .*at most 8"):
            made(JobSpec("t", "mpi", ("a",), processes_per_node=9))

    def test_no_nodes(self) -> None:
        with pytest.raises(InputError, match="nodes: no nodes to run on"):
            made(JobSpec("t", "mpi", ("a",)), [])

    def test_a_node_without_slots(self) -> None:
        with pytest.raises(InputError, match="slots = 0: node000000 takes no processes"):
            made(JobSpec("t", "mpi", ("a",)), [JobNode("node000000", "10.0.0.4", 0)])

    @pytest.mark.parametrize(
        "command", [("tarin.py",), ("./tarin.py", "x"), ("python3", "-u", "tarin.py"), ("bash", "tarin.sh")]
    )
    def test_a_script_that_was_not_pushed(self, command: tuple[str, ...]) -> None:
        with pytest.raises(InputError, match=r"script = 'tarin\.(py|sh)': is not in the pushed code"):
            made(JobSpec("t", "mpi", command), files={"train.py", "run.sh"})

    def test_a_misspelt_script_is_refused_with_the_closest_file(self) -> None:
        with pytest.raises(InputError, match=r"pushed code; did you mean train\.py\? else give its path"):
            made(JobSpec("t", "mpi", ("tarin.py",)), files={"train.py", "run.sh"})

    @pytest.mark.parametrize(
        "command",
        [
            ("train.py",),
            ("./train.py",),
            ("hostname",),
            ("/opt/x.py",),
            ("python3", "-m", "m"),
            ("run.sh", "n.py"),
            ("bash", "-lc", "python tarin.py"),
            ("torchrun", "-m", "pkg", "tarin.py"),
        ],
    )
    def test_scripts_that_are_there_or_cannot_be_known(self, command: tuple[str, ...]) -> None:
        made(JobSpec("t", "mpi", command), files={"train.py", "run.sh"})

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"command": ()}, "command: is empty"),
            ({"kind": "ray"}, "kind = 'ray': is not a kind of job"),
            ({"kind": "mpi", "per_node": True}, "per_node = True"),
            ({"processes_per_node": 0}, "processes_per_node = 0"),
            ({"port": 0}, "port = 0"),
            ({"timeout_s": 0.0}, "timeout_s = 0.0"),
            ({"env": {"A-B": "1"}}, "env = 'A-B'"),
            ({"env": {"RANK": "1"}}, "env RANK: is set by the launcher"),
            ({"env": {"MASTER_PORT": "1"}}, "takes a free port"),
            ({"env": {"A": "\0"}}, "env A: .*NUL"),
            ({"env": {"A": "x" * 200_000}}, "env A: has 200000 bytes; Linux's limit is 126976"),
            ({"env": {"A": "\ud800"}}, "env A: cannot be encoded in UTF-8"),
            ({"command": ("a", "x" * 200_000)}, "command: has 200000 bytes; Linux"),
            ({"command": ("a b", "c"), "shell": True}, "command = .*: is not a single line for a shell"),
            (
                {"per_node": True, "processes_per_node": 2},
                "processes_per_node = 2: cannot be combined with a command",
            ),
            ({"mpi": "openmpi"}, "mpi = 'openmpi': is for mpi jobs"),
            ({"kind": "mpi", "mpi": "lam"}, "mpi = 'lam': .*; use openmpi, mpich or intelmpi"),
            ({"mpi_args": ("-v",)}, "mpi_args = .*: is for mpi jobs"),
            ({"python": " "}, "python = ' ': is empty"),
            ({"setup": "\0"}, "setup = .*NUL"),
            ({"requires": ("torch.nn",)}, "requires = 'torch.nn': is not a top-level module"),
            ({"shm_bytes": 0}, "shm_bytes = 0"),
            ({"outputs": {"a/b": "uri_folder"}}, "outputs = 'a/b'"),
            ({"outputs": {"a": "folder"}}, "outputs a = 'folder': .*use uri_folder"),
            ({"home": "azureuser"}, "home = 'azureuser': is not an absolute path"),
            ({"command": ("a", "\0")}, "command = .*NUL"),
        ],
    )
    def test_specs_that_make_no_sense(self, change: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            JobSpec(**{"name": "t", "kind": "pytorch", "command": ("a",), **change})


def test_job_json_is_all_a_supervisor_needs() -> None:
    """Nothing in the plan but what JSON can carry there and back."""
    for spec in SPECS.values():
        result = made(spec).as_dict()
        assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize(
    ("size", "requires", "wanted"),
    [
        ("Standard_ND40rs_v2", ("torch",), "7.0"),
        ("Standard_ND96isr_H100_v5", ("numpy", "torch"), "9.0"),
        *(("Standard_ND40rs_v2", ("numpy",), None), ("Standard_HC44rs", ("torch",), None)),
        ("Standard_Unknown", ("torch",), None),
    ],
)
def test_the_gpus_of_the_size_are_what_a_jobs_torch_has_to_support(
    size: str, requires: tuple[str, ...], wanted: str | None
) -> None:
    spec = JobSpec("t", "pytorch", ("a",), requires=requires)
    assert plan(spec, UNEVEN, size=size, remote="hash").as_dict()["checks"].get("gpu") == wanted
