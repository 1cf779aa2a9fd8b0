"""Images that the head builds: from the user's Dockerfile, or with packages on top of an image."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.remote.environment import image_build
from launch.remote.environment.build import Failed
from launch.remote.environment.conda import conda_tools
from launch.remote.environment.conda.conda_packages import COMPILE
from launch.remote.environment.image import identity
from tests.launch.remote.environment.image_requests import ID, install, made, request, unreported
from tests.launch.remote.environment.oci_registry import OciRegistry, image, layer, member

pytestmark = pytest.mark.usefixtures("programs")

CONTEXT = "00000000000000aa"

DOCKER = f"""#!{sys.executable}
import io, json, os, sys, tarfile
with open(os.environ["HOME"] + "/calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "load":
    with tarfile.open(sys.argv[-1]) as archive:
        entry = json.load(archive.extractfile("manifest.json"))[0]
    with open(os.environ["HOME"] + "/calls", "a") as calls:
        calls.write(json.dumps(entry["RepoTags"]) + "\\n")
if sys.argv[1] == "build" and os.path.exists(os.environ["HOME"] + "/fail"):
    sys.exit("step 3: no such package")
if sys.argv[1] == "build":
    with open(sys.argv[3]) as given, open(os.environ["HOME"] + "/built", "w") as built:
        built.write(given.read())
if sys.argv[1] == "save":
    with tarfile.open(sys.argv[3], "w") as archive:
        texts = {{"manifest.json": '[{{"Config": "c.json"}}]', "c.json": '{{"config": {{"Env": ["A=1"]}}}}'}}
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
"""
"""Docker, as far as a build calls it."""


def context(tmp_path: Path, dockerfile: str, name: str = "Dockerfile") -> Path:
    folder = tmp_path / ".ranklift/snapshots" / CONTEXT
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(dockerfile)
    return folder


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_docker_builds_and_saves(programs: Path, tmp_path: Path) -> None:
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    sent = context(tmp_path, "FROM debian\n", "docker/Train")
    wanted = request("", "docker", kind="build", context=CONTEXT, dockerfile="docker/Train")
    folder, _ = made(wanted, tmp_path)
    assert json.loads((folder / "config.json").read_text()) == {"config": {"Env": ["A=1"]}}
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "image.tar"]
    assert calls(tmp_path)[1:] == [
        ["build", "--file", f"{sent}/docker/Train", "--tag", f"ranklift/{ID}", str(sent)],
        ["save", "--output", f"{folder}/image.tar", f"ranklift/{ID}"],
    ]


def test_a_base_of_a_private_registry_is_loaded_before_so_that_docker_gets_no_password(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    name = served.add("base", "1", image([layer(member("a", b"1"))]))
    served.scheme = "Basic"
    context(tmp_path, f"FROM {name} AS one\nFROM one\n")
    secret = {served.host: {"username": "ann", "password": "secret"}}
    wanted = request("", "docker", kind="build", context=CONTEXT, dockerfile="Dockerfile", registries=secret)
    folder, _ = made(wanted, tmp_path)
    assert [call[0] for call in calls(tmp_path)[1:]] == ["load", name, "build", "save"]
    (built,) = [call for call in calls(tmp_path) if call[0] == "build"]
    assert built[built.index("--tag") + 1] == f"ranklift/{ID}"
    assert calls(tmp_path)[-1][-1] == f"ranklift/{ID}"
    assert "secret" not in (tmp_path / "calls").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "image.tar"]


def test_a_private_base_may_be_named_by_its_digest(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    """As below packages on top of an image. What Docker loads has no digest: a tag replaces it."""
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    base = image([layer(member("a", b"1"))])
    served.add("base", "1", base)
    served.scheme = "Basic"
    context(tmp_path, f"FROM {served.host}/base@{base.digest} AS one\nRUN true\n")
    secret = {served.host: {"username": "ann", "password": "secret"}}
    made(
        request("", "docker", kind="build", context=CONTEXT, dockerfile="Dockerfile", registries=secret),
        tmp_path,
    )
    name = f"{served.host}/base:{base.digest.partition(':')[2]}"
    assert [call[0] for call in calls(tmp_path)[1:]] == ["load", name, "build", "save"]
    assert (tmp_path / "built").read_text() == f"FROM {name} AS one\nRUN true\n"


def test_charliecloud_builds_on_an_image_that_this_head_has_pulled(
    served: OciRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    name = served.add("base", "1", image([layer(member("opt/base", b"1"))], Env=["A=1"], WorkingDir="/opt"))
    sent = context(tmp_path, f"FROM {name}\nCOPY mine /opt/\nENV B=2 PATH=/opt:$PATH\n")
    (sent / "mine").write_text("2")
    folder, _ = made(request("", kind="build", context=CONTEXT, dockerfile="Dockerfile"), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "root"]
    assert (folder / "root/opt/base").read_text() + (folder / "root/opt/mine").read_text() == "12"
    config = json.loads((folder / "config.json").read_text())["config"]
    assert config["WorkingDir"] == "/opt"
    assert {"A=1", "B=2", f"PATH=/opt:{image_build._PATH}"} <= set(config["Env"])


def test_a_build_that_fails_shows_its_last_lines(programs: Path, tmp_path: Path) -> None:
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    (tmp_path / "fail").touch()
    context(tmp_path, "FROM debian\n")
    with pytest.raises(Failed, match="docker build failed with exit status 1") as failed:
        made(request("", "docker", kind="build", context=CONTEXT, dockerfile="Dockerfile"), tmp_path)
    assert failed.value.lines == ["step 3: no such package"]


def test_a_dockerfile_that_was_not_sent_is_named(programs: Path, tmp_path: Path) -> None:
    for name in ("ch-run", "ch-image"):
        install(programs, name)
    context(tmp_path, "FROM debian\n")
    with pytest.raises(Failed, match=r"^dockerfile_path = docker/Train: the folder of the build"):
        made(request("", kind="build", context=CONTEXT, dockerfile="docker/Train"), tmp_path)


def test_a_runtime_that_builds_nothing_is_refused(programs: Path, tmp_path: Path) -> None:
    for name in ("ch-run", "enroot", "mksquashfs"):
        install(programs, name)
    message = r"cannot build images for containers \(docker: no docker on PATH; enroot: it builds no images; "
    message += r"charliecloud: no ch-image on PATH\)"
    with pytest.raises(Failed, match=message):
        made(request("", "", kind="build", context=CONTEXT, dockerfile="Dockerfile"), tmp_path)


def test_the_identity_of_a_build_is_its_files_and_its_dockerfile(programs: Path) -> None:
    for name in ("ch-run", "ch-image"):
        install(programs, name)
    ids = {
        identity(request("", kind="build", context=files, dockerfile=file), unreported)
        for files in (CONTEXT, "00000000000000bb")
        for file in ("Dockerfile", "Other")
    }
    assert len(ids) == 4


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"requirements": "torch\n", "python": "3.10", "find_links": ["a", "b"], "constraints": "numpy<2"},
            [
                "RUN UV_PYTHON_INSTALL_DIR=/opt/ranklift/python /opt/ranklift/packages/uv venv --quiet "
                "--no-project --python '3.10' /opt/ranklift/environment",
                "RUN /opt/ranklift/packages/uv pip install --no-cache --python "
                "/opt/ranklift/environment/bin/python --compile-bytecode --find-links "
                "/opt/ranklift/packages/wheels0 --find-links /opt/ranklift/packages/wheels1 --constraint "
                "/opt/ranklift/packages/constraints.txt --requirement "
                "/opt/ranklift/packages/requirements.txt",
            ],
        ),
    ],
)
def test_packages_on_top_of_an_image_become_a_dockerfile(fields: dict[str, Any], expected: list[str]) -> None:
    wanted = request(f"me.azurecr.io/train:1@{DIGEST}", **fields)
    assert image_build._dockerfile(wanted).splitlines() == [
        f"FROM me.azurecr.io/train@{DIGEST}",
        "COPY packages /opt/ranklift/packages",
        *expected,
        "ENV VIRTUAL_ENV=/opt/ranklift/environment PATH=/opt/ranklift/environment/bin:$PATH",
    ]


def test_conda_packages_are_installed_in_the_image_by_py_rattler(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs, "uv", "echo uv 9.9.9")
    channel = tmp_path / ".ranklift/snapshots/00c1"
    (channel / "noarch").mkdir(parents=True)
    (channel / "noarch/repodata.json").touch()
    wheels = tmp_path / ".ranklift/snapshots/00c2"
    wheels.mkdir()
    (wheels / "py_rattler-1.whl").write_bytes(b"1")
    pinned = ("py_rattler-1.whl", hashlib.sha256(b"1").hexdigest())
    monkeypatch.setitem(conda_tools.WHEELS, os.uname().machine, pinned)
    conda = json.dumps({"channels": ["folder:0", "nodefaults"], "dependencies": ["openmpi"]})
    wanted = request(
        f"me.azurecr.io/train:1@{DIGEST}",
        conda=conda,
        python="3.10",
        requirements="torch",
        constraints="numpy<2",
        channels=["00c1"],
        find_links=["00c2"],
    )
    context = tmp_path / "context"
    context.mkdir()
    file = Path(image_build._write_context(wanted, str(context), unreported))
    sent, own = "/opt/ranklift/packages", "/opt/ranklift/python/py-rattler"
    assert file.read_text().splitlines() == [
        f"FROM me.azurecr.io/train@{DIGEST}",
        f"COPY packages {sent}",
        f"RUN UV_PYTHON_INSTALL_DIR=/opt/ranklift/python {sent}/uv venv --quiet --no-project --python "
        f"'>=3.10' {own}",
        f"RUN {sent}/uv pip install --no-cache --python {own}/bin/python --quiet --offline --no-deps "
        f"{sent}/py_rattler-*.whl",
        f"RUN SSL_CERT_FILE={sent}/certificates.pem CONDA_OVERRIDE_CUDA='' {own}/bin/python -I "
        f"{sent}/rattler_install.py < {sent}/conda.json && rm -rf /opt/ranklift/cache",
        "RUN for file in /opt/ranklift/environment/etc/conda/activate.d/*.sh; do [ ! -e $file ] || "
        "echo note: ranks in this image do not get what $file sets; done",
        f"RUN {sent}/uv pip install --no-cache --python /opt/ranklift/environment/bin/python "
        f"--break-system-packages --find-links {sent}/wheels0 --constraint {sent}/constraints.txt "
        f"--requirement {sent}/requirements.txt",
        f"RUN /opt/ranklift/environment/bin/python -I -c '{COMPILE}' /opt/ranklift/environment/lib",
        "ENV CONDA_PREFIX=/opt/ranklift/environment PATH=/opt/ranklift/environment/bin:$PATH",
    ]
    assert json.loads((context / "packages/conda.json").read_text()) == {
        **{"channels": [f"file://{sent}/channel0"], "specs": ["openmpi", "python=3.10"]},
        **{"priority": "flexible", "platform": "linux-64", "prefix": "/opt/ranklift/environment"},
        "cache": "/opt/ranklift/cache",
    }
    assert (context / "packages/channel0/noarch/repodata.json").exists()
    assert (context / "packages/py_rattler-1.whl").exists()


def test_packages_are_part_of_an_images_identity(programs: Path) -> None:
    for name in ("ch-run", "ch-image"):
        install(programs, name)
    name = f"me.azurecr.io/train@{DIGEST}"
    ids = [
        identity(request(name, **fields), unreported)
        for fields in ({}, {"requirements": "a"}, {"requirements": "b"}, {"python": "3.10"})
    ]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    "lines",
    [
        {"requirements": "--index-url https://ann:secret@index.example/simple\ntorch"},
        {"requirements": "torch", "constraints": "torch @ https://ann:secret@index.example/torch.whl"},
    ],
)
def test_a_urls_password_is_refused_since_it_would_stay_in_the_image(
    programs: Path, lines: dict[str, str]
) -> None:
    with pytest.raises(Failed, match="the password in a URL would stay in the image") as refused:
        identity(request("train", **lines), unreported)
    assert "secret" not in str(refused.value)
