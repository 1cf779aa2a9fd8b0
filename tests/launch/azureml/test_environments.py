"""What a run's environment asks for, as the job file's ``environment``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.azureml import (
    CondaDependencies,
    DockerConfiguration,
    Environment,
    Experiment,
    NotSupported,
    RunConfiguration,
    ScriptRunConfig,
)
from launch.environment.requirements import read_requirements
from launch.jobfile.conda_file import read_conda
from tests.launch.azureml.fake_fab import FakeFab
from tests.launch.azureml.test_submission import interpreter, planned

pytestmark = pytest.mark.usefixtures("fab")


def environment_of(environment: Environment, **settings: Any) -> Any:
    """The job file's ``environment``, which comes without a notice."""
    made = planned(environment=environment, **settings)
    assert made.notices == ()
    return made.job.get("environment")


def test_a_conda_file_and_a_requirements_file_are_named_by_their_paths() -> None:
    Path("conda.yml").write_text("channels: [conda-forge]\ndependencies: [python=3.8, pip: [torch==1.6]]\n")
    made = Environment.from_conda_specification("mine", "conda.yml")
    assert environment_of(made) == {"conda_file": str(Path("conda.yml").absolute())}
    Path("requirements.txt").write_text("# what is needed\ntorch  # the newest\n-r more.txt\n")
    made = Environment.from_pip_requirements("mine", "requirements.txt", "24.0")
    path = Path("requirements.txt").absolute()
    assert environment_of(made) == {"conda_file": {"dependencies": ["pip=24.0", {"pip": [f"-r {path}"]}]}}
    assert list(made.python.conda_dependencies.pip_packages) == ["torch", "-r more.txt"]


def test_what_a_script_adds_to_a_file_goes_with_it() -> None:
    Path("conda.yml").write_text("channels: [conda-forge]\ndependencies: [python=3.8, numpy]\n")
    Path("requirements.txt").write_text("torch\n")
    made = Environment.from_conda_specification("mine", "conda.yml")
    made.python.conda_dependencies.add_pip_package("horovod")
    own = {"channels": ["conda-forge"], "dependencies": ["python=3.8", "numpy", {"pip": ["horovod"]}]}
    assert environment_of(made) == {"conda_file": own}
    made = Environment.from_pip_requirements("mine", "requirements.txt")
    made.python.conda_dependencies.add_pip_package("horovod")
    pip = [f"-r {Path('requirements.txt').absolute()}", "horovod"]
    assert environment_of(made) == {"conda_file": {"dependencies": [{"pip": pip}]}}
    made.python.conda_dependencies.remove_pip_package("torch")
    assert environment_of(made) == {"conda_file": {"dependencies": [{"pip": ["horovod"]}]}}


def test_a_requirements_file_is_the_same_environment_from_a_script_and_from_the_command_line() -> None:
    Path("requirements.txt").write_text("# what is needed\nToolkit >= 1.2\n--no-index\n")
    asked = environment_of(Environment.from_pip_requirements("mine", "requirements.txt"))
    Path("conda.yml").write_text(yaml.safe_dump(asked["conda_file"]))
    by_script, by_option = read_conda(Path("conda.yml")), read_requirements(Path("requirements.txt"))
    assert replace(by_script, title="") == replace(by_option, title="")


def test_packages_by_name_and_an_index_become_a_conda_file() -> None:
    made = Environment("mine")
    made.python.conda_dependencies = CondaDependencies.create(
        "https://pypi.example.com/simple", ["torch"], ["numpy"], "3.9"
    )
    pip = ["--index-url https://pypi.example.com/simple", "torch"]
    assert environment_of(made) == {"conda_file": {"dependencies": ["python=3.9", "numpy", {"pip": pip}]}}
    run = RunConfiguration(script="train.py", conda_dependencies=CondaDependencies.create(pip_packages=["a"]))
    assert planned(run_config=run).job["environment"] == {"conda_file": {"dependencies": [{"pip": ["a"]}]}}


@pytest.mark.parametrize("asks_for_nothing", [Environment("mine"), interpreter("python")])
def test_an_environment_that_asks_for_nothing_is_the_nodes(asks_for_nothing: Environment) -> None:
    asks_for_nothing.python.conda_dependencies = CondaDependencies.create()
    assert environment_of(asks_for_nothing) is None


def test_an_image_has_the_packages_on_top_unless_the_user_manages_them() -> None:
    Path("requirements.txt").write_text("torch\n")
    made = Environment.from_docker_image("mine", "registry/train:1", pip_requirements="requirements.txt")
    key = environment_of(made, docker_runtime_config=DockerConfiguration(use_docker=True, shm_size="8g"))
    assert key["image"] == "registry/train:1"
    assert "conda_file" in key
    made.python.user_managed_dependencies = True
    assert environment_of(made) == {"image": "registry/train:1"}


@pytest.mark.parametrize("is_path", [True, False])
def test_a_dockerfile_is_written_beside_the_job_file(fab: FakeFab, is_path: bool) -> None:
    text = "FROM python\nRUN true\n"
    Path("own.dockerfile").write_text(text)
    made = Environment.from_dockerfile("mine", "own.dockerfile" if is_path else text)
    submitted = planned(environment=made)
    assert submitted.job["environment"] == {"build": {"path": "build"}}
    assert submitted.dockerfile == text
    Experiment(None, "digits").submit(ScriptRunConfig("src", "train.py", environment=made))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "azureml:train@latest"),
        ({"version": "3"}, "azureml:train:3"),
        ({"label": "latest"}, "azureml:train@latest"),
    ],
)
def test_a_stored_environment_is_named(given: dict[str, str], key: str) -> None:
    assert environment_of(Environment.get(None, "train", **given)) == key


def changed(**settings: Any) -> Environment:
    made = Environment.from_docker_image("mine", "registry/train:1")
    for name, value in settings.items():
        setattr(made.docker, name, value)
    return made


def test_what_a_job_file_cannot_have_is_refused() -> None:
    stored = Environment.get(None, "AzureML-sklearn-1.5")
    stored.python.conda_dependencies.add_pip_package("torch")
    Path("requirements.txt").write_text("torch\n")
    for made, words in (
        (
            changed(arguments=["--ipc=host"]),
            "DockerConfiguration.arguments is not offered by Ranklift: leave them out",
        ),
        (changed(build_context="x"), "DockerSection.build_context is not offered"),
        (changed(base_image_registry="x"), "put the registry in front of the image's name"),
        (stored, "write environments/AzureML-sklearn-1.5.yml with all of it"),
        (
            Environment.from_dockerfile("mine", "FROM a", pip_requirements="requirements.txt"),
            "let the Dockerfile install the packages",
        ),
    ):
        with pytest.raises(NotSupported, match=re.escape(words)):
            planned(environment=made)
    with pytest.raises(NotSupported, match=r"DockerConfiguration\.arguments"):
        planned(docker_runtime_config=DockerConfiguration(arguments=["--ipc=host"]))


def test_docker_without_an_image_is_named_in_a_notice() -> None:
    made = planned(docker_runtime_config=DockerConfiguration(use_docker=True))
    assert made.notices == (
        "docker_runtime_config: the environment names no image: the job runs on the nodes",
    )
