"""A cluster whose project folder lies in the operator's own repository, as ``fab init`` makes it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import ROOT, Workplace

pytestmark = pytest.mark.timeout(1200)

STACK = "rehearsal-images"
JOB = "command: ls -A\ncode: .\n"
SUBMIT = """\
from azureml.core import Experiment, ScriptRunConfig, Workspace

run = Experiment(Workspace.from_config(), "own").submit(ScriptRunConfig(".", "train.py"))
run.wait_for_completion(show_output=True)
"""


class Repository(Workplace):
    """A repository with a script that ``fab init`` has made ready, and nothing beside it."""

    def __init__(self, top: Path) -> None:
        self.own, self.temporary = top / "own", top / "tmp"
        self.project = self.own / "cluster"
        self.temporary.mkdir()
        subprocess.run(["git", "init", "-q", self.own], check=True)
        (self.own / "train.py").write_text("print('trained')\n")
        (self.own / "job.yml").write_text(JOB)
        self.fab("init")

    def untracked(self) -> set[str]:
        return set(self.run("git", "ls-files", "--others", "--exclude-standard").out.splitlines())


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    made = Repository(tmp_path_factory.mktemp("own-repository"))
    try:
        made.start(4, None)
        made.pulumi("stack", "init", "rehearsal")
        made.fab("config", "set", "nodeCount", "1")
        made.fab("up")
        yield made
    finally:
        made.close()


def test_the_cluster_has_the_setting_and_plain_pulumi_nothing_to_change(repository: Repository) -> None:
    assert len(repository.fab("status", "--json").json()) == 1
    repository.pulumi("preview", "--expect-no-changes", "--stack", "rehearsal")


def test_a_job_gets_the_repository_without_the_project_folder(repository: Repository) -> None:
    shown = repository.fab("launch", "job.yml").out
    names = {line.rpartition("] ")[2] for line in shown.splitlines()}
    assert names == {"fabfile.py", "job.yml", "outputs", "train.py"}
    (repository.own / "submit.py").write_text(SUBMIT)
    assert "trained" in repository.run_v1(repository.own / "submit.py").out


def test_an_image_is_made_by_the_program_there(repository: Repository) -> None:
    program = repository.project / "images" / "build"
    (program / f"Pulumi.{STACK}.yaml").write_text(
        "config:\n"
        "  ranklift-images:size: Standard_ND40rs_v2\n"
        "  ranklift-images:location: southcentralus\n"
        "  ranklift-images:base: Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:22.04.1\n"
        "  ranklift-images:version: 1.0.0\n"
    )
    repository.fab("image.build", "--stack", STACK)
    made = repository.pulumi("-C", str(program), "stack", "output", "image", "--stack", STACK).out
    assert "/galleries/ranklift_rehearsal_images/" in made
    repository.pulumi("-C", str(program), "destroy", "--yes", "--stack", STACK)


def test_down_removes_it_and_git_sees_nothing_but_settings(repository: Repository) -> None:
    shipped = (ROOT / "Pulumi.rehearsal.yaml").read_bytes()
    repository.fab("down", "--yes")
    files = {"fabfile.py", "job.yml", "submit.py", "train.py"}
    inside = {path.removeprefix("cluster/") for path in repository.untracked() if path.startswith("cluster/")}
    assert repository.untracked() - {f"cluster/{path}" for path in inside} == files
    assert inside == {
        *(".gitignore", ".ranklift-ignore", "Pulumi.rehearsal.yaml", "Pulumi.yaml", "__main__.py"),
        *("stored_providers.py", "images/build/Pulumi.yaml", "images/build/__main__.py"),
        f"images/build/Pulumi.{STACK}.yaml",
    }
    assert (ROOT / "Pulumi.rehearsal.yaml").read_bytes() == shipped
