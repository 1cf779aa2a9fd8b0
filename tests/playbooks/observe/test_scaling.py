"""``fab scaling`` up to the point where it would connect: its runs, refusals, the folder, the price."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from infra.arm.errors import AzureRefused
from infra.inventory import INVENTORY_FILE, Inventory, Node
from infra.preflight.prices import Prices
from launch.errors import GiveUpError, InputError, RetryError
from launch.scaling.metric_numbers import MetricReader
from launch.scaling.scaling_plan import Run, ScalingPlan
from launch.scaling.scaling_study import MeasuredRun, Study
from playbooks.observe import scaling
from playbooks.observe.scaling import largest_price
from playbooks.observe.scaling_files import earlier_study, report_study, write_study
from playbooks.observe.scaling_runs import RunFailed
from playbooks.project import Stack
from tests.launch.scaling.studies import PLAN, SUBJECT, study
from tests.playbooks.typed import write_project

ROOT = Path(__file__).resolve().parents[3]
FAB = str(Path(sys.executable).with_name("fab"))
JOB = "command: python3 train.py\ncode: .\ndistribution: {type: pytorch}\nresources: {instance_count: 3}\n"

Fab = Callable[..., subprocess.CompletedProcess[str]]
NODES = tuple(
    Node(f"node{n:06x}", n, f"10.0.0.{n + 4}", "127.0.0.1", 50000 + n, 8, "running") for n in range(4)
)
SAVED = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "azureuser", NODES, 0.0)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's repository with a job file, beside the project, whose stack ``dev`` had four nodes."""
    project, own = tmp_path / "ranklift", tmp_path / "own"
    stack = project / ".ranklift" / "dev"
    stack.mkdir(parents=True)
    write_project(project)
    (stack / INVENTORY_FILE).write_text(json.dumps(asdict(SAVED)))
    own.mkdir()
    (own / "train.py").write_text("print('10 samples/s')\n")
    (own / "job.yml").write_text(JOB)
    (own / "fabfile.py").write_text(
        'from playbooks import ns\nns.configure({"ranklift": {"project": "../ranklift"}})\n'
    )
    return own


@pytest.fixture
def fab(own: Path) -> Fab:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FAB, "scaling", *arguments],
            cwd=own,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_a_dry_run_prints_the_runs_and_writes_nothing(fab: Fab, own: Path) -> None:
    ran = fab("job.yml", "--repeat", "2", "--dry-run")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        *("repeat 1 on 1 node", "repeat 1 on 2 nodes", "repeat 1 on 4 nodes"),
        *("repeat 2 on 4 nodes", "repeat 2 on 2 nodes", "repeat 2 on 1 node"),
    ]
    assert not (own / "scaling").exists()


def test_a_file_that_wants_unhealthy_nodes_replaced_has_none_replaced(fab: Fab, own: Path) -> None:
    with (own / "job.yml").open("a") as file:
        file.write("ranklift: {on_unhealthy: replace}\n")
    ran = fab("job.yml", "--dry-run")
    assert ran.returncode == 0, ran
    assert "ranklift.on_unhealthy is not used: all runs have the same nodes" in ran.stderr


def test_a_file_gets_the_nodes_identity_where_the_user_says_so(fab: Fab, own: Path) -> None:
    with (own / "job.yml").open("a") as file:
        file.write("ranklift: {identity: true}\n")
    refused = fab("job.yml")
    assert refused.returncode == 2
    assert "ranklift.identity = true: is not for a file alone to decide" in refused.stderr
    assert "Sign the job for it?" in fab("job.yml", "--dry-run").stderr
    ran = fab("job.yml", "--set", "ranklift.identity=true", "--dry-run")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "1,5"], "--nodes = '1,5': the stack has 4 nodes"),
        (["--weak", "--strong"], "--weak: cannot be combined with --strong; give one of the two"),
        (["--resume"], "has no scaling.json to continue; leave out --resume"),
        (["--output", "."], "--output = '.': is not an empty folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_refused_before_anything_is_made(
    fab: Fab, own: Path, words: list[str], says: str
) -> None:
    before = {path.name for path in own.iterdir()}
    ran = fab("job.yml", *words)
    assert (ran.returncode, ran.stdout) == (2, ""), ran
    assert says in ran.stderr
    assert {path.name for path in own.iterdir()} - {"__pycache__"} == before - {"__pycache__"}


def test_the_end_shows_the_lines_that_figures_were_read_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = MetricReader(None)
    for step in range(3):
        reader.feed(0, b"step %d loss 0.5 samples/s 1000\n" % step)
    (one,) = study({1: [1000.0]}).runs
    report_study(Study(PLAN, SUBJECT).with_run(replace(one, figures=reader.figures(8))), tmp_path, json=False)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "samples_per_s 1000 in 3 lines like: step 0 loss 0.5 samples/s 1000"
    )


def test_a_measurement_is_continued_only_on_request_and_is_no_part_of_the_code(tmp_path: Path) -> None:
    from launch.code.snapshot import plan_snapshot

    (tmp_path / "train.py").write_text("pass\n")
    code = plan_snapshot(tmp_path, tmp_path / ".hashes").id
    folder = tmp_path / "results" / "scaling"
    measured = study({1: [1.0], 2: [2.0]})
    assert earlier_study(folder, PLAN, SUBJECT, resume=False) is None
    write_study(measured, folder)
    assert plan_snapshot(tmp_path, tmp_path / ".hashes").id == code
    assert earlier_study(folder, measured.plan, SUBJECT, resume=True) == measured
    with pytest.raises(InputError, match="has a measurement; give --resume to continue it"):
        earlier_study(folder, PLAN, SUBJECT, resume=False)
    write_study(Study(PLAN, SUBJECT), folder)
    assert earlier_study(folder, PLAN, SUBJECT, resume=False) is None  # nothing of it would be lost
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {
        *(".ranklift-ignore", "scaling.csv", "scaling.html", "scaling.json"),
    }


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GiveUpError, match=r"file/scaling cannot be written: .*; give another --output"):
        write_study(Study(PLAN, SUBJECT), tmp_path / "file" / "scaling")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Prices(22.03, 8.8), "4 x Standard_ND40rs_v2, 88.12 USD an hour at list price (spot 35.20)"),
        (Prices(22.03), "4 x Standard_ND40rs_v2, 88.12 USD an hour at list price"),
        (Prices(), "4 x Standard_ND40rs_v2, which the price list of southcentralus does not have"),
        (AzureRefused("prices", "no answer"), "4 x Standard_ND40rs_v2, at an unknown price ("),
    ],
    ids=["regular and spot", "regular", "none", "silent"],
)
def test_the_largest_points_price_is_known_or_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Prices | Exception, says: str
) -> None:
    def prices(*_: object) -> Prices:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("infra.preflight.prices.vm_prices", prices)
    found = largest_price(Stack("dev", tmp_path, {}), SAVED, 4)
    assert found.startswith(says)


class Runs:
    """Runs of which each ends as a test says, on nodes that nobody else uses."""

    def __init__(self, folder: Path, plan: ScalingPlan, ends: Sequence[MeasuredRun | RunFailed]) -> None:
        self.stack, self.inventory, self.nodes, self.plan = Stack("dev", folder, {}), SAVED, NODES, plan
        self._ends = iter(ends)
        self.pushes = 0

    def push(self) -> None:
        self.pushes += 1

    def measure(self, _: Run, *, is_first: bool) -> MeasuredRun:
        end = next(self._ends)
        if isinstance(end, RunFailed):
            raise end
        return end


def test_figures_of_a_run_that_needs_other_options_are_kept_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "wait_for_free_nodes", lambda *_: None)
    whole = study({1: [100.0], 2: [190.0]})
    plan = replace(whole.plan, basis=None)
    ends = [RunFailed("train-1-0", "give --of rank or --of job", whole.runs[0])]
    with pytest.raises(RunFailed):
        scaling._measure(cast("Any", Runs(tmp_path, plan, ends)), Study(plan, SUBJECT), tmp_path)
    kept = earlier_study(tmp_path, plan, SUBJECT, resume=True)
    assert kept is not None
    assert (kept.runs, kept.failures) == (whole.runs[:1], ())
    with pytest.raises(GiveUpError, match="job train-1-0, repeat 1 on 1 node: 1 of 8 ranks printed"):
        scaling._check_figures(kept)  # the next run would end like this one
    continued = earlier_study(tmp_path, replace(plan, basis="job"), SUBJECT, resume=True)
    assert continued is not None
    scaling._check_figures(continued)
    assert continued.plan.runs(continued.done) == [Run(0, 2)]


def test_a_measurement_beside_another_job_is_refused_before_anything_is_pushed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise RetryError("stack dev: train-1 on node000000")

    monkeypatch.setattr(scaling, "wait_for_free_nodes", busy)
    whole = study({1: [100.0], 2: [190.0]})
    runs = Runs(tmp_path, whole.plan, whole.runs)
    folder = tmp_path / "scaling"
    with pytest.raises(RetryError, match="train-1 on node000000"):
        scaling._measure(cast("Any", runs), Study(whole.plan, SUBJECT), folder)
    assert (runs.pushes, folder.exists()) == (0, False)
    monkeypatch.setattr(scaling, "wait_for_free_nodes", lambda *_: None)
    scaling._measure(cast("Any", runs), Study(whole.plan, SUBJECT), folder)
    assert runs.pushes == 1


def test_a_measurement_with_nothing_left_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = study({1: [100.0], 2: [190.0]})
    scaling._announce(Stack("dev", tmp_path, {}), SAVED, whole.plan, 0)
    assert capsys.readouterr().err == "all runs on 1, 2 nodes are measured: nothing is left to run\n"
