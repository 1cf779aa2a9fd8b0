"""Files that a submit script names, and errors in the words of the script rather than of its job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.access import Access
from launch.azureml import Environment, Experiment, ScriptRunConfig, UserErrorException
from launch.errors import InputError
from launch.jobfile import read
from tests.launch.azureml.fake_fab import FakeFab
from tests.launch.azureml.in_process import run_program
from tests.launch.azureml.test_submission import planned


def submitted(fab: FakeFab, environment: Environment) -> list[Path]:
    """What the launch may read beside the job file."""
    Experiment(None, "digits").submit(ScriptRunConfig("src", "train.py", environment=environment))
    (words,) = fab.words("launch")
    return [Path(words[place + 1]) for place, word in enumerate(words) if word == "--allow-path"]


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("made", ["conda", "pip", "attribute"])
def test_an_environment_file_beside_the_submit_script_may_be_sent(
    fab: FakeFab, tmp_path: Path, kind: type, made: str
) -> None:
    Path("more.txt").write_text("six\n")
    Path("requirements.txt").write_text("torch\n-r more.txt\n")
    Path("environment.yml").write_text("dependencies: [pip: [torch, -r more.txt]]\n")
    if made == "conda":
        environment = Environment.from_conda_specification("mine", kind("environment.yml"))
    elif made == "pip":
        environment = Environment.from_pip_requirements("mine", kind("requirements.txt"))
    else:
        environment = Environment("mine")
        environment.python.conda_dependencies_file = kind("environment.yml")
    allowed = submitted(fab, environment)
    assert allowed == [Path("src").absolute(), Path.cwd()]
    job = tmp_path / "made/job.yml"
    job.parent.mkdir()
    job.write_text(fab.calls[-1]["job"])
    with pytest.raises(InputError, match="lies outside of"):
        read(job, access=Access())
    wanted = read(job, access=Access(folders=tuple(allowed))).environment
    assert wanted is not None
    assert "six" in str(wanted)


def test_a_link_of_a_repository_leads_to_no_other_repository(fab: FakeFab, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/environment.yml").write_text("dependencies: [pip: [torch]]\n")
    Path("environment.yml").symlink_to(tmp_path / "private/environment.yml")
    allowed = submitted(fab, Environment.from_conda_specification("mine", "environment.yml"))
    assert tmp_path / "private" not in allowed


def test_a_dockerfile_is_a_path_or_its_text(fab: FakeFab) -> None:
    Path("own.dockerfile").write_text("FROM python\n")
    made = Environment.from_dockerfile("mine", Path(__file__).parent / ".." / "nowhere")
    with pytest.raises(UserErrorException, match=r"dockerfile = '.*nowhere': cannot be read: No such file"):
        planned(environment=made)
    assert planned(environment=Environment.from_dockerfile("m", Path("own.dockerfile"))).dockerfile == (
        "FROM python\n"
    )


def test_an_error_names_what_the_script_gave_and_its_line(
    fab: FakeFab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = "is not known; write that file, name an image, or launch with --environment bare"
    script = Path("submit.py")
    script.write_text(
        "from azureml.core import Environment, Experiment, ScriptRunConfig\n"
        "made = Environment.get(None, 'AzureML-PyTorch-1.6-GPU')\n"
        "Experiment(None, 'digits').submit(ScriptRunConfig('src', 'train.py', environment=made))\n"
    )
    note = "read from outside of the repository: /src (JOB.YML, line 2: code)\n"
    fab.answer(
        "launch", status=2, err=f"{note}error: JOB.YML, line 4: environment = 'azureml:x': {unknown}\n"
    )
    assert run_program(["run-v1", "submit.py"], monkeypatch) == 1
    assert capsys.readouterr().err == (
        "error: submit.py:3: environment = 'azureml:x': is not known; write that file, name an image, or set "
        "RANKLIFT_PYTHON=python3 for the nodes' own\n"
    )
