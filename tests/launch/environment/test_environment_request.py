"""What a head is asked for, and what people read of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.environment.environment_request import environment_text, planned_record, request_of
from launch.environment.environment_spec import (
    Bare,
    BuildEnvironment,
    Environment,
    ImageEnvironment,
    PythonEnvironment,
)

PACKAGES = PythonEnvironment(
    "torch\n--index-url https://a/simple",
    constraints="numpy<3",
    python="3.10",
    conda='{"channels":["defaults"],"dependencies":["cudatoolkit"]}',
    find_links=(Path("/wheels"),),
    title="conda.yml",
)
NODES = [("node000000", "10.0.0.4"), ("node000001", "10.0.0.5")]


def test_packages_are_asked_for_with_all_that_the_head_needs() -> None:
    assert request_of(PACKAGES, NODES, wheels=["5eed"], channels=["c0de"]) == {
        "kind": "python",
        "requirements": "torch\n--index-url https://a/simple",
        "constraints": "numpy<3",
        "python": "3.10",
        "conda": '{"channels":["defaults"],"dependencies":["cudatoolkit"]}',
        "channels": ["c0de"],
        "find_links": ["5eed"],
        "reference": "",
        "context": "",
        "dockerfile": "",
        "runtime": "",
        "registries": {},
        "title": "conda.yml",
        "nodes": NODES,
    }


def test_an_image_is_asked_for_with_the_packages_on_top_of_it() -> None:
    request = request_of(ImageEnvironment("a/b:c", PACKAGES, "azureml:x", "charliecloud"), NODES)
    assert request is not None
    assert (request["kind"], request["reference"], request["title"]) == ("image", "a/b:c", "azureml:x")
    assert (request["python"], request["constraints"], request["runtime"]) == (
        "3.10",
        "numpy<3",
        "charliecloud",
    )


def test_a_build_is_asked_for_with_the_snapshot_of_its_files() -> None:
    request = request_of(BuildEnvironment(Path("/src"), "docker/Dockerfile", "src"), NODES, context="5eed")
    assert request is not None
    assert (request["kind"], request["context"], request["dockerfile"]) == (
        "build",
        "5eed",
        "docker/Dockerfile",
    )


@pytest.mark.parametrize("nothing", [None, Bare()])
def test_the_nodes_themselves_need_no_request(nothing: Environment | None) -> None:
    assert request_of(nothing, NODES) is None
    assert planned_record(nothing)["kind"] == "bare"


def test_what_is_not_made_yet_has_a_kind_and_a_title_and_no_id() -> None:
    assert planned_record(PACKAGES) == {
        **{"kind": "python", "id": "", "path": "", "runtime": "bare", "title": "conda.yml"},
    }
    assert planned_record(BuildEnvironment(Path("/src"), title="src"))["kind"] == "image"


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (PACKAGES, "conda.yml: Python 3.10, 1 package of conda, 1 package of pip, wheels of /wheels"),
        (PythonEnvironment("", python="3.10", title="a"), "a: Python 3.10"),
        (ImageEnvironment("docker.io/a/b:1", title="a/b:1"), "image docker.io/a/b:1"),
        (
            ImageEnvironment("docker.io/a/b:1", PythonEnvironment("torch"), "azureml:x:3"),
            "azureml:x:3: image docker.io/a/b:1, with 1 package of pip",
        ),
        (BuildEnvironment(Path("/src"), "docker/Dockerfile"), "image built from /src/docker/Dockerfile"),
        (Bare(), "the nodes as they are"),
    ],
)
def test_a_plan_names_it_in_a_line(environment: Environment, text: str) -> None:
    assert environment_text(environment) == text
