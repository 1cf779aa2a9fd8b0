"""Data from this machine to ranks and back, by the commands that users type, on rehearsed storage."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from rehearsal.arm.core.subscription import OPERATOR
from tests.e2e.workplace import ROOT, Workplace

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

STACK = "rehearsal"
JOB = """
command: cat ${{inputs.words}}/*/*.txt ${{inputs.one}} && echo ${{inputs.there}}
inputs:
  words: {type: uri_folder, path: azureml://datastores/workspaceblobstore/paths/my set/}
  one: {type: uri_file, path: azureml:one@latest, mode: ro_mount}
  there: {type: uri_folder, path: azureml://datastores/data/paths/set, mode: direct}
distribution: {type: pytorch}
resources: {instance_count: 2}
"""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    workplace.configure(STACK, nodeCount=2, storage="serviceEndpoint", dataOperators=OPERATOR)
    workplace.fab("up")
    return workplace


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "set"
    for name, text in (("a b/ä.txt", "one\n"), ("c/d.txt", "two\n")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    return root


@pytest.mark.for_every_change
def test_local_data_reaches_the_ranks_of_a_job(cluster: Workplace, words: Path, tmp_path: Path) -> None:
    cluster.fab("data.put", str(words), "my set")
    listed = cluster.fab("data.ls", "my set", "--json").json()
    assert [(row["name"], row["files"], row["bytes"]) for row in listed] == [("a b/", 1, 4), ("c/", 1, 4)]
    (tmp_path / "one.txt").write_text("three\n")
    (tmp_path / "one.yml").write_text("name: one\ntype: uri_file\npath: one.txt\n")
    assert "azureml:one:1" in cluster.fab("data.register", str(tmp_path / "one.yml")).out
    (tmp_path / "job.yml").write_text(JOB)
    ran = cluster.fab("launch", str(tmp_path / "job.yml"))
    for rank in ("[0 node000000]", "[1 node000001]"):
        for text in ("one", "two", "three", "https://"):
            assert f"{rank} {text}" in ran.out
    assert "data: 3 files" in ran.err
    shown = cluster.fab("job", "--json").json()
    assert {one["name"] for one in shown["data"]} == {"words", "one"}


@pytest.mark.for_every_change
def test_a_second_job_moves_nothing(cluster: Workplace, tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text(JOB)
    assert "held already" in cluster.fab("launch", str(tmp_path / "job.yml")).err


def test_a_launch_without_a_job_file_takes_data(cluster: Workplace, tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text("import sys; print(open(sys.argv[1]).read())")
    flags = ["--input", "one=azureml:one:1", "--source", str(tmp_path)]
    ran = cluster.fab("launch.torch", "read.py ${{inputs.one}}", *flags)
    assert "[0-1 node[000000-000001]] three" in ran.out or ran.out.count("three") == 2


def test_data_are_staged_before_a_job_and_pruned_after_it(cluster: Workplace) -> None:
    cluster.fab("data.prune")
    staged = cluster.fab("data.stage", "my set")
    assert "data: 2 files, 8 B on 2 nodes" in staged.err
    (held,) = cluster.fab("data", "--json").json()
    assert staged.out.strip() == f"~/.ranklift/data/{held['id']}"
    assert (held["bytes"], held["nodes"]) == (8, ["node000000", "node000001"])
    assert held["url"].endswith("/data/my%20set")
    modes = cluster.fab("exec", f"stat -Lc %a {staged.out.strip()} {staged.out.strip()}/c/d.txt").out
    assert modes.split() == ["node[000000-000001]", "555", "444"]
    assert held["id"] in cluster.fab("data.prune", "--dry-run").out
    assert "on 2 nodes" in cluster.fab("data.prune").out
    assert cluster.fab("data", "--json").json() == []
    assert cluster.fab("exec", "ls ~/.ranklift/data").out.count(held["id"]) == 0


def test_the_seven_steps_work_as_they_stand(cluster: Workplace) -> None:
    shutil.copytree(ROOT / "examples" / "data", cluster.own / "seven")
    ran = cluster.run("sh", "seven/steps.sh")
    assert "1. " not in ran.err
    (job,) = re.findall(r"^results/(train-[\w-]+): ", ran.out, re.MULTILINE)
    accuracy = re.search(r"accuracy ([\d.]+) on 1000 points", cluster.fab("logs", job).out)
    assert accuracy and float(accuracy[1]) >= 0.9
    cluster.fab("data.get", "models/points", "model")
    model = json.loads((cluster.own / "model" / "model.json").read_text())
    assert len(model["centres"]) == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["data.ls", "azureml://datastores/My_Store/paths/x"], "no container can have this name"),
        (["data.get", "not-there"], "there is no data; see `fab data.ls`"),
        (["data.put", "no-such-folder"], "cannot be read: No such file"),
        (["data.put", __file__, "my set"], "path = 'my set': is a folder in storage"),
        (["data.rm", "my set"], "was not given"),
        (["data.rm", ""], "is a whole container"),
    ],
)
def test_what_cannot_be_is_refused(cluster: Workplace, words: list[str], problem: str) -> None:
    ran = cluster.fab(*words, status=2)
    assert problem in ran.err


def test_an_operator_without_the_role_is_told_how_to_get_it(cluster: Workplace) -> None:
    cluster.configure(STACK, nodeCount=2, storage="serviceEndpoint")
    missing = cluster.fab("data.ls", "--container", "nowhere", status=1)
    assert "container nowhere is not there, or you lack the role" in missing.err
    cluster.fab("up")
    ran = cluster.fab("data.ls", status=1)
    assert "AuthorizationPermissionMismatch: you lack the role Storage Blob Data Contributor" in ran.err
    assert "ranklift:dataOperators" in ran.err
