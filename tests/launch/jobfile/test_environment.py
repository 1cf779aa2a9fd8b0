"""What a job file says its ranks run in: in place, by name, and over one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.environment.environment_spec import (
    Bare,
    BuildEnvironment,
    Environment,
    ImageEnvironment,
    PythonEnvironment,
)
from launch.errors import InputError
from launch.jobfile import Flags, NamedEnvironment, read, resolve, wanted_environment

PACKAGES = "dependencies:\n- python=3.10\n- pip: [torch]\n"
TORCH = PythonEnvironment("torch", python="3.10", title="conda.yml")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    (tmp_path / "conda.yml").write_text(PACKAGES)
    (tmp_path / "requirements.txt").write_text("torch\n")
    (tmp_path / "docker" / "sub").mkdir(parents=True)
    (tmp_path / "docker" / "Dockerfile").write_text("FROM python\n")
    (tmp_path / "docker" / "sub" / "gpu.dockerfile").write_text("FROM python\n")
    (tmp_path / "environments").mkdir()
    return tmp_path


def found(folder: Path, text: str, flags: Flags | None = None, *more: Path) -> Environment | None:
    """What the job's ranks run in."""
    (folder / "job.yml").write_text(f"command: hostname\n{text}\n")
    return resolve(wanted_environment(read(folder / "job.yml"), flags or Flags()), [folder, *more])


def refusal(folder: Path, text: str, *more: Path) -> str:
    with pytest.raises(InputError) as caught:
        found(folder, text, None, *more)
    return str(caught.value).replace(f"{folder}/", "")


def test_an_image_in_place(files: Path) -> None:
    text = "environment: {image: python:3.10, description: a, tags: {a: b}, os_type: Linux, $schema: x}"
    assert found(files, text) == ImageEnvironment("docker.io/library/python:3.10", title="python:3.10")


def test_a_file_that_describes_it_as_azure_ml_names_one(files: Path) -> None:
    (files / "azureml").mkdir()
    described = "name: mine\nversion: 3\nimage: a/b\nconda_file: ../conda.yml\n"
    (files / "azureml" / "env.yml").write_text(described)
    image = ImageEnvironment("docker.io/a/b:latest", TORCH, "mine")
    for text in ("file:azureml/env.yml", "file:./azureml/env.yml", f"file:{files}/azureml/env.yml"):
        assert found(files, f"environment: {text}") == image
    assert found(files, "ranklift: {environment: file:azureml/env.yml}") == image
    (files / "azureml" / "env.yml").write_text("imag: a/b\n")
    assert "azureml/env.yml, line 1" in refusal(files, "environment: file:./azureml/env.yml")
    assert "does not exist" in refusal(files, "environment: file:nix.yml")


def test_a_name_in_place_is_for_people(files: Path) -> None:
    image = ImageEnvironment("docker.io/library/python:3.10", title="mine")
    assert found(files, "environment: {image: python:3.10, name: mine, version: 3}") == image


@pytest.mark.parametrize("path", ["file:./env/gpu.yml", "file:env/gpu.yml"])
@pytest.mark.parametrize("key", ["{environment: %s}", "{ranklift: {environment: %s}}"])
def test_the_file_of_an_environment_is_read_from_its_own_folder(files: Path, path: str, key: str) -> None:
    (files / "env").mkdir()
    (files / "env/conda.yml").write_text(PACKAGES)
    (files / "env/gpu.yml").write_text("name: gpu\nversion: 3\nimage: a/b\nconda_file: conda.yml\n")
    wanted = ImageEnvironment("docker.io/a/b:latest", TORCH, "gpu")
    assert found(files, (key % path)[1:-1]) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "file:./none.yml",
            "job.yml, line 2: environment = 'file:./none.yml': none.yml does not exist",
        ),
        (
            "file:docker",
            "job.yml, line 2: environment = 'file:docker': is not a file; name",
        ),
        ("file:wrong.yml", "wrong.yml, line 1: imag = 'a/b': unknown key; did you mean image?"),
        ("file:../other.yml", "lies outside of the repository"),
    ],
)
def test_a_wrong_file_in_the_place_of_an_environment_is_refused(files: Path, text: str, why: str) -> None:
    (files / "wrong.yml").write_text("imag: a/b\n")
    (files.parent / "other.yml").write_text("image: a/b\n")
    assert why in refusal(files, f"environment: {text}")


def test_packages_on_top_of_an_image_and_without_one(files: Path) -> None:
    image = ImageEnvironment("docker.io/a/b:latest", TORCH, "a/b")
    assert found(files, "environment: {image: a/b, conda_file: conda.yml}") == image
    assert found(files, "environment: {conda_file: conda.yml}") == TORCH
    within = found(files, "environment:\n  conda_file:\n    dependencies: [python=3.10, pip: [torch]]")
    assert within == PythonEnvironment("torch", python="3.10")


def test_a_build_in_place(files: Path) -> None:
    context = files / "docker"
    made = BuildEnvironment(context, "Dockerfile", "docker/Dockerfile")
    assert found(files, "environment: {build: {path: docker}}") == made
    other = found(files, "environment: {build: {path: docker, dockerfile_path: sub/gpu.dockerfile}}")
    assert other == BuildEnvironment(context, "sub/gpu.dockerfile", "docker/sub/gpu.dockerfile")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "environment: torch",
            "line 2: environment = 'torch': is not the name of an environment; write azureml:torch",
        ),
        ("environment: azureml:a b", "environment = 'azureml:a b': is not the name of an environment"),
        ("environment: azureml:a@stable", "has the label stable; use @latest or a version"),
        ("environment: {}", "line 2: environment: has no image, conda_file or build"),
        ("environment: {image: A/b}", "environment.image = 'A/b': is not the name of an image"),
        (
            "environment: {image: a, build: {path: docker}}",
            "environment.build: cannot be combined with image",
        ),
        ("environment: {image: a, inference_config: {}}", "environment.inference_config: is for deployments"),
        ("environment: {image: a, datastore: x}", "environment.datastore = 'x': is where Azure ML stores"),
        (
            "environment: {image: a, os_type: windows}",
            "environment.os_type = 'windows': is not what the nodes run",
        ),
        (
            "environment: {image: a, requirements: r}",
            "requirements = 'r': unknown key; move the whole environment: under ranklift:",
        ),
        ("ranklift: {requirements: r}", "requirements = 'r': unknown key; write it under environment: here"),
        (
            "environment: azureml:pytorch/pytorch:2.8.0",
            "is not the name of an environment; write {image: 'pytorch/pytorch:2.8.0'}",
        ),
        (
            "environment: mcr.microsoft.com/azureml/base",
            "is not the name of an environment; write {image: 'mcr.microsoft.com/azureml/base'}",
        ),
        ("ranklift: {environment: pytorch/pytorch:2.8.0}", "; write {image: 'pytorch/pytorch:2.8.0'}"),
        ("environment: My Env", "; write it as azureml:NAME:VERSION or azureml:NAME@latest"),
        ("environment: {image: a, conda_fil: c}", "conda_fil = 'c': unknown key; did you mean conda_file?"),
        (
            "environment: {conda_file: none.yml}",
            "line 2: environment.conda_file = 'none.yml': none.yml does not exist",
        ),
        ("environment: {build: {}}", "environment.build: has no path; add path:"),
        (
            "environment: {build: {path: https://a/b}}",
            "environment.build.path = 'https://a/b': is not on this machine",
        ),
        (
            "environment: {build: {path: docker, dockerfile_path: ../conda.yml}}",
            "environment.build.dockerfile_path = '../conda.yml': there is no file ../conda.yml in",
        ),
        (
            "ranklift: {environment: {requirements: r.txt}}",
            "ranklift.environment.requirements = 'r.txt': r.txt does not exist",
        ),
        (
            "ranklift: {environment: {requirements: requirements.txt, conda_file: conda.yml}}",
            "ranklift.environment.requirements = 'requirements.txt': cannot be combined with conda_file",
        ),
    ],
)
def test_nothing_is_passed_over_that_could_change_what_runs(files: Path, text: str, words: str) -> None:
    assert words in refusal(files, text)


def test_the_own_block_takes_requirements_plain_names_and_the_nodes_alone(files: Path) -> None:
    (files / "environments" / "train.yml").write_text("name: train\nconda_file: ../conda.yml\n")
    own = "ranklift: {{environment: {}}}"
    assert found(files, own.format("{requirements: requirements.txt}")) == PythonEnvironment(
        "torch", title="requirements.txt"
    )
    named = found(files, own.format("train"))
    assert named == PythonEnvironment("torch", python="3.10", title="train")
    assert found(files, own.format("bare")) == Bare()


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    [
        *("azureml:train", "azureml:train:3", "azureml:train@latest"),
        "azureml://registries/own/environments/train/versions/3",
        "azureml://registries/azureml/environments/train/labels/latest",
        "azureml:/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
        "/environments/train/versions/3",
    ],
)
def test_a_name_is_a_file_in_the_folder_of_the_job_or_the_project(
    files: Path, tmp_path_factory: pytest.TempPathFactory, reference: str
) -> None:
    project = tmp_path_factory.mktemp("project")
    (project / "environments").mkdir()
    (project / "environments" / "train.yaml").write_text("name: train\nversion: 3\nimage: a/b\n")
    there = ImageEnvironment("docker.io/a/b:latest", title=reference)
    assert found(files, f"environment: {reference}", None, project) == there
    (files / "environments" / "train.yml").write_text("name: train\nversion: '3'\nimage: c/d\n")
    own = ImageEnvironment("docker.io/c/d:latest", title=reference)
    assert found(files, f"environment: {reference}", None, project) == own


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("azureml:AzureML-acpt-pytorch-2.2-cuda12.1@latest", "acpt-pytorch-2.2-cuda12.1:latest"),
        ("azureml:AzureML-sklearn-1.5:7", "sklearn-1.5:7"),
        ("azureml://registries/azureml/environments/sklearn-1.5/versions/7", "sklearn-1.5:7"),
    ],
)
def test_microsofts_own_are_its_public_images(files: Path, reference: str, image: str) -> None:
    made = ImageEnvironment(f"mcr.microsoft.com/azureml/curated/{image}", title=reference)
    assert found(files, f"environment: {reference}") == made


def test_a_name_that_nobody_has_is_refused_with_the_nearest(files: Path) -> None:
    (files / "environments" / "train.yml").write_text("name: train\nimage: a\n")
    assert "did you mean train?" in refusal(files, "environment: azureml:trian:1")
    curated = refusal(files, "environment: azureml:AzureML-acpt-pytorch-2.2-cuda12@latest")
    assert "there is no AzureML-acpt-pytorch-2.2-cuda12.yml in" in curated
    assert "did you mean acpt-pytorch-2.2-cuda12.1?" in curated
    other = refusal(files, "environment: azureml://registries/own/environments/sklearn-1.5/versions/7")
    assert "there is no sklearn-1.5.yml" in other, "only Microsoft's registry has Microsoft's"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "name: train\nversion: 2\nimage: a\n",
            "train.yml has version 2; use azureml:train@latest, or that file",
        ),
        ("name: train\nimage: a\n", "train.yml has no version"),
        (
            "name: other\nversion: 3\nimage: a\n",
            "line 1: name = 'other': differs from the file's name; write train",
        ),
        ("version: 3\nimage: a\n", "line 1: the environment has no name; add name: train"),
        ("name: train\nversion: 3\nimage: a\nstage: x\n", "line 4: stage = 'x': unknown key"),
        ("name: train\nversion: 3\nconda_file: none.yml\n", "line 3: conda_file = "),
        ("name: [\n", "is not YAML"),
    ],
)
def test_a_wrong_file_of_an_environment_is_refused(files: Path, text: str, words: str) -> None:
    (files / "environments" / "train.yml").write_text(text)
    assert words in refusal(files, "environment: azureml:train:3")


# -- which one ------------------------------------------------------------------------------------


def test_an_option_wins_over_the_own_block_and_that_over_azure_mls_key(files: Path) -> None:
    azure, own = "environment: azureml:missing:1", "ranklift: {environment: {conda_file: conda.yml}}"
    flags = Flags(environment=ImageEnvironment("a/b:c"))
    assert found(files, f"{azure}\n{own}", flags) == ImageEnvironment("a/b:c")
    assert found(files, f"{azure}\n{own}") == TORCH
    assert "there is no missing.yml" in refusal(files, azure)
    assert found(files, azure, Flags(environment=Bare())) == Bare()
    assert found(files, "tags: {}") is None


def test_a_python_of_the_nodes_replaces_azure_mls_key(files: Path) -> None:
    assert found(files, "environment: azureml:missing:1\nranklift: {python: /opt/env}") is None


def test_an_override_of_a_value_names_another(files: Path) -> None:
    (files / "job.yml").write_text("command: hostname\nenvironment: azureml:a:1\n")
    job: Any = read(files / "job.yml", [("environment", "azureml:b:2")])
    assert isinstance(job.environment, NamedEnvironment)
    assert (job.environment.name, job.environment.where) == ("b", "--set environment: environment")
