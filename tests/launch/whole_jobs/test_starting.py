"""Before the first rank: what nodes are asked for, and that none starts when one of them is unfit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from launch.job.spec import JobSpec, Kind
from launch.remote.node import torch_build
from launch.results.collect import collect
from tests.launch.standin import REMOTE, Nodes, left_of, lines, remarks, shell, start, states, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])
MARK = "touch $HOME/ran; echo ran"


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path, [2, 1, 2])


def module(nodes: Nodes, name: str, on: tuple[int, ...]) -> None:
    """Installs a module for the user of these nodes alone."""
    for index in on:
        home = nodes.folder / nodes.nodes[index].name
        query = ["/usr/bin/python3", "-c", "import site; print(site.getusersitepackages())"]
        site = Path(subprocess.check_output(query, env={"HOME": str(home)}, text=True).strip())
        site.mkdir(parents=True, exist_ok=True)
        (site / f"{name}.py").touch()


def ran(nodes: Nodes) -> list[str]:
    return [node.name for node in nodes.nodes if (nodes.folder / node.name / "ran").exists()]


class TestModules:
    @KINDS
    def test_all_nodes_without_one_are_told_at_once_and_no_rank_starts(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        module(nodes, "horovod", on=(0,))
        state, _ = nodes.run(shell(MARK, kind, requires=("json", "horovod")))
        assert (state.state, state.exit_status) == ("FAILED", 255)
        assert state.reason == (
            "no rank was started: node[000001-000002]: python3 has no module horovod: "
            "name what is missing in a file and give it with --requirements FILE (environment: in a job "
            "file), or name a Python that has it"
        )
        assert state.failure is not None
        assert (state.failure.rank, state.failure.node) == (None, "node000001")
        assert ran(nodes) == []
        assert left_of(state.job) == []

    def test_different_reasons_are_kept_apart_and_a_dead_node_is_among_them(self, nodes: Nodes) -> None:
        module(nodes, "horovod", on=(0,))
        nodes.down(2)
        state, _ = nodes.run(shell(MARK, requires=("horovod",)))
        result = state.reason.removeprefix("no rank was started: ").split("; ")
        assert [reason.partition(":")[0] for reason in result] == ["node000001", "node000002"]
        assert "No route to host" in result[1]
        assert ran(nodes) == []

    @KINDS
    def test_where_all_have_them_the_job_runs(self, nodes: Nodes, kind: Kind) -> None:
        module(nodes, "horovod", on=(0, 1, 2))
        state, _ = nodes.run(shell(MARK, kind, requires=("json", "horovod")))
        assert state.state == "SUCCEEDED"
        assert len(ran(nodes)) == 3

    def test_they_are_found_not_imported(self, nodes: Nodes) -> None:
        nodes.code("broken.py", "open('imported', 'w')")
        state, _ = nodes.run(shell("test ! -e imported", requires=("broken",)))
        assert state.state == "SUCCEEDED"

    @pytest.mark.parametrize("has_driver", [True, False])
    def test_a_torch_without_code_for_the_gpus_is_refused_where_a_driver_is_loaded(
        self, nodes: Nodes, tmp_path: Path, has_driver: bool
    ) -> None:
        driver = tmp_path / "version"
        if has_driver:
            driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun\n")
        for node in nodes.nodes:
            remote = nodes.folder / node.name / ".ranklift/remote/hash"
            remote.unlink()
            shutil.copytree(REMOTE, remote, ignore=shutil.ignore_patterns("__pycache__"))
            module = remote / "node/torch_build.py"
            module.write_text(module.read_text().replace(torch_build.DRIVER, str(driver)))
            torch = nodes.folder / node.name / ".ranklift/snapshots/code/torch"
            (torch / "lib").mkdir(parents=True)
            (torch / "__init__.py").touch()
            (torch / "version.py").write_text("__version__ = '2.15.0+cu132'\ncuda = '13.2'\n")
            (torch / "lib/libtorch_python.so").write_bytes(b"\0sm_75 sm_80 sm_90\0")
        state, _ = nodes.run(shell(MARK, requires=("torch",)))
        if not has_driver:
            assert state.state == "SUCCEEDED"
            return
        assert state.reason == (
            "no rank was started: node[000000-000002]: torch 2.15.0+cu132 is built for sm_75 sm_80 sm_90, "
            "and the GPUs here are sm_70; require torch<2.15 with --extra-index-url "
            "https://download.pytorch.org/whl/cu126"
        )
        assert ran(nodes) == []

    def test_a_python_that_breaks_is_told_with_its_last_line(self, nodes: Nodes) -> None:
        for node in nodes.nodes:
            python = nodes.folder / node.name / "python-x"
            python.write_text("#!/bin/sh\necho no libssl >&2; exit 1\n")
            python.chmod(0o755)
        state, _ = nodes.run(shell(MARK, requires=("json",), python="~/python-x"))
        assert "node[000000-000002]: ~/python-x could not look for modules: no libssl" in state.reason

    def test_the_slots_are_free_again(self, nodes: Nodes) -> None:
        nodes.run(shell(MARK, requires=("horovod",)))
        state, events = nodes.run(shell("echo hi"))
        assert state.state == "SUCCEEDED"
        assert "QUEUED" not in states(events)


class TestTheSetupLine:
    @KINDS
    def test_it_runs_once_a_node_in_the_working_directory_with_the_jobs_environment(
        self, nodes: Nodes, kind: Kind
    ) -> None:
        setup = 'echo "$NODE_RANK ${RANK-none} $MINE $MASTER_ADDR ${OMPI_COMM_WORLD_RANK-none}" >> setup.txt'
        spec = shell("cat setup.txt", kind, setup=setup, processes_per_node=None, env={"MINE": "a b"})
        state, events = nodes.run(spec)
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == [
            (rank, f"{node} none a b 127.0.0.1 none") for rank, node in enumerate([0, 0, 1, 2, 2])
        ]

    @KINDS
    def test_its_failure_names_the_nodes_and_shows_the_last_lines(self, nodes: Nodes, kind: Kind) -> None:
        setup = "echo installing; if [ $NODE_RANK != 0 ]; then echo no network >&2; exit 9; fi"
        state, events = nodes.run(shell(MARK, kind, setup=setup))
        reason = "no rank was started: node[000001-000002]: the setup line ended with exit status 9"
        assert state.reason == reason
        assert state.failure is not None
        assert sorted(state.failure.last_lines) == ["installing", "no network"]
        assert "no network" in remarks(events)
        assert ran(nodes) == []

    def test_what_it_installs_counts(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(MARK, setup="touch horovod.py", requires=("horovod",)))
        assert state.state == "SUCCEEDED"

    def test_a_server_that_it_leaves_behind_lasts_as_long_as_the_job(self, nodes: Nodes) -> None:
        setup = "(setsid sh -c 'touch up; sleep 300' &) ; until [ -e up ]; do sleep 0.01; done"
        state, events = nodes.run(shell("pgrep -f 'touch [u]p' >/dev/null && echo serves", setup=setup))
        assert [text for _, text in lines(events)] == ["serves"] * 3
        assert left_of(state.job) == []

    def test_its_output_is_kept_and_collected(self, nodes: Nodes, tmp_path: Path) -> None:
        state, _ = nodes.run(shell("true", setup="echo prepared"))
        report = collect(state.job, nodes.head, tmp_path / "results", remote="hash")
        kept = [path.read_text() for path in (report.folder / "logs").glob("setup-*.log")]
        assert kept
        assert set("".join(kept).split()) == {"prepared"}

    @KINDS
    def test_a_job_can_be_cancelled_while_it_runs(self, nodes: Nodes, kind: Kind) -> None:
        started = start(nodes, shell(MARK, kind, setup="echo begun; sleep 300"))
        until(lambda: remarks(started.events).count("begun") == 3)
        assert nodes.cancel(started.job).state == "CANCELLED"
        assert left_of(started.job) == []
        assert ran(nodes) == []

    def test_the_jobs_time_limit_holds_for_it(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(MARK, setup="sleep 300", timeout_s=0.5))
        assert (state.state, state.exit_status) == ("FAILED", 124)
        assert left_of(state.job) == []


class TestWhatNodesMustHave:
    def test_shared_memory(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(MARK, shm_bytes=1 << 60))
        assert re.search(
            r"node\[000000-000002\]: /dev/shm holds \d+ MiB, the job asks for 1099511627776 MiB: "
            r"lower it, e.g. --set resources.shm_size=\d+m",
            state.reason,
        )
        assert ran(nodes) == []
        assert nodes.run(shell(MARK, shm_bytes=1))[0].state == "SUCCEEDED"

    def test_the_script_that_is_no_part_of_the_code(self, nodes: Nodes) -> None:
        state, _ = nodes.run(JobSpec("t", "pytorch", ("/opt/nowhere/train.py",)))
        assert "node[000000-000002]: there is no /opt/nowhere/train.py; scripts of the code" in state.reason
        assert ran(nodes) == []
        made = JobSpec("t", "pytorch", ("made.sh",), setup=f"echo '{MARK}' > made.sh")
        assert nodes.run(made)[0].state == "SUCCEEDED"

    def test_the_folder_that_python_names(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(MARK, python="~/env"))
        assert "node[000000-000002]: python = ~/env: the folder has no bin/python" in state.reason
        assert ran(nodes) == []

    def test_an_environment_that_is_not_there_any_more(self, nodes: Nodes) -> None:
        state, _ = nodes.run(shell(MARK, python="~/.ranklift/environments/5eed"))
        path = ".ranklift/environments/5eed/bin/python is not on this node any more"
        assert f"{path}: `fab environment.rm 5eed` removes the environment" in state.reason
        assert ran(nodes) == []

    def test_the_command_that_python_names(self, nodes: Nodes) -> None:
        nodes.code("a.py", "")
        state, _ = nodes.run(JobSpec("t", "pytorch", ("a.py",), snapshot="code", python="python9.9"))
        assert "node[000000-000002]: python = python9.9: command not found" in state.reason


class TestPython:
    @KINDS
    def test_an_environments_bin_comes_first_for_setup_and_ranks(self, nodes: Nodes, kind: Kind) -> None:
        for node in nodes.nodes:
            folder = nodes.folder / node.name / "env/bin"
            folder.mkdir(parents=True)
            (folder / "python").write_text('#!/bin/sh\necho mine; exec python3 "$@"\n')
            (folder / "python").chmod(0o755)
            (folder / "tool").write_text("#!/bin/sh\necho tool\n")
            (folder / "tool").chmod(0o755)
        nodes.code("a.py", "import os; print(os.environ['VIRTUAL_ENV'].endswith('/env'))")
        spec = JobSpec(
            "t", kind, ("a.py",), snapshot="code", python="~/env", setup="tool > set", requires=("json",),
            env={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        state, events = nodes.run(spec)
        assert state.state == "SUCCEEDED"
        assert sorted(lines(events)) == sorted(
            [(rank, text) for rank in range(3) for text in ("mine", "True")]
        )
        assert (nodes.folder / "node000002/.ranklift/jobs" / state.job / "work/set").read_text() == "tool\n"

    @KINDS
    def test_a_node_without_python_runs_python3_under_that_name(self, nodes: Nodes, kind: Kind) -> None:
        for tool in ("sh", "bash", "env", "python3", "mpirun", "orted", "sleep"):
            (nodes.bin / tool).symlink_to(f"/usr/bin/{tool}")
        spec = shell("python -c 'import sys; print(sys.version_info[0])'", kind, env={"PATH": str(nodes.bin)})
        state, events = nodes.run(spec)
        assert {text for _, text in lines(events)} == {"3"}
        assert state.state == "SUCCEEDED"

    def test_a_python_that_is_there_stays(self, nodes: Nodes) -> None:
        (nodes.bin / "python").write_text("#!/bin/sh\necho own\n")
        (nodes.bin / "python").chmod(0o755)
        assert {text for _, text in lines(nodes.run(shell("python"))[1])} == {"own"}


def test_folders_for_outputs_are_there_on_every_node(nodes: Nodes) -> None:
    script = 'cd "$RANKLIFT_OUTPUT_DIR"; for n in *; do echo "$n"; done'
    spec = shell(script, outputs={"model": "uri_folder", "report": "uri_file", "best-1": "mlflow_model"})
    _, events = nodes.run(spec)
    assert sorted(lines(events)) == [(rank, name) for rank in range(3) for name in ("best-1", "model")]


def test_a_slow_node_holds_every_rank_back(nodes: Nodes) -> None:
    spec = shell("date +%s.%N", setup='[ $NODE_RANK = 1 ] && sleep 1; date +%s.%N > done; echo "$(cat done)"')
    _, events = nodes.run(spec)
    begun = [float(text) for _, text in lines(events)]
    prepared = [float(text) for text in re.findall(r"^\d+\.\d+$", remarks(events), re.M)]
    assert len(begun) == len(prepared) == 3
    assert min(begun) > max(prepared)


def test_what_people_call_a_job_is_shown_with_its_state(nodes: Nodes) -> None:
    spec = shell("true", display_name="First try", experiment="digits", description="d", tags={"a": "b"})
    state, _ = nodes.run(spec)
    (listed,) = nodes.jobs()
    assert listed == state
    assert (listed.display_name, listed.experiment, listed.description, listed.tags) == (
        "First try", "digits", "d", {"a": "b"},
    )  # fmt: skip
    kept = json.loads((nodes.folder / "node000000/.ranklift/jobs" / state.job / "job.json").read_text())
    assert kept["tags"] == {"a": "b"}


@KINDS
def test_starting_three_nodes_takes_no_noticeable_time(nodes: Nodes, kind: Kind) -> None:
    begun = time.monotonic()
    nodes.run(shell("true", kind))
    assert time.monotonic() - begun < 4
