"""Outputs on their way to storage, and what is killed, cut off, cancelled or removed meanwhile."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.storage.blob import ContainerClient

from infra.arm.clients import blob_service
from rehearsal.arm.core.subscription import OPERATOR
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.data, pytest.mark.timeout(1800)]

STACK = "rehearsal"
NODES = ("node000000", "node000001")
SMALL, BIG = 1_000_000, 20_000_000
JOB_FILE = """\
command: >-
  sh -c 'cd ${{{{outputs.model}}}}; head -c {small} /dev/urandom > small-$RANK;
  head -c {big} /dev/urandom > weights-$RANK; {then}'
outputs:
  model: {{path: azureml://datastores/workspaceblobstore/paths/models/{name}}}
distribution: {{type: pytorch, process_count_per_instance: 1}}
resources: {{instance_count: 2}}
ranklift: {{upload: true, python: python3}}
"""


class Cluster:
    """Two nodes, and storage that the operator may read."""

    def __init__(self, workplace: Workplace, container: ContainerClient) -> None:
        self.workplace, self._container = workplace, container
        self.fab = workplace.fab

    def launch(self, name: str, then: str = "true") -> str:
        path = self.workplace.own / "job.yml"
        path.write_text(JOB_FILE.format(name=name, then=then, small=SMALL, big=BIG))
        ran = self.fab("launch", "job.yml", "--name", name, "--detach")
        found = re.search(rf"{name}-\d{{8}}-\d{{6}}-\w{{4}}", ran.out)
        assert found, ran
        return found[0]

    def launch_on_second(self, name: str) -> str:
        """Launch a job with the second node as its head and only node."""
        (self.workplace.own / "a.sh").write_text("true")
        words = ["launch.torch", "bash a.sh", "--per-node", "--nodes", "1", "--name", name, "--detach"]
        return self.fab(*words).out.strip()

    def job(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self.fab("job", job, "--json").json()
        return found

    def on(self, number: int, line: str) -> str:
        return self.fab("exec", line, "--nodes", str(number)).out

    def wait_until_sending(self, name: str) -> None:
        """Wait until the small file of each node is in storage, and the large ones are on their way."""
        wait_until(lambda: {"small-0", "small-1"} <= {*self.stored(name)})

    def uploads(self, job: str) -> list[dict[str, Any]]:
        """The records of a job's uploads."""
        return [one["fields"] for one in self.job(job)["events"] if one["event"] == "upload"]

    def kill(self, number: int, what: str) -> None:
        """End processes of a node by SIGKILL, those with ``what`` in their command line."""
        self.on(number, f"kill -9 $(pgrep -f '[_]_main__.py {what}')")

    def is_whole(self, job: str, name: str) -> bool:
        """Whether storage has each file as its node has it."""
        stored = self.stored(name)
        return len(stored) == 4 and stored == self.made(job)

    def stored(self, name: str) -> dict[str, str]:
        """MD5 of each file of the model that storage has."""
        prefix = f"models/{name}/"
        return {
            one.name.removeprefix(prefix): (one.content_settings.content_md5 or b"").hex()
            for one in self._container.list_blobs(prefix)
        }

    def made(self, job: str) -> dict[str, str]:
        """The same of what the nodes have."""
        found = self.fab("exec", f"cd ~/.ranklift/jobs/{job}/outputs/model && md5sum *").out
        return {name: digest for digest, name in re.findall(r"([0-9a-f]{32})  (\S+)", found)}

    @contextmanager
    def slow_storage(self) -> Iterator[None]:
        """Storage over a link of 1 MB a second."""
        self.fab("rehearsal.fault", "storage-slow", "--rate", "1")
        try:
            yield
        finally:
            self.fab("rehearsal.fault", "clear")

    @contextmanager
    def uploading(self, name: str, then: str = "true") -> Iterator[str]:
        """A job whose ranks have ended and whose nodes have begun to send what it left."""
        with self.slow_storage():
            job = self.launch(name, then)
            self.wait_until_sending(name)
            yield job


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.3)


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Iterator[Cluster]:
    workplace.configure(STACK, nodeCount=2, storage="serviceEndpoint", dataOperators=OPERATOR)
    workplace.fab("up")
    found = workplace.pulumi("stack", "output", "--json", "--stack", STACK).json()
    with blob_service(found["blobEndpoint"], workplace.folder.environment()) as client:
        yield Cluster(workplace, client.get_container_client("data"))


def test_nodes_are_busy_until_everything_is_in_storage(cluster: Cluster) -> None:
    with cluster.uploading("busy") as job:
        assert cluster.job(job)["state"]["reason"].startswith("uploading to https://")
        for command in (["scale", "1"], ["replace", "1"], ["down"]):
            assert job in cluster.fab(*command, status=1).err
        other = cluster.launch_on_second("next")
        wait_until(lambda: f"{job} on node000001" in cluster.job(other)["state"]["reason"])
    cluster.fab("wait", job)
    cluster.fab("wait", other)
    assert cluster.is_whole(job, "busy")


def test_a_cancelled_job_keeps_its_nodes_until_its_upload_ends_or_is_cancelled(cluster: Cluster) -> None:
    with cluster.slow_storage():
        job = cluster.launch("cancelled", then="touch ready; sleep 600")
        ready = f"cat ~/.ranklift/jobs/{job}/outputs/model/ready && echo is ready"
        wait_until(lambda: "node[000000-000001]" in cluster.fab("exec", ready, status=None).out)
        cluster.fab("cancel", job)
        assert cluster.job(job)["state"]["state"] == "CANCELLED"
        cluster.wait_until_sending("cancelled")
        assert cluster.job(job)["state"]["reason"].startswith("uploading to https://")
        assert "CANCELLED, uploading" in cluster.fab("jobs").out
        assert f"it has {job}" in cluster.fab("scale", "1", status=1).err
        assert "its upload was ended" in cluster.fab("cancel", job).out
        (event,) = cluster.uploads(job)
        assert event["errors"] == {name: ["the upload was cancelled"] for name in NODES}
        assert cluster.job(job)["state"]["reason"] == ""
        cluster.fab("wait", cluster.launch_on_second("after"))
    cluster.fab("upload", job)
    assert "weights-1" in cluster.stored("cancelled")


def test_a_killed_uploader_is_named_and_its_upload_goes_on(cluster: Cluster) -> None:
    with cluster.uploading("killed") as job:
        cluster.kill(1, f"upload {job}")
    cluster.fab("wait", job, status=74)
    state = cluster.job(job)["state"]
    assert (state["state"], state["exit_status"]) == ("INCOMPLETE", 74)
    assert f"`fab upload {job}` goes on: node000001: " in state["reason"]
    assert {*cluster.stored("killed")} == {"small-0", "small-1", "weights-0"}
    cluster.fab("upload", job)
    assert (cluster.uploads(job)[-1]["kept"] >= 3, cluster.is_whole(job, "killed")) == (True, True)


def test_a_job_whose_supervisor_is_killed_has_ended_as_its_ranks_did(cluster: Cluster) -> None:
    with cluster.uploading("alone", then="exit 3") as job:
        record = f"~/.ranklift/jobs/{job}/state.json"
        cluster.on(0, f"""kill -9 $(grep -o '"supervisor": {{"pid": [0-9]*' {record} | grep -o '[0-9]*$')""")
        assert cluster.fab("wait", job, status=None).status == 3
        state = cluster.job(job)["state"]
        assert (state["state"], state["exit_status"]) == ("FAILED", 3)
        assert f"not all of its outputs are in storage, `fab upload {job}` goes on" in state["reason"]
    cluster.fab("upload", job)
    assert cluster.is_whole(job, "alone")


def test_fab_upload_that_is_killed_ends_on_the_nodes_and_goes_on(cluster: Cluster) -> None:
    cluster.fab("rehearsal.fault", "storage-denied")
    job = cluster.launch("operator")
    cluster.fab("wait", job, status=74)
    cluster.fab("rehearsal.fault", "clear")
    with cluster.slow_storage(), cluster.workplace.begin("upload", job) as process:
        cluster.wait_until_sending("operator")
        assert f"it has {job}" in cluster.fab("scale", "1", status=1).err
        os.killpg(process.pid, signal.SIGKILL)
        cluster.fab("wait", cluster.launch_on_second("later"))
    assert {*cluster.stored("operator")} == {"small-0", "small-1"}
    cluster.fab("upload", job)
    assert cluster.is_whole(job, "operator")


def test_a_node_that_is_cut_off_keeps_no_other_from_its_upload(cluster: Cluster) -> None:
    with cluster.uploading("cut") as job:
        cluster.fab("rehearsal.fault", "partition", "--nodes", "1")
    try:
        cluster.fab("wait", job, status=74)
        assert cluster.uploads(job)[-1]["errors"].keys() == {"node000001"}
        assert {*cluster.stored("cut")} == {"small-0", "small-1", "weights-0"}
    finally:
        cluster.fab("rehearsal.fault", "heal", "--nodes", "1")
    cluster.fab("status", "--json")
    cluster.fab("upload", job)
    assert cluster.is_whole(job, "cut")


def test_what_an_evicted_node_had_time_for_is_in_storage(cluster: Cluster) -> None:
    with cluster.uploading("evicted") as job:
        cluster.fab("rehearsal.fault", "evict", "--nodes", "1", "--seconds", "2")
        time.sleep(3)
    cluster.fab("wait", job, status=74)
    assert cluster.uploads(job)[-1]["errors"].keys() == {"node000001"}
    assert {*cluster.stored("evicted")} == {"small-0", "small-1", "weights-0"}
    cluster.fab("down", "--yes")
