"""Azure ML job files on a running cluster: their data reaches every node, their results come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace

pytestmark = pytest.mark.timeout(1200)

TRAIN = """\
import os, sys
from pathlib import Path

table, images, model = map(Path, sys.argv[1:4])
rank = os.environ["RANK"]
names = sorted(str(path.relative_to(images)) for path in images.rglob("*"))
print(table.read_text().strip(), *names, *sys.argv[4:])
(model / f"rank-{rank}.txt").write_text(f"{rank} of {os.environ['WORLD_SIZE']}, {os.environ['NOTE']}")
"""
JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
display_name: Tables and images
experiment_name: files
tags: {owner: tests}
command: |
  set -e
  python train.py ${{inputs.table}} ${{inputs.images}} ${{outputs.model}} \\
    "$RANK  of" '$RANK' lr=${{inputs.lr}}
code: code
environment: azureml:AzureML-acpt-pytorch-2.2-cuda12.1@latest
compute: azureml:gpu-cluster
inputs:
  table: {type: uri_file, path: data/table.bin, mode: download}
  images: {type: uri_folder, path: data/images}
  lr: 0.10
outputs:
  model: {type: custom_model}
environment_variables:
  NOTE: a "b" $c
distribution: {type: PyTorch, process_count_per_instance: 2}
resources: {instance_count: 2, shm_size: 1m}
limits: {timeout: 300}
ranklift: {environment: bare}
"""


@pytest.fixture(scope="module")
def files(cluster: Workplace) -> Workplace:
    """A job file beside its code and data, which the repository's ignore file names."""
    own = cluster.own / "files"
    (own / "code").mkdir(parents=True)
    (own / "code" / "train.py").write_text(TRAIN)
    (own / "data" / "images" / "notes").mkdir(parents=True)
    (own / "data" / "table.bin").write_text("1,2,3")
    (own / "data" / "images" / "a.bin").write_text("a")
    (own / "data" / "images" / "notes" / "link.bin").symlink_to("../a.bin")
    (own / "data" / "images" / ".gitignore").write_text("*\n")
    (own / "job.yml").write_text(JOB)
    return cluster


def test_data_goes_to_the_nodes_and_results_come_back(files: Workplace, tmp_path: Path) -> None:
    ran = files.fab("launch", "files/job.yml")
    shown = sorted(line for line in ran.out.splitlines() if "1,2,3" in line)
    assert shown == [
        f"[{rank} node00000{rank // 2}] 1,2,3 .gitignore a.bin notes notes/link.bin {rank}  of $RANK lr=0.1"
        for rank in range(4)
    ]
    (record,) = (job for job in files.fab("jobs", "--json").json() if job["job"] in ran.err)
    assert record["display_name"] == "Tables and images"
    assert (record["experiment"], record["tags"]) == ("files", {"owner": "tests"})
    files.fab("collect", record["job"], "--into", str(tmp_path))
    found = {path.name: path.read_text() for path in tmp_path.rglob("model/rank-*.txt")}
    assert found == {f"rank-{rank}.txt": f'{rank} of 4, a "b" $c' for rank in range(4)}


def test_data_that_is_there_is_not_sent_again(files: Workplace) -> None:
    ran = files.fab("launch", "files/job.yml", "--detach")
    assert not [line for line in ran.err.splitlines() if line.startswith("snapshot ")]
    files.fab("logs", "-f", ran.out.strip())


def test_a_job_without_code_works_in_an_empty_folder_of_its_own(files: Workplace) -> None:
    job = files.own / "files" / "bare.yml"
    job.write_text("command: pwd && ls -A && touch left-behind\ndistribution: {type: pytorch}\n")
    for _ in range(2):
        ran = files.fab("launch", "files/bare.yml", "--nodes", "0-1")
        shown = {line.partition("] ")[2] for line in ran.out.splitlines() if line.startswith("[")}
        assert len(shown) == 2
        assert "outputs" in shown, "the job's own, and nothing else"
        assert any(line.endswith("/work") and "/.ranklift/jobs/bare-" in line for line in shown)


def test_what_the_nodes_lack_is_told_before_a_rank_starts(files: Workplace) -> None:
    job = files.own / "files" / "large.yml"
    job.write_text("command: echo started\nresources: {shm_size: 4000g}\n")
    refused = files.fab("launch", "files/large.yml", status=None)
    assert refused.status != 0
    assert "/dev/shm" in refused.err
    assert "started" not in refused.out
