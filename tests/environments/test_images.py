"""Images on rehearsed nodes: pulled or built once by the head, spread to the others, run there."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.inside import Inside, nodes
from tests.e2e.workplace import Ran, Workplace, rehearsed_workplace
from tests.environments.debian_image import image_archive
from tests.launch.conda_channel import Channel, rattler_wheel
from tests.launch.wheels import make_wheel, uv_wheel
from tests.rehearsal.registry import PASSWORD, USER, Registry, registry

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]
LIMIT_S = 60.0

IMAGE = "team/train"
JOB = """\
command: echo "$GREETING of $(cat /opt/made 2>/dev/null || cat /etc/debian_version) on $(hostname)"
distribution: {type: pytorch, process_count_per_instance: 1}
resources: {instance_count: 2}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry with a password, and an image of Debian."""
    with registry(tmp_path_factory.mktemp("registry"), locked=True) as made:
        made.push(IMAGE, "1", image_archive().read_bytes(), Env=["GREETING=image", "PATH=/usr/bin:/bin"])
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, images: Registry) -> Iterator[Workplace]:
    """Two bare nodes that trust the registry."""
    with rehearsed_workplace(tmp_path_factory.mktemp("images"), 2, None) as made:
        made.configure("rehearsal", nodeCount=2)
        made.fab("up")
        folder = f"~/.config/containers/certs.d/{images.address}"
        trust = shlex.quote(images.certificate.read_text())
        made.fab("exec", "--", "sh", "-c", f"mkdir -p {folder} && printf %s {trust} >{folder}/ca.crt")
        (made.own / "token").write_text(f"{USER}:{PASSWORD}\n")
        (made.own / "job.yml").write_text(JOB)
        yield made


def run(cluster: Workplace, *words: str, status: int = 0) -> Ran:
    return cluster.fab("launch", "job.yml", *words, status=status)


def folders(cluster: Workplace) -> dict[str, set[str]]:
    """The environments of each node, whole or not."""
    line = "ls ~/.ranklift/environments 2>/dev/null || true"
    answers = cluster.fab("exec", "--json", "--", "sh", "-c", line).json()
    return {
        node: {name for name in answer["stdout"].split() if "." not in name}
        for node, answer in answers.items()
    }


def credentials(cluster: Workplace, images: Registry) -> Path:
    """Docker's file of the registry's password."""
    file = cluster.own / "config.json"
    file.write_text(json.dumps({"auths": {images.address: {"username": USER, "password": PASSWORD}}}))
    return file


@pytest.mark.for_every_change
def test_a_private_image_is_pulled_once_spread_and_run(cluster: Workplace, images: Registry) -> None:
    name = f"{images.address}/{IMAGE}:1"
    first = run(cluster, "--image", name, "--registry-token", "token")
    assert "image of 12" in first.out
    for node in ("node000000", "node000001"):
        assert f"on {node}" in first.out
    assert "environment " in first.err
    layers = [line for line in images.log.read_text().splitlines() if "GET /v2/team/train/blobs/" in line]
    second = run(cluster, "--image", name, "--registry-token", "token")
    assert "image of 12" in second.out
    assert layers == [
        line for line in images.log.read_text().splitlines() if "GET /v2/team/train/blobs/" in line
    ]
    held = folders(cluster)
    assert len(held["node000000"]) == 1
    assert held["node000000"] == held["node000001"]
    written = cluster.fab(
        "exec", "--json", "--", "sh", "-c", f"grep -rl {PASSWORD!r} ~/.ranklift; true"
    ).json()
    assert {answer["stdout"] for answer in written.values()} == {""}
    assert PASSWORD not in first.out + first.err


def test_a_refused_pull_names_the_remedy_and_leaves_no_job(cluster: Workplace, images: Registry) -> None:
    before = folders(cluster)
    refused = run(cluster, "--image", f"{images.address}/{IMAGE}:1", status=1)
    assert f"{images.address} asks for credentials" in refused.err
    assert f"--registry-token {images.address}=FILE" in refused.err
    unknown = run(cluster, "--image", f"{images.address}/{IMAGE}:2", "--registry-token", "token", status=1)
    assert "does not exist" in unknown.err
    assert folders(cluster) == before


@pytest.mark.for_every_change
def test_a_dockerfile_is_built_once_on_the_head(cluster: Workplace, images: Registry) -> None:
    context = cluster.own / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {images.address}/{IMAGE}:1\nRUN echo mine >/opt/made\n")
    environment = {"build": {"path": "context"}}
    (cluster.own / "job.yml").write_text(f"{JOB}environment: {json.dumps(environment)}\n")
    built = run(cluster, "--registry-token", credentials(cluster, images).name)
    assert built.out.count("image of mine") == 2
    again = run(cluster)
    assert again.out.count("image of mine") == 2


def test_packages_of_a_conda_file_are_added_to_an_image(cluster: Workplace, images: Registry) -> None:
    wheels = cluster.own / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "toolkit", "1.2", {"toolkit/__init__.py": b"ANSWER = 42\n"})
    shutil.copy(uv_wheel(), wheels)
    (cluster.own / "conda.yml").write_text("dependencies:\n  - pip:\n      - toolkit\n      - --no-index\n")
    environment = {"image": f"{images.address}/{IMAGE}:1", "conda_file": "conda.yml"}
    command = "python -c 'import sys, toolkit; print(sys.prefix, toolkit.ANSWER)'; echo $GREETING"
    job = {"command": command, "environment": environment, "resources": {"instance_count": 2}}
    job["distribution"] = {"type": "pytorch", "process_count_per_instance": 1}
    (cluster.own / "job.yml").write_text(json.dumps(job))
    (cluster.own / "token").write_text(f"{USER}:{PASSWORD}\n")
    ran = run(cluster, "--find-links", "wheels", "--registry-token", f"{images.address}=token")
    assert ran.out.count("/opt/ranklift/environment 42") == ran.out.count("] image") == 2


def test_a_conda_file_is_installed_over_an_image_without_conda(
    cluster: Workplace, images: Registry, channel: Channel
) -> None:
    wheels = cluster.own / "tools"
    wheels.mkdir()
    for wheel in (uv_wheel(), rattler_wheel()):
        shutil.copy(wheel, wheels)
    conda = {"channels": [str(channel.folder), "nodefaults"], "dependencies": ["toolkit"]}
    environment = {"image": f"{images.address}/{IMAGE}:1", "conda_file": conda}
    line = "import os, sys, toolkit; print(sys.prefix, os.environ['CONDA_PREFIX'], toolkit.ANSWER)"
    job = JOB.replace(JOB.splitlines()[0], f'command: python -c "{line}" && native-3')
    (cluster.own / "job.yml").write_text(f"{job}environment: {json.dumps(environment)}\n")
    built = run(cluster, "--registry-token", f"{images.address}=token", "--find-links", str(wheels))
    prefix = "/opt/ranklift/environment"
    assert built.out.count(f"{prefix} {prefix} 42\n") == 2
    assert built.out.count(f"{prefix}/share\n") == 2
    assert "note: ranks in this image do not get what " in built.err


class TestFaults:
    """A pull that ends in the middle leaves nothing that counts; the next launch is right."""

    def launch(self, images: Registry, tag: str) -> list[str]:
        """Push an image that no node has; return the words that launch a job in it."""
        images.push(IMAGE, tag, image_archive().read_bytes(), Env=[f"GREETING={tag}", "PATH=/usr/bin:/bin"])
        name = f"{images.address}/{IMAGE}:{tag}"
        return ["launch", "fault.yml", "--image", name, "--registry-token", "token"]

    @pytest.fixture
    def head(self, cluster: Workplace) -> Inside:
        (cluster.own / "fault.yml").write_text(JOB)
        return nodes(cluster.project, "rehearsal")["node000000"]

    def test_a_pull_that_is_killed(self, cluster: Workplace, images: Registry, head: Inside) -> None:
        words = self.launch(images, "killed")
        before = folders(cluster)["node000000"]
        stored = head.path(".ranklift/environments")
        with cluster.begin(*words) as process:
            until = time.monotonic() + LIMIT_S
            while not any(path.parts[-3] not in before for path in stored.glob("*/root/usr")):
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            head.kill(
                signal.SIGKILL,
                *(one.pid for one in head.processes() if one.args.endswith(" environment")),
            )
            out, _ = process.communicate(timeout=LIMIT_S)
        assert "node000000: signal 9 ended it before the environment was made" in out
        (half,) = folders(cluster)["node000000"] - before
        pulled = images.log.read_text().count(f"GET /v2/{IMAGE}/blobs/")
        assert cluster.fab(*words).out.count("killed of 12") == 2
        assert half not in folders(cluster)["node000000"]
        configuration = 1  # the layer is there
        assert images.log.read_text().count(f"GET /v2/{IMAGE}/blobs/") - pulled <= 2 * configuration

    def test_a_disk_that_fills(self, cluster: Workplace, images: Registry, head: Inside) -> None:
        words = self.launch(images, "full")
        stored = "/home/azureuser/.ranklift/environments"
        head.mount(stored, "2g,nr_inodes=2000")
        try:
            refused = cluster.fab(*words, status=1)
            assert "the disk of node000000 is full" in refused.err
            assert "`fab environment.prune`" in refused.err
            assert folders(cluster)["node000000"] == set()
        finally:
            head.unmount(stored)
        assert cluster.fab(*words).out.count("full of 12") == 2


class TestFormsOfAzureMl:
    """Azure ML's "CLI (v2) command job YAML schema", ``environment``, as its examples write it.

    Conda files on an image are above, Microsoft's own names in ``test_registry_of_azure.py``.
    """

    def run(self, cluster: Workplace, images: Registry, environment: str) -> Ran:
        (cluster.own / "form.yml").write_text(f"{JOB}environment: {environment}\n")
        return cluster.fab("launch", "form.yml", "--registry-token", credentials(cluster, images).name)

    def test_an_image_in_place(self, cluster: Workplace, images: Registry) -> None:
        ran = self.run(cluster, images, f"{{image: {images.address}/{IMAGE}:1}}")
        assert ran.out.count("image of 12") == 2

    def test_a_dockerfile_of_another_name(self, cluster: Workplace, images: Registry) -> None:
        files = cluster.own / "docker-context/gpu"
        files.mkdir(parents=True)
        (files / "words").write_text("other\n")
        (files / "train.dockerfile").write_text(
            f"FROM {images.address}/{IMAGE}:1\nCOPY gpu/words /opt/made\nENV GREETING=built\n"
        )
        ran = self.run(
            cluster, images, "{build: {path: docker-context, dockerfile_path: gpu/train.dockerfile}}"
        )
        assert ran.out.count("built of other") == 2

    @pytest.mark.parametrize(
        "reference",
        [
            "azureml:train:3",
            "azureml:train@latest",
            "azureml://registries/own/environments/train/versions/3",
            "azureml:/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices"
            "/workspaces/w/environments/train/versions/3",
        ],
    )
    def test_a_name(self, cluster: Workplace, images: Registry, reference: str) -> None:
        stored = cluster.own / "environments"
        stored.mkdir(exist_ok=True)
        schema = "https://azuremlschemas.azureedge.net/latest/environment.schema.json"
        (stored / "train.yml").write_text(
            f"$schema: {schema}\nname: train\nversion: 3\nimage: {images.address}/{IMAGE}:1\n"
            "description: for training\ntags: {team: own}\n"
        )
        assert self.run(cluster, images, reference).out.count("image of 12") == 2
