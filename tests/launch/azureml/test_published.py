"""Scripts like those published for SDK v1, unchanged: each runs, or is refused before a job starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.launch.azureml.fake_fab import JOB, FakeFab
from tests.launch.azureml.in_process import run_program

PUBLISHED = Path(__file__).parent / "published"
HELPER = """
from azureml.core import Experiment, ScriptRunConfig, Workspace
def submit(name, *more):
    config = ScriptRunConfig('src', 'train.py', list(more), compute_target='gpu')
    Experiment(Workspace.from_config(), name).submit(config)
    return 3
"""


@dataclass(frozen=True)
class Ran:
    """What a script left behind."""

    status: int
    out: str
    err: str
    tasks: list[str]
    """The tasks of ``fab`` that it used."""
    job: dict[str, Any]
    """The job file of its launch."""


Run = Callable[..., Ran]


@pytest.fixture
def run(fab: FakeFab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a script as ``submit.py`` of the current folder."""
    fab.answer("job", out="{}")
    fab.file("outputs/node000000/model.pt", "weights")
    Path("conda.yml").write_text("dependencies: [numpy]\n")
    Path("cluster_helper.py").write_text(HELPER)

    def run_script(name: str, *words: str) -> Ran:
        Path("submit.py").write_text((PUBLISHED / f"{name}.txt").read_text())
        status = run_program(["run-v1", "submit.py", *words], monkeypatch)
        said = capsys.readouterr()
        jobs = [yaml.safe_load(call["job"]) for call in fab.calls if "job" in call]
        tasks = [call["words"][0] for call in fab.calls]
        return Ran(status, said.out, said.err, tasks, jobs[0] if jobs else {})

    return run_script


def test_a_distributed_pytorch_script_with_its_cluster_its_widget_and_its_files(run: Run) -> None:
    ran = run("distributed-pytorch")
    assert (ran.status, ran.tasks[0]) == (0, "launch")
    assert ran.job["distribution"] == {"type": "pytorch", "process_count_per_instance": 2}
    assert ran.job["resources"] == {"instance_count": 2}
    assert ran.job["environment"] == {"conda_file": str(Path("conda.yml").absolute())}
    assert ran.out.startswith("SDK 1.61.0\nown\n\n\n\nfound\n{'see': 'fab status --stack gpu'}\n")
    assert ran.err.splitlines()[0] == (
        f"notice: RunDetails shows no widget: `fab logs -f {JOB} --stack gpu` prints what the run does"
    )
    assert Path("got/model.pt").read_text() == "weights"


def test_a_horovod_script_with_a_folder_of_data_whose_name_has_a_dot(run: Run) -> None:
    ran = run("horovod")
    assert (ran.status, ran.tasks) == (0, ["launch", "logs", "jobs"])
    assert ran.job["distribution"] == {"type": "mpi", "process_count_per_instance": 2}
    store = "azureml://datastores/workspaceblobstore/paths"
    assert ran.job["inputs"]["images"] == {
        "path": f"{store}/images/v1.0/",
        "mode": "ro_mount",
        "type": "uri_folder",
    }
    assert ran.job["environment"]["image"].startswith("mcr.microsoft.com/azureml/openmpi4.1.0-cuda")
    assert ran.job["tags"] == {"kind": "mpi"}
    assert ran.out == "AzureBlob None None\n"


def test_a_tensorflow_script_that_changes_its_run_configuration(run: Run) -> None:
    ran = run("tensorflow")
    assert ran.status == 0
    assert ran.job["distribution"] == {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}
    assert ran.job["environment"] == "azureml:AzureML-tensorflow-2.16-cuda12@latest"
    assert ran.out.endswith("\n{}\n")
    assert ran.err.count("notice: Run.get_metrics: nothing is collected") == 1


def test_a_script_with_imports_in_a_function_and_arguments_of_its_own(run: Run) -> None:
    ran = run("run-configuration", "--target", "gpu", "--epochs", "3")
    assert (ran.status, ran.err) == (0, "")
    assert ran.job["environment_variables"] == {"EPOCHS": "3"}
    assert ran.job["inputs"]["input_1"]["path"] == "azureml://datastores/lab/paths/set"
    assert ran.out == f"{JOB} None None []\n"


def test_a_launcher_of_ones_own_with_data_among_its_words(run: Run) -> None:
    ran = run("command")
    assert (ran.status, ran.err) == (0, "")
    assert ran.job["command"].endswith('train.py --data-dir "${{inputs.input_1}}" --epochs 25')
    assert ran.job["inputs"]["input_1"]["path"] == "azureml://datastores/workspaceblobstore/paths/cifar-10"
    assert ran.out.startswith("name: own\nregion: \ngroup: \nRun(Experiment: per-node, ")


def test_what_decorates_a_run_is_kept_or_said_once_and_the_script_goes_on(run: Run, fab: FakeFab) -> None:
    ran = run("decorated")
    assert (ran.status, ran.out) == (0, "the end\n")
    assert [words[2:-3] for words in fab.words("job")] == [
        ["--tag=stage=baseline"],
        ["--tag=reviewed="],
        ["--tag=lr=0.2", "--tag=seed=7"],
        ["--tag=commit=abc"],
        ["--tag=display_name=first try"],
    ]
    assert [line.split(":")[1] for line in ran.err.splitlines()] == [
        *(" Experiment.set_tags", " run properties are kept as tags, which `fab job` shows"),
        *(" Run.log", " Run.log_list", " Run.upload_file", " Run.remove_tags", " Run.get_metrics"),
        " Run.complete",
    ]


def test_tags_that_the_head_does_not_keep_are_a_notice(run: Run, fab: FakeFab) -> None:
    fab.answer("job", status=1, err="error: node000000: no answer\n")
    ran = run("decorated")
    assert (ran.status, ran.out) == (0, "the end\n")
    assert f"notice: run {JOB}: stage not kept: node000000: no answer\n" in ran.err


def test_classes_that_are_imported_and_not_used_do_no_harm(run: Run) -> None:
    ran = run("register-model")
    assert (ran.status, ran.out) == (0, "mnist\tNone\tNone\n")
    assert ran.err == (
        "notice: Run.register_model: mnist is not registered; "
        "run.download_files('outputs/model.pt') copies it\n"
    )


def test_a_script_that_finds_its_cluster_does_not_need_to_create_it(run: Run) -> None:
    ran = run("existing-cluster")
    assert (ran.status, ran.out, ran.tasks) == (0, "found gpu\n", ["launch"])
    assert ran.err.count("notice: authentication has no effect") == 1
    assert json.loads(Path(".azureml/config.json").read_text())["workspace_name"] == "lab"


def test_a_module_beside_the_script_is_found_and_the_exit_status_is_the_scripts(run: Run) -> None:
    ran = run("helper", "digits", "--fast")
    assert (ran.status, ran.tasks, ran.err) == (3, ["launch"], "")
    assert ran.job["command"] == "python train.py --fast"


def test_a_sweep_that_is_not_asked_for_is_announced_and_the_script_runs(run: Run) -> None:
    ran = run("optional-sweep")
    assert (ran.status, ran.tasks) == (0, ["launch"])
    assert "notice: submit.py:8: azureml.train.hyperdrive.HyperDriveConfig is not offered" in ran.err


def test_a_sweep_that_is_asked_for_is_refused(run: Run) -> None:
    ran = run("optional-sweep", "--sweep")
    assert (ran.status, ran.tasks) == (1, [])
    assert ran.err.splitlines()[-1] == (
        "error: submit.py:8: azureml.train.hyperdrive.choice is not offered by Ranklift: "
        "submit one run for each set of arguments"
    )


REFUSED = {
    "deploy": ("submit.py:6: azureml.core.model.Model is not offered", "run.download_files"),
    "estimator": ("submit.py:5: azureml.train.dnn.PyTorch is not offered", "use ScriptRunConfig"),
    "hyperdrive": ("submit.py:9: azureml.train.hyperdrive.RandomParameterSampling", "one run for each set"),
    "new-cluster": (
        "submit.py:6: creation of the compute target new from a script is not offered",
        "`pulumi stack init new; pulumi config set ranklift:vmSize Standard_ND40rs_v2; fab up`",
    ),
    "pipeline": ("submit.py:13: azureml.pipeline.core.Pipeline is not offered", "one run after the other"),
    "private-image": ("submit.py:10: DockerSection.base_image_registry", "in front of the image's name"),
    "text-of-data": (
        "submit.py:5: the text of a DataReference is not offered",
        "without str() and f-strings",
    ),
    "upload": ("submit.py:5: Datastore.upload is not offered", "upload once with `fab data.put FOLDER PATH`"),
    "upload-directory": ("submit.py:4: Dataset.File.upload_directory is not", "`fab data.put FOLDER PATH`"),
    "within-notebook": ("submit.py:5: Experiment.start_logging is not offered", "submit a ScriptRunConfig"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_script_that_cannot_run_is_refused_with_its_line_before_a_job_starts(run: Run, name: str) -> None:
    ran = run(name)
    what, remedy = REFUSED[name]
    assert ran.status in (1, 2)
    assert ran.tasks == []
    (line,) = [line for line in ran.err.splitlines() if line.startswith(f"error: {what}")]
    assert remedy in line


def test_every_script_is_tested() -> None:
    runs = {
        *(
            "command",
            "decorated",
            "distributed-pytorch",
            "existing-cluster",
            "helper",
            "horovod",
            "optional-sweep",
        ),
        *("register-model", "run-configuration", "tensorflow"),
    }
    assert {path.stem for path in PUBLISHED.glob("*.txt")} == {*runs, *REFUSED}
