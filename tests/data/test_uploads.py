"""Outputs of jobs in storage: how each end of a job brings them there, and what an upload leaves to lose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from infra.arm.clients import blob_service
from rehearsal.arm.core.subscription import OPERATOR
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]
STACK = "rehearsal"
MODELS = "azureml://datastores/workspaceblobstore/paths/models"
JOB_FILE = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
code: src
command: >-
  sh -c 'mkdir -p ${{{{outputs.model}}}}/sub; echo $RANK > ${{{{outputs.model}}}}/same;
  echo $RANK > ${{{{outputs.model}}}}/sub/$RANK; echo kept > $RANKLIFT_OUTPUT_DIR/notes-$RANK; {then}'
environment: azureml:any@latest
outputs:
  model:
    type: custom_model
    path: {models}/{name}
distribution:
  type: pytorch
  process_count_per_instance: 1
resources:
  instance_count: 2
ranklift:
  upload: true
  python: python3
{more}
"""


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """Two nodes, and storage that the operator may read."""
    workplace.configure(STACK, nodeCount=2, storage="serviceEndpoint", dataOperators=OPERATOR)
    workplace.fab("up")
    return workplace


@pytest.fixture(scope="module")
def client(cluster: Workplace) -> Iterator[BlobServiceClient]:
    found = cluster.pulumi("stack", "output", "--json", "--stack", STACK).json()
    with blob_service(found["blobEndpoint"], cluster.folder.environment()) as made:
        yield made


def launch(cluster: Workplace, name: str, then: str = "true", more: str = "", status: int = 0) -> str:
    """Run a job to its end; return what the launch prints."""
    folder = cluster.own / "job"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "a.py").touch()
    (folder / "job.yml").write_text(JOB_FILE.format(models=MODELS, name=name, then=then, more=more))
    return cluster.fab("launch", "job/job.yml", status=status).err


def stored(client: BlobServiceClient, prefix: str, container_name: str = "data") -> dict[str, bytes]:
    container = client.get_container_client(container_name)
    names = [one.name for one in container.list_blobs(prefix)]
    return {name.removeprefix(prefix): container.download_blob(name).readall() for name in names}


def newest(cluster: Workplace) -> dict[str, Any]:
    found: dict[str, Any] = cluster.fab("jobs", "--json").json()[-1]
    return found


@pytest.mark.for_every_change
def test_outputs_of_all_nodes_are_in_storage_when_the_job_has_ended(
    cluster: Workplace, client: BlobServiceClient
) -> None:
    said = launch(cluster, "good")
    job = newest(cluster)["job"]
    assert re.search(rf"SUCCEEDED: outputs in \S+/data/models/good, \S+/results/{job}", said), said
    nodes = newest(cluster)["nodes"]
    assert stored(client, "models/good/") == {
        "same": b"0\n",
        f"{nodes[1]}/same": b"1\n",
        "sub/0": b"0\n",
        "sub/1": b"1\n",
    }
    whole = stored(client, f"{job}/", "results")
    assert whole["outputs/notes-0"] == whole["outputs/notes-1"] == b"kept\n"
    assert {"logs/rank-0.log", "logs/rank-1.log"} <= {*whole}
    assert "uploaded to https://" in cluster.fab("job", job).out
    again = cluster.fab("upload", job).out
    assert "0 files" in again and "there already" in again


@pytest.mark.for_every_change
def test_another_job_reads_an_output_by_its_address(cluster: Workplace) -> None:
    flags = ["--nodes", "0", "--nproc-per-node", "1", "--input", f"model={MODELS}/good/"]
    ran = cluster.fab("launch.torch", "cat ${{inputs.model}}/sub/0 ${{inputs.model}}/sub/1", *flags)
    assert "[0 node000000] 0\n[0 node000000] 1\n" in ran.out
    cluster.fab("collect")


def test_a_job_that_fails_leaves_what_there_is(cluster: Workplace, client: BlobServiceClient) -> None:
    launch(cluster, "bad", then="exit 3", status=3)
    assert set(stored(client, "models/bad/")) >= {"same", "sub/0"}
    assert newest(cluster)["state"] == "FAILED"
    assert "outputs in " in newest(cluster)["reason"]


@pytest.mark.for_every_change
def test_an_upload_that_storage_refuses_goes_on_by_hand(
    cluster: Workplace, client: BlobServiceClient
) -> None:
    cluster.fab("rehearsal.fault", "storage-denied")
    said = launch(cluster, "denied", status=74)
    job = newest(cluster)
    assert f"error: job {job['job']} INCOMPLETE: not all of its outputs" in said
    assert (job["state"], job["exit_status"]) == ("INCOMPLETE", 74)
    assert f"not all of its outputs are in storage, `fab upload {job['job']}` goes on" in job["reason"]
    assert "AuthorizationPermissionMismatch" in job["reason"]
    assert "Storage Blob Data Contributor" in job["reason"]
    cluster.fab("wait", job["job"], status=74)
    cluster.fab("rehearsal.fault", "clear")
    assert stored(client, "models/denied/") == {}
    cluster.fab("upload", job["job"])
    assert set(stored(client, "models/denied/")) >= {"same", "sub/0", "sub/1"}
    assert (newest(cluster)["state"], newest(cluster)["exit_status"]) == ("SUCCEEDED", 0)
    cluster.fab("wait", job["job"])


def test_what_is_in_storage_is_not_lost_with_the_nodes_but_with_the_stack(cluster: Workplace) -> None:
    ran = cluster.fab("down", status=1)
    assert "not collected" not in ran.err
    assert "is deleted with its data and results: `fab data.ls` lists them" in ran.err
    assert "1 storage account may hold data and results; --yes removes it anyway" in ran.err
    cluster.fab("down", "--yes")
