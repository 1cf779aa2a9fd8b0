"""``fab launch job.yml`` up to the point where it would connect: the plan, the choice of nodes, refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.inventory import INVENTORY_FILE, Inventory, Node
from tests.playbooks.typed import write_project

ROOT = Path(__file__).resolve().parents[3]
FAB = str(Path(sys.executable).with_name("fab"))
GOLDEN = Path(__file__).parent / "golden"
JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: >-
  python train.py --lr ${{inputs.lr}} --table ${{inputs.table}} --images ${{inputs.images}}
  --model ${{outputs.model}} --rank $RANK
code: src
environment: azureml:AzureML-acpt-pytorch-2.2-cuda12.1@latest
compute: azureml:gpu-cluster
inputs:
  lr: 0.10
  table: {type: uri_file, path: table.csv}
  images: {type: uri_folder, path: file:///mnt/images}
outputs:
  model:
environment_variables:
  NCCL_DEBUG: INFO
  QUOTED: "a 'b' $c"
distribution:
  type: KIND
  process_count_per_instance: 2
resources:
  instance_count: 3
  shm_size: 2g
limits:
  timeout: 600
"""

Fab = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's repository beside the project, whose stack ``dev`` had four nodes of 8, 8, 8 and 4 slots."""
    project, own = tmp_path / "ranklift", tmp_path / "own"
    stack = project / ".ranklift" / "dev"
    stack.mkdir(parents=True)
    write_project(project)
    nodes = tuple(
        Node(f"node{n:06x}", n, f"10.0.0.{n + 4}", "127.0.0.1", 50000 + n, 4 if n == 3 else 8, "running")
        for n in range(4)
    )
    saved = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "azureuser", nodes, 0.0)
    (stack / INVENTORY_FILE).write_text(json.dumps(asdict(saved)))
    (own / "src").mkdir(parents=True)
    (own / "src" / "train.py").write_text("import torch\n")
    (own / "table.csv").write_text("a,b\n")
    (own / ".gitignore").write_text("*.csv\n")
    (own / "fabfile.py").write_text(
        'from playbooks import ns\nns.configure({"ranklift": {"project": "../ranklift"}})\n'
    )
    return own


@pytest.fixture
def fab(own: Path) -> Fab:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FAB, *arguments],
            cwd=own,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def planned(fab: Fab, *arguments: str) -> dict[str, object]:
    ran = fab("launch", *arguments, "--dry-run", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


def names(plan: dict[str, object]) -> list[str]:
    nodes = plan["nodes"]
    assert isinstance(nodes, list)
    return [node["name"] for node in nodes]


@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_a_dry_run_of_3_nodes_with_2_processes_shows_all_that_would_be_run(
    fab: Fab, own: Path, kind: str
) -> None:
    (own / "job.yml").write_text(JOB.replace("KIND", kind))
    ran = fab("launch", "job.yml", "--dry-run")
    assert (ran.returncode, ran.stderr) == (0, "")
    settled = re.sub(r"train-\d{8}-\d{6}-[0-9a-f]{4}", "train-20260301-090507-0f3a", ran.stdout)
    settled = re.sub(r"remote/[0-9a-f]{12}", "remote/0123456789ab", settled).replace(str(own), "/own")
    golden = GOLDEN / f"dry-run-{kind}.txt"
    assert settled == golden.read_text()


def test_a_job_without_a_distribution_is_shown_as_the_one_process_it_is(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\n")
    ran = fab("launch", "job.yml", "--dry-run").stdout
    assert "\nkind       one process\n" in ran
    assert "pytorch" not in ran


def test_nodes_are_replaced_before_the_job_where_the_file_or_an_option_says_so(fab: Fab, own: Path) -> None:
    notice = "a launch looks at the nodes first, and replaces those with errors"
    (own / "job.yml").write_text("command: hostname\nranklift: {on_unhealthy: replace}\n")
    assert notice in fab("launch", "job.yml", "--dry-run").stdout
    assert notice not in fab("launch", "job.yml", "--on-unhealthy", "refuse", "--dry-run").stdout
    script = ("src/train.py", "--dry-run")
    assert notice in fab("launch.torch", *script, "--on-unhealthy", "replace").stdout
    assert notice not in fab("launch.torch", *script).stdout
    refused = fab("launch.torch", *script, "--on-unhealthy", "drain")
    assert refused.returncode == 2
    assert "--on-unhealthy = 'drain': is not known; give refuse or replace" in refused.stderr


def test_a_job_with_a_mistake_is_refused_before_a_node_is_looked_at(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: python gone.py\ncode: src\nranklift: {on_unhealthy: replace}\n")
    assert "command = 'gone.py': runs gone.py, which is not in the code" in fab("launch", "job.yml").stderr
    refused = fab("launch.torch", "src/gone.py", "--on-unhealthy", "replace").stderr
    assert "script = 'src/gone.py': is not in the pushed code" in refused


def test_restarts_and_the_grace_are_shown_and_options_win_over_the_file(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\nranklift: {max_restarts: 2, grace: 1m}\n")
    ran = fab("launch", "job.yml", "--dry-run").stdout
    assert "\nrestarts   up to 2 after a failure, on the same nodes\n" in ran
    assert "\ngrace      60 s\n" in ran
    plan = planned(fab, "job.yml", "--max-restarts", "0", "--grace", "5s")
    assert (plan["max_restarts"], plan["grace_s"], plan["min_nodes"]) == (0, 5, None)


def test_a_probe_is_planned_as_the_options_say_and_refused_where_it_proves_nothing(
    fab: Fab, own: Path
) -> None:
    (own / "job.yml").write_text(JOB.replace("KIND", "pytorch"))
    assert planned(fab, "job.yml")["probe"] == {"mode": "auto", "rehearsal": 0}
    assert planned(fab, "job.yml", "--probe")["probe"] == {"mode": "on", "rehearsal": 0}
    assert planned(fab, "job.yml", "--no-probe")["probe"] == {"mode": "off", "rehearsal": 0}
    shown = [
        fab("launch", "job.yml", "--dry-run", *more).stdout for more in ((), ("--probe",), ("--no-probe",))
    ]
    assert "\nprobe " not in shown[0]
    assert "\nprobe      before any rank starts: only InfiniBand between nodes will do\n" in shown[1]
    assert "\nprobe      off: nothing proves InfiniBand between nodes\n" in shown[2]
    ran = fab("launch", "job.yml", "--dry-run", "--probe", "--no-probe")
    assert "--probe: cannot be combined with --no-probe; give one of the two" in ran.stderr
    (own / "job.yml").write_text("command: hostname\nranklift: {probe: true}\n")
    ran = fab("launch", "job.yml", "--dry-run")
    assert "job.yml, line 2: ranklift.probe: one node reaches no other; leave it out" in ran.stderr
    ran = fab("launch", "job.yml", "--dry-run", "--probe")
    assert "--probe: one node reaches no other" in ran.stderr


def test_metrics_are_the_files_with_the_options_over_them(fab: Fab, own: Path) -> None:
    own_block = "ranklift: {metrics: {psnr: 'PSNR: ([0-9.]+)', step: 'batch (\\d+)'}}\n"
    (own / "job.yml").write_text(JOB.replace("KIND", "pytorch") + own_block)
    assert planned(fab, "job.yml")["metrics"] == {"psnr": "PSNR: ([0-9.]+)", "step": "batch (\\d+)"}
    more = ("--metric", "step=at (.*)=", "--metric", "bleu=(.)")
    metrics = {"psnr": "PSNR: ([0-9.]+)", "step": "at (.*)=", "bleu": "(.)"}
    assert planned(fab, "job.yml", *more)["metrics"] == metrics
    line = fab("launch.torch", "src/train.py", "--source", ".", "--metric", "psnr=(x)", "--dry-run", "--json")
    assert json.loads(line.stdout)["metrics"] == {"psnr": "(x)"}
    assert "\nmetric     psnr: PSNR: ([0-9.]+)\n" in fab("launch", "job.yml", "--dry-run").stdout
    refused = {
        "psnr": "--metric = 'psnr': is not NAME=PATTERN; write it like",
        "psnr=x": "--metric psnr = 'x': has 0 groups; put one pair of parentheses around the number",
        "psnr=(x": "--metric psnr = '(x': is not a pattern: missing ), unterminated subpattern at position 0",
        "P=(x)": "--metric P: is not a valid name for a metric; use up to 32 lower-case letters",
    }
    for given, reason in refused.items():
        assert reason in fab("launch", "job.yml", "--dry-run", "--metric", given).stderr
    ran = fab("launch", "job.yml", "--dry-run", "--metric", "a=(x)", "--metric", "a=(y)")
    assert "--metric = 'a': is given twice" in ran.stderr


def test_two_dry_runs_differ_in_the_jobs_id_alone(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text(JOB.replace("KIND", "mpi"))
    first, second = (fab("launch", "job.yml", "--dry-run").stdout for _ in range(2))
    one, other = (re.findall(r"train-\d{8}-\d{6}-[0-9a-f]{4}", text)[0] for text in (first, second))
    assert first.replace(one, "id") == second.replace(other, "id")


def test_an_input_that_an_ignore_file_names_is_pushed_all_the_same(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text(JOB.replace("KIND", "pytorch"))
    ran = fab("launch", "job.yml", "--dry-run").stdout
    (snapshot,) = re.findall(r"^data +/.*/table\.csv: snapshot (\w{16}), 1 file, 4 B$", ran, re.MULTILINE)
    assert f"--table /home/azureuser/.ranklift/snapshots/{snapshot}/table.csv " in ran


@pytest.mark.parametrize(
    ("extra", "options", "expected"),
    [
        ("", [], "0"),
        ("resources: {instance_count: 2}\n", [], "0-1"),
        ("resources: {instance_count: 2}\n", ["--nodes", "1-3"], "1-3"),
        ("ranklift: {nodes: '1,3'}\n", [], "1,3"),
        ("ranklift: {nodes: [1, 3]}\n", ["--nodes", "0"], "0"),
        ("", ["--set", "resources.instance_count=3"], "0-2"),
        ("", ["--nodes", "node000001-node000003"], "1-3"),
        ("ranklift: {nodes: 'any:3'}\n", [], "0-2"),
        ("ranklift: {nodes: 'any:3'}\n", ["--nodes", "all"], "0-3"),
    ],
)
def test_which_nodes(fab: Fab, own: Path, extra: str, options: list[str], expected: str) -> None:
    from launch.nodeset import parse_ranges

    (own / "job.yml").write_text(f"command: hostname\ndistribution: {{type: mpi}}\n{extra}")
    plan = planned(fab, "job.yml", *options)
    assert names(plan) == [f"node{number:06x}" for number in parse_ranges(expected)]


def test_options_win_over_the_file(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text(JOB.replace("KIND", "mpi"))
    plan = planned(
        fab,
        *("job.yml", "--nproc-per-node", "auto", "--env", "NCCL_DEBUG=WARN", "--env", "X=1 2"),
        *("--set", "inputs.lr=0.5", "--timeout", "2m", "--name", "mine", "--nodes", "2-3"),
    )
    argv, nodes, env = plan["argv"], plan["nodes"], plan["user_env"]
    assert isinstance(argv, list)
    assert isinstance(nodes, list)
    assert "--lr 0.5 " in argv[2]
    assert [len(node["ranks"]) for node in nodes] == [8, 4]
    assert env == dict.fromkeys(["NCCL_DEBUG", "QUOTED", "X"])
    assert plan["timeout_s"] == 120
    assert str(plan["id"]).startswith("mine-")


def test_a_job_without_code_pushes_nothing_and_works_in_a_folder_of_its_own(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\n")
    plan = planned(fab, "job.yml")
    assert plan["snapshot"] == ""
    assert plan["cwd"] == f"~/.ranklift/jobs/{plan['id']}/work"


DISTRIBUTED = "command: python train.py\ncode: src\ndistribution:\n  type: mpi\n"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("comand: x\ncommand: hostname\n", [], "job.yml, line 1: comand = 'x': unknown key"),
        (
            "command: python nope.py\ncode: src\n",
            [],
            "job.yml, line 1: command = 'nope.py': runs nope.py, which",
        ),
        (
            DISTRIBUTED + "  process_count_per_instance: 9\n",
            [],
            "job.yml, line 5: distribution.process_count_per_instance = 9: node000000 has 8 slots; ask for",
        ),
        (DISTRIBUTED, ["--nproc-per-node", "9"], "--nproc-per-node = 9: node000000 has 8 slots"),
        (DISTRIBUTED, ["--nproc-per-node", "some"], "--nproc-per-node = 'some': is not a number of"),
        (DISTRIBUTED + "ranklift:\n  mpirun_args: [-np, 2]\n", [], "line 6: ranklift.mpirun_args = '-np 2'"),
        ("command: torchrun --nnodes 2 a\n", [], "job.yml, line 1: command = '--nnodes 2': the job has 1"),
        (
            DISTRIBUTED + "resources:\n  instance_count: 5\n",
            [],
            "job.yml, line 6: resources.instance_count = 5: stack dev has 4 nodes; ask for fewer, or set",
        ),
        (
            DISTRIBUTED + "ranklift:\n  nodes: 0-7\n",
            [],
            "job.yml, line 6: ranklift.nodes = '0-7': 4, 5, 6, 7 are not nodes of stack dev",
        ),
        (
            DISTRIBUTED + "resources:\n  instance_count: 2\nranklift: {nodes: 0-2}\n",
            [],
            "line 6: resources.instance_count = 2: job.yml, line 7 names 3 nodes; make the two agree",
        ),
        ("command: hostname\n", ["--nodes", "0-1"], "job.yml: 2 nodes without a distribution would each do"),
        (DISTRIBUTED, ["--set", "limits.timeout"], "--set = 'limits.timeout': is not KEY=VALUE"),
        (DISTRIBUTED, ["--set", "limit.timeout=3"], "--set limit.timeout: limit: unknown key"),
        (DISTRIBUTED, ["--env", "RANK=0"], "--env RANK: is set by the launcher"),
        (
            "command: ls ${{inputs.a}}\ninputs:\n  a:\n    path: void\n",
            [],
            "job.yml, line 4: inputs.a.path = '",
        ),
        ("command: ls\ncode: void\n", [], "job.yml, line 2: code = "),
    ],
)
def test_wrong_input_is_one_line_with_status_2_before_anything_connects(
    fab: Fab, own: Path, text: str, options: list[str], expected: str
) -> None:
    (own / "void").mkdir()
    (own / "job.yml").write_text(text)
    ran = fab("launch", "job.yml", *options)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert expected in ran.stderr


def test_notices_go_to_stderr_once_and_the_plan_alone_to_stdout(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\ncompute: x\nqueue_settings: {}\n")
    ran = fab("launch", "job.yml", "--dry-run", "--json")
    taken = "no --nodes and no resources.instance_count: the job takes 1 of 4 nodes of stack dev"
    assert ran.stderr == f"job.yml: ignored here: compute, queue_settings\n{taken}\n"
    json.loads(ran.stdout)


def test_an_option_replaces_the_environment_of_the_file_and_the_plan_names_it(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\nenvironment: azureml:missing:1\n")
    refused = fab("launch", "job.yml", "--dry-run")
    assert refused.returncode == 2
    assert "job.yml, line 2: environment = 'azureml:missing:1': there is no missing.yml in" in refused.stderr
    (own / "requirements.txt").write_text("torch\nnumpy\n")
    ran = fab("launch", "job.yml", "--requirements", "requirements.txt", "--find-links", ".", "--dry-run")
    assert f"\nruns in    requirements.txt: 2 packages of pip, wheels of {own}\n" in ran.stdout
    shown = planned(fab, "job.yml", "--image", "python:3.12")["environment"]
    assert shown == {"kind": "image", "id": "", "path": "", "runtime": "bare", "title": "python:3.12"}
    assert (
        "\nruns in    the nodes as they are\n"
        in fab("launch", "job.yml", "--environment", "bare", "--dry-run").stdout
    )


def test_an_environment_of_the_current_folder_is_found_though_other_code_is_pushed(
    fab: Fab, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("pass\n")
    (own / "environments").mkdir()
    (own / "environments" / "mine.yml").write_text(
        "name: mine\nconda_file: {dependencies: [python=3.11, numpy]}\n"
    )
    words = ["--source", str(tmp_path / "code"), "--environment", "mine", "--dry-run"]
    assert "\nruns in    mine: Python 3.11, " in fab("launch.torch", "train.py", *words).stdout


def test_what_modules_of_the_code_import_is_required_too(fab: Fab, own: Path) -> None:
    (own / "src/train.py").write_text("import net\n")
    (own / "src/net.py").write_text("import torch\n")
    (own / "job.yml").write_text("command: python train.py\ncode: src\n")
    assert "\nneeds      torch\n" in fab("launch", "job.yml", "--dry-run").stdout
    (own / "job.yml").write_text("command: python -m train\ncode: src\n")
    assert "\nneeds      torch\n" in fab("launch", "job.yml", "--dry-run").stdout


def test_an_environment_of_the_project_is_found_by_its_name(fab: Fab, own: Path) -> None:
    folder = own.parent / "ranklift" / "environments"
    folder.mkdir()
    (folder / "train.yml").write_text("name: train\nconda_file: {dependencies: [python=3.11, numpy]}\n")
    line = "\nruns in    train: Python 3.11, 1 package of conda\n"
    assert line in fab("launch.torch", "src/train.py", "--environment", "train", "--dry-run").stdout


def test_a_python_of_the_nodes_is_not_combined_with_one_that_is_made(fab: Fab, own: Path) -> None:
    (own / "conda.yml").write_text("dependencies: [pip: [torch]]\n")
    text = "command: hostname\nenvironment: azureml:missing:1\nranklift:\n  python: /opt/env\n"
    (own / "job.yml").write_text(text)
    refused = fab("launch", "job.yml", "--conda", "conda.yml", "--dry-run")
    assert refused.returncode == 2
    assert (
        "job.yml, line 4: ranklift.python = '/opt/env': cannot be combined with conda.yml" in refused.stderr
    )
    notice = (
        "note       job.yml, line 2: environment is not used: ranklift.python names a Python of the nodes\n"
    )
    assert notice in fab("launch", "job.yml", "--dry-run").stdout


@pytest.mark.parametrize("task", [("launch", "job.yml"), ("launch.torch", "src/train.py")])
def test_two_environments_at_once_are_refused(fab: Fab, own: Path, task: tuple[str, str]) -> None:
    (own / "job.yml").write_text("command: hostname\n")
    refused = fab(*task, "--image", "python", "--environment", "bare", "--dry-run")
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: --environment = 'bare': cannot be combined with --image; give one of the two\n"
    )
