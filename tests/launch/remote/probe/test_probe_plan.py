"""A probe's plan: the job's, but for the program and what concerns the job's own files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.errors import InputError
from launch.remote.base.records import Plan
from launch.remote.head.runners.runner_spec import runner_spec
from launch.remote.probe import probe_plan
from launch.remote.probe.probe_plan import distances, programs_of, subject_of
from tests.launch.job.test_plan import NODES, SPECS, made

_CHANGED = {
    *(
        "argv",
        "expand",
        "cwd",
        "paths",
        "user_env",
        "nodes",
        "snapshot",
        "checks",
        "setup",
        "data",
        "uploads",
    ),
    *("output_folders", "services", "max_restarts", "min_nodes", "grace_s", "hostfile", "machinefile"),
}


def plan(kind: str, **fields: object) -> Plan:
    return made(replace(SPECS[kind], **fields)).as_dict()  # type: ignore[arg-type]


def make(job: Plan, program: int = 0) -> Plan:
    return probe_plan.make(job, programs_of(job)[program])


@pytest.mark.parametrize("kind", SPECS)
def test_the_nodes_environment_and_launcher_are_the_jobs(kind: str) -> None:
    job = plan(kind, env={"A": "1"})
    probe = make(job)
    assert {key for key in job if probe[key] != job[key]} <= _CHANGED  # type: ignore[literal-required]
    assert probe["user_env"]["A"] == "1"
    assert probe["user_env"]["NCCL_DEBUG"] == "INFO"
    assert [node["name"] for node in probe["nodes"]] == [node["name"] for node in job["nodes"]]


def test_its_files_are_in_a_folder_of_its_own() -> None:
    job = plan("pytorch")
    spec, probe = runner_spec(job, 0, None, 1, []), runner_spec(make(job), 0, None, 1, [])
    assert spec["folder"] == "~/.ranklift/jobs/digits-20260301-090507-0f3a"
    assert probe["folder"] == spec["folder"] + "/probe"
    assert probe["cwd"] == spec["folder"] + "/probe/work"
    assert probe["paths"]["RANKLIFT_OUTPUT_DIR"] == spec["folder"] + "/probe/work/outputs"
    assert (probe["snapshot"], probe["job"]) == ("", spec["job"])


@pytest.mark.parametrize("kind", ["pytorch", "per_node"])
def test_torch_gets_one_process_a_node_which_starts_those_of_its_gpus(kind: str) -> None:
    probe = make(plan(kind))
    assert [[one["rank"] for one in node["ranks"]] for node in probe["nodes"]] == [[0], [1], [2]]
    assert probe["argv"][:2] == ["python3", "-c"]
    assert "import torch" in probe["argv"][3]
    assert probe["argv"][4:] == ["3", "300"]


def test_nccl_tests_get_a_rank_for_each_gpu_that_the_job_holds() -> None:
    job = plan("per_node")
    probe = make(job, 1)
    assert [[one["rank"] for one in node["ranks"]] for node in probe["nodes"]] == [
        list(range(8)),
        list(range(8, 16)),
        list(range(16, 24)),
    ]
    assert probe["hostfile"] == "".join(f"{node.name} slots=8\n" for node in NODES)
    assert set(probe["mpirun"]) == set(plan("mpi")["mpirun"])
    assert "/opt/nccl-tests/build/all_reduce_perf" in probe["argv"][2]
    assert probe["drop"] == []  # the MPI's variables, by which the ranks find each other
    assert "UCX_LOG_LEVEL" not in probe["user_env"]  # MPI only starts them, over whatever it finds


def test_a_job_without_gpus_has_no_nccl_tests() -> None:
    planned = made(SPECS["pytorch"], [replace(node, slots=44) for node in NODES], size="Standard_HC44rs")
    assert [one.name for one in programs_of(planned.as_dict())] == ["torch"]


def test_mpirun_gets_the_jobs_own_ranks() -> None:
    job = plan("mpi")
    probe = make(job)
    assert (probe["nodes"], probe["mpirun"]) == (job["nodes"], job["mpirun"])
    assert "MPI_Sendrecv" in probe["argv"][3]
    assert probe["argv"][4:] == ["2"]


def test_the_program_runs_in_the_environment_that_the_job_names() -> None:
    assert make(plan("pytorch", python="/opt/env"))["argv"][0] == "python"
    assert make(plan("pytorch", python="/usr/bin/python3.12"))["argv"][0] == "/usr/bin/python3.12"


def test_logs_are_printed_and_not_written_to_files() -> None:
    files = {"NCCL_DEBUG_FILE": "/tmp/n.log", "UCX_LOG_FILE": "u", "NCCL_DEBUG": "WARN"}
    env = make(plan("pytorch", env=files))["user_env"]
    assert not {"NCCL_DEBUG_FILE", "UCX_LOG_FILE"} & env.keys()
    assert env["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize("ranks", [[1, 1], [8, 8, 8], [1, 3], [3, 1], [2, 1, 1], [1, 5, 2], [8] * 300])
def test_every_rank_sends_to_another_node(ranks: list[int]) -> None:
    node_of = [node for node, count in enumerate(ranks) for _ in range(count)]
    chosen = distances(ranks)
    for rank, node in enumerate(node_of):
        assert any(node_of[(rank + distance) % len(node_of)] != node for distance in chosen)
    if len(set(ranks)) == 1:
        assert chosen == [ranks[0]]


@pytest.mark.parametrize(
    ("probe", "env", "mode"),
    [
        (None, {}, "auto"),
        (True, {}, "on"),
        (False, {}, "off"),
        (None, {"NCCL_IB_DISABLE": "1"}, "off"),
        (None, {"NCCL_NET": "Socket"}, "off"),
        (None, {"NCCL_IB_DISABLE": "0"}, "auto"),
        (None, {"UCX_TLS": "tcp"}, "auto"),
    ],
)
def test_the_way_between_nodes_is_probed_unless_the_owner_does_without(
    probe: bool | None, env: dict[str, str], mode: str
) -> None:
    planned = made(replace(SPECS["pytorch"], probe=probe, env=env), rehearsed=True)
    assert planned.as_dict()["probe"] == {"mode": mode, "rehearsal": 1}


@pytest.mark.parametrize(
    ("env", "mode"),
    [
        ({"UCX_TLS": "tcp"}, "ranks"),
        ({"UCX_TLS": "tcp,sm"}, "ranks"),
        ({"FI_PROVIDER": "tcp"}, "ranks"),
        ({"UCX_TLS": "rc,sm"}, "auto"),
        ({"FI_PROVIDER": "mlx"}, "auto"),
        ({"UCX_TLS": "tcp", "NCCL_NET": "Socket"}, "off"),
    ],
)
def test_an_mpi_that_only_starts_nccl_is_not_probed(env: dict[str, str], mode: str) -> None:
    assert made(replace(SPECS["mpi"], env=env)).as_dict()["probe"]["mode"] == mode


@pytest.mark.parametrize(
    ("size", "nodes", "env", "problem"),
    [
        (
            "Standard_ND96is_H100_v5",
            2,
            {},
            "probe: Standard_ND96is_H100_v5 has no InfiniBand to prove; leave",
        ),
        ("Standard_Unknown", 2, {}, "probe: Standard_Unknown has no InfiniBand to prove; leave it out"),
        ("Standard_ND96asr_v4", 1, {}, "probe: one node reaches no other; leave it out, or take more nodes"),
        (
            *("Standard_ND96asr_v4", 2, {"NCCL_IB_DISABLE": "1"}),
            "probe: cannot be combined with NCCL_IB_DISABLE=1, which does without InfiniBand; give one",
        ),
    ],
)
def test_a_probe_with_nothing_to_prove_is_refused(
    size: str, nodes: int, env: dict[str, str], problem: str
) -> None:
    spec = replace(SPECS["pytorch"], probe=True, env=env)
    with pytest.raises(InputError) as error:
        made(spec, NODES[:nodes], size=size)
    assert str(error.value).startswith(problem)


def test_a_proof_is_of_an_environment_and_the_variables_of_its_libraries() -> None:
    """A container without InfiniBand's devices uses sockets where the node itself does not."""
    job = plan("pytorch")

    def subject(**fields: object) -> str:
        changed = {**job, **fields}
        return subject_of(changed, programs_of(changed)[0])  # type: ignore[arg-type]

    image = {**job["environment"], "id": "0123456789abcdef"}
    assert subject() == subject(user_env={"LR": "0.1"}, command=["other.py"])
    others = [subject(environment=image), subject(python="/opt/env"), subject(user_env={"NCCL_NET": "IB"})]
    assert len({subject(), *others}) == 4


def test_a_proof_is_of_one_mpi_and_its_arguments_for_any_number_of_ranks() -> None:
    def subject(**fields: object) -> str:
        job = plan("mpi", **fields)
        return subject_of(job, programs_of(job)[0])

    sockets = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")
    others = [subject(mpi="intelmpi"), subject(mpi_args=sockets), subject(mpi="openmpi", mpi_args=sockets)]
    assert len({subject(), *others}) == 4
    assert subject() == subject(processes_per_node=1)
