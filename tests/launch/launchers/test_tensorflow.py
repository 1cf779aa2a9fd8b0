"""TensorFlow jobs: which task is where, what TF_CONFIG says of it, and when such a job is over."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from launch.errors import InputError
from launch.job.plan import JobPlan, plan
from launch.job.spec import JobNode, JobSpec
from tests.launch.standin import Nodes, left_of, lines, start, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

NODES = tuple(JobNode(f"node00000{i}", f"10.0.0.{4 + i}", slots) for i, slots in enumerate((2, 1, 2)))


def job(**options: Any) -> JobSpec:
    settings: dict[str, Any] = {"command": ("train.py",), "snapshot": "code", **options}
    return JobSpec(name="t", kind="tensorflow", **settings)


def made(**options: Any) -> JobPlan:
    return plan(job(**options), NODES, size="Standard_NC24rs_v3", remote="hash")


def shell(script: str, **options: Any) -> JobSpec:
    return job(command=("sh", "-c", script), **options)


def tasks(planned: JobPlan) -> list[list[tuple[int, str]]]:
    return [[(rank.rank, rank.task) for rank in node.ranks] for node in planned.nodes]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [2, 1, 2])


class TestPlacement:
    def test_without_a_count_every_node_has_one_worker(self) -> None:
        planned = made()
        assert tasks(planned) == [[(0, "worker")], [(1, "worker")], [(2, "worker")]]
        assert [node.reserve for node in planned.nodes] == [2, 1, 2]

    def test_without_a_count_the_chief_is_the_first_of_them(self) -> None:
        assert tasks(made(chief=True)) == [[(0, "chief")], [(1, "worker")], [(2, "worker")]]

    def test_tasks_are_dealt_out_in_turn_workers_first(self) -> None:
        planned = made(workers=2, parameter_servers=2)
        assert tasks(planned) == [[(0, "worker"), (3, "ps")], [(1, "worker")], [(2, "ps")]]
        assert [node.reserve for node in planned.nodes] == [2, 1, 0]
        assert planned.as_dict()["services"] == [3, 2]

    def test_a_chief_is_beside_the_workers_that_are_counted(self) -> None:
        planned = made(workers=2, parameter_servers=1, chief=True)
        assert tasks(planned) == [[(0, "chief"), (3, "ps")], [(1, "worker")], [(2, "worker")]]
        assert sorted(planned.as_dict()["services"]) == [1, 2, 3]

    def test_several_workers_on_a_node_only_when_asked(self) -> None:
        planned = made(workers=3)
        assert [len(node.ranks) for node in planned.nodes] == [1, 1, 1]
        more = plan(job(workers=4), NODES[::2], size="x", remote="hash")
        assert tasks(more) == [[(0, "worker"), (2, "worker")], [(1, "worker"), (3, "worker")]]

    def test_tf_config_is_exactly_azure_mls(self) -> None:
        assert made().environment(1)["TF_CONFIG"] == (
            '{"cluster": {"worker": ["10.0.0.4:2222", "10.0.0.5:2222", "10.0.0.6:2222"]}, '
            '"task": {"type": "worker", "index": 1}, "environment": "cloud"}'
        )

    def test_tf_config_of_all_types(self) -> None:
        planned = made(workers=2, parameter_servers=1, chief=True)
        result = [json.loads(planned.environment(rank)["TF_CONFIG"]) for rank in range(4)]
        assert list(result[0]["cluster"].items()) == [
            ("chief", ["10.0.0.4:2222"]),
            ("worker", ["10.0.0.5:2222", "10.0.0.6:2222"]),
            ("ps", ["10.0.0.4:2223"]),
        ]
        assert all(config["cluster"] == result[0]["cluster"] for config in result)
        assert [(config["task"]["type"], config["task"]["index"]) for config in result] == [
            ("chief", 0),
            ("worker", 0),
            ("worker", 1),
            ("ps", 0),
        ]

    def test_tasks_that_share_a_node_have_their_numbers_there(self) -> None:
        planned = made(workers=3, parameter_servers=1)
        numbers = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "WORLD_SIZE")
        assert [planned.environment(3)[name] for name in numbers] == ["3", "1", "2", "0", "4"]


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"parameter_servers": 1}, "parameter_servers = 1: need workers; set the number"),
            ({"workers": 0}, "workers = 0: must be at least 1"),
            ({"workers": 1, "parameter_servers": -1}, "parameter_servers = -1: is not a number"),
            ({"workers": 2}, "workers = 2: makes 2 tasks for 3 nodes; choose fewer nodes"),
            ({"workers": 5}, "workers = 5: puts 2 tasks on node000001, which has 1 slot"),
            ({"processes_per_node": 2}, "processes_per_node = 2: is not for tensorflow jobs"),
            ({"per_node": True}, "per_node = True: is for pytorch jobs"),
            ({"env": {"TF_CONFIG": "{}"}}, "env TF_CONFIG: is set by the launcher"),
            ({"mpi": "mpich"}, "mpi = 'mpich': is for mpi jobs"),
            ({"mpi_args": ("-v",)}, "mpi_args = .*: is for mpi jobs"),
        ],
    )
    def test_jobs_that_make_no_sense(self, change: dict[str, Any], words: str) -> None:
        with pytest.raises(InputError, match=words):
            made(**change)

    @pytest.mark.parametrize("change", [{"workers": 1}, {"parameter_servers": 1}, {"chief": True}])
    @pytest.mark.parametrize("kind", ["mpi", "pytorch"])
    def test_tasks_are_for_tensorflow_jobs(self, kind: Any, change: dict[str, Any]) -> None:
        (key,) = change
        with pytest.raises(InputError, match=f"{key} = .*: is for tensorflow jobs"):
            JobSpec("t", kind, ("a",), **change)


class TestRunning:
    def test_every_task_gets_its_own_config(self, nodes: Nodes) -> None:
        spec = shell('echo "$TF_CONFIG"', workers=3, chief=False)
        state, events = nodes.run(spec)
        assert state.state == "SUCCEEDED"
        result = {rank: json.loads(text) for rank, text in lines(events)}
        assert [result[rank]["task"] for rank in range(3)] == [
            {"type": "worker", "index": index} for index in range(3)
        ]

    def test_they_see_nothing_of_mpi(self, nodes: Nodes) -> None:
        nodes.env.update(OMPI_COMM_WORLD_SIZE="1", PMIX_RANK="0", PMI_SIZE="1")
        _, events = nodes.run(shell("env | grep -E '^(OMPI|PMIX|PMI)_' || echo none"))
        assert {text for _, text in lines(events)} == {"none"}

    def test_a_port_in_use_is_passed_over_and_everybody_knows(self, nodes: Nodes) -> None:
        with socket.socket() as taken:
            try:
                taken.bind(("", 2222))
                taken.listen()
            except OSError:
                pass  # somebody else has it, which is as good
            _, events = nodes.run(shell('echo "$TF_CONFIG"', workers=4, parameter_servers=0))
        configs = [json.loads(text) for _, text in lines(events)]
        (cluster,) = {json.dumps(config["cluster"]) for config in configs}
        ports = [int(address.rpartition(":")[2]) for address in json.loads(cluster)["worker"]]
        assert min(ports) > 2222
        assert ports[3] > ports[0]  # both on the first node

    def test_two_jobs_on_one_node_have_ports_of_their_own(self, tmp_path: Path) -> None:
        nodes = Nodes(tmp_path, [4])
        script, goes = 'echo "$TF_CONFIG"', tmp_path / "the-second-has-ended"
        first = start(nodes, shell(f"{script}; until [ -e {goes} ]; do sleep 0.1; done", workers=2))
        until(lambda: len(lines(first.events)) == 2)
        _, events = nodes.run(shell(script, workers=2))
        goes.touch()
        used = [
            set(json.loads(text)["cluster"]["worker"]) for e in (first.events, events) for _, text in lines(e)
        ]
        assert used[0] == used[1]
        assert used[2] == used[3]
        assert not used[0] & used[2]
        assert first.end().state == "SUCCEEDED"

    def test_tasks_that_share_a_node_share_its_devices_and_servers_get_none(self, tmp_path: Path) -> None:
        nodes = Nodes(tmp_path, [4])
        script = 'echo "<$CUDA_VISIBLE_DEVICES>"; case $TF_CONFIG in *\'"type": "ps"\'*) sleep 60;; esac'
        script += "; sleep 0.5"
        state, events = nodes.run(shell(script, workers=2, parameter_servers=1))
        assert state.state == "SUCCEEDED"
        assert dict(lines(events)) == {0: "<0>", 1: "<1>", 2: "<>"}

    @pytest.mark.parametrize("options", [{"workers": 2}, {"workers": 1, "chief": True}])
    def test_servers_are_stopped_when_the_others_are_done(
        self, nodes: Nodes, options: dict[str, Any]
    ) -> None:
        script = """
        trap "" TERM
        case $TF_CONFIG in *'"type": "ps"'*) while :; do sleep 1; done;; *) sleep 0.3;; esac
        """
        begun = time.monotonic()
        state, _ = nodes.run(shell(script, parameter_servers=1, grace_s=0.5, **options))
        assert (state.state, state.exit_status, state.failure) == ("SUCCEEDED", 0, None)
        assert time.monotonic() - begun < 10
        assert left_of(state.job) == []

    def test_with_a_chief_its_end_is_the_jobs(self, nodes: Nodes) -> None:
        script = 'case $TF_CONFIG in *\'"type": "chief"\'*) sleep 0.3;; *) sleep 60;; esac'
        state, _ = nodes.run(shell(script, workers=1, parameter_servers=1, chief=True))
        assert (state.state, state.exit_status) == ("SUCCEEDED", 0)
        assert left_of(state.job) == []

    @pytest.mark.parametrize("who", ["worker", "ps"])
    def test_a_task_that_fails_fails_the_job(self, nodes: Nodes, who: str) -> None:
        script = f'case $TF_CONFIG in *\'"type": "{who}"\'*) echo dying; exit 4;; *) sleep 60;; esac'
        state, _ = nodes.run(shell(script, workers=2, parameter_servers=1))
        assert (state.state, state.exit_status) == ("FAILED", 4)
        assert state.failure is not None
        assert state.failure.last_lines == ("dying",)
        assert left_of(state.job) == []
