"""Credentials for registries come from a file, go to the image's own registry, and are shown nowhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from launch.environment.environment_request import with_runtime
from launch.environment.environment_spec import Bare, BuildEnvironment, ImageEnvironment
from launch.environment.registry_secrets import read_registry_secrets, secrets_for, split_host
from launch.errors import InputError

ANN = {"username": "ann", "password": "se:cret"}
IMAGE = ImageEnvironment("http://me.azurecr.io/train:1")
BUILD = BuildEnvironment(Path("context"))


def never(registry: str) -> None:
    raise InputError("--registry-token", None, f"asks about {registry}", "do not ask")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "token"
    path.write_text(text)
    return path


def docker(**auths: object) -> str:
    return json.dumps({"auths": auths})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann:se:cret\n", {"": ANN}),
        (
            "eyJ0\n",
            {"": {"username": "00000000-0000-0000-0000-000000000000", "password": "eyJ0"}},
        ),
        (
            docker(**{"me.azurecr.io": {"auth": base64.b64encode(b"ann:se:cret").decode()}}),
            {"me.azurecr.io": ANN},
        ),
        (docker(**{"https://index.docker.io/v1/": ANN}), {"docker.io": ANN}),
        (
            docker(**{"a.io": {"auth": "x", "identitytoken": "t"}, "b.io": {}}),
            {"a.io": {"identitytoken": "t"}},
        ),
    ],
)
def test_a_file_has_one_credential_or_is_dockers(
    tmp_path: Path, text: str, expected: dict[str, dict[str, str]]
) -> None:
    assert read_registry_secrets(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not have one line"),
        ("ann:secret\nmore", "does not have one line"),
        ('{"auths": {"a.io": {"auth": "secret!"}}}', "is not Docker's config.json"),
        ('{"auths": secret', "is not Docker's config.json"),
        ('{"auths": {"a.io": {}}, "credsStore": "desktop"}', "has no credentials: they are with desktop"),
        ("{}", "has no credentials"),
    ],
)
def test_a_file_without_a_credential_is_refused_and_not_shown(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        read_registry_secrets(written(tmp_path, text))
    assert str(refused.value).startswith(f"--registry-token = '{tmp_path}/token': {why}")
    assert "secret" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_registry_secrets(tmp_path / "absent")


def test_a_head_gets_the_credential_of_its_images_registry_alone() -> None:
    both = {"me.azurecr.io": ANN, "other.io": {"identitytoken": "t"}}
    assert secrets_for(IMAGE, both, never) == {"me.azurecr.io": ANN}
    assert secrets_for(None, {}, never) == {}


def test_a_credential_without_a_registry_goes_where_the_user_confirms_it() -> None:
    asked: list[str] = []
    assert secrets_for(IMAGE, {"": ANN}, asked.append) == {"me.azurecr.io": ANN}
    assert asked == ["me.azurecr.io"]
    with pytest.raises(InputError, match=r"asks about me\.azurecr\.io"):
        secrets_for(IMAGE, {"": ANN}, never)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("token", ("", "token")),
        ("./me.azurecr.io=x", ("", "./me.azurecr.io=x")),
        ("me.azurecr.io=~/a=b", ("me.azurecr.io", "~/a=b")),
        ("localhost:5000=token", ("localhost:5000", "token")),
        ("registry-1.docker.io=token", ("docker.io", "token")),
    ],
)
def test_the_option_names_a_registry_before_its_file(given: str, expected: tuple[str, str]) -> None:
    assert split_host(given) == expected


@pytest.mark.parametrize("given", ["token=1", "=token", "me.azurecr.io=", "a b.io=token", "https:=token"])
def test_what_is_no_registry_before_a_file_is_refused(given: str) -> None:
    with pytest.raises(InputError, match="does not begin with a registry; write HOST=FILE"):
        split_host(given)


def test_a_credential_of_a_named_registry_is_for_that_one_alone(tmp_path: Path) -> None:
    one = read_registry_secrets(written(tmp_path, "ann:se:cret"), "me.azurecr.io")
    assert one == {"me.azurecr.io": ANN}
    file = written(tmp_path, docker(**{"me.azurecr.io": ANN, "b.io": ANN}))
    assert read_registry_secrets(file, "me.azurecr.io") == {"me.azurecr.io": ANN}
    with pytest.raises(InputError, match=r"has no credentials for a\.io, only for b\.io, me\.azurecr\.io"):
        read_registry_secrets(file, "a.io")
    with pytest.raises(InputError, match=r"has no credentials for me\.azurecr\.io, only for b\.io"):
        secrets_for(IMAGE, read_registry_secrets(written(tmp_path, "ann:x"), "b.io"), never)


def test_a_head_that_builds_gets_the_credentials_of_the_images_that_its_dockerfile_names(
    tmp_path: Path,
) -> None:
    every = {"a.io": ANN, "b.io:5000": ANN, "docker.io": ANN, "other.io": ANN}
    lines = ["ARG OTHER=other.io/x", "FROM a.io/base:1 AS one", "FROM one", "FROM http://b.io:5000/x@sha256:"]
    lines[-1] += "0" * 64
    (tmp_path / "Dockerfile").write_text("\n".join([*lines, "RUN echo other.io"]))
    assert secrets_for(BuildEnvironment(tmp_path), every, never) == {"a.io": ANN, "b.io:5000": ANN}
    (tmp_path / "other").write_text("FROM python:3.12\n")
    assert secrets_for(BuildEnvironment(tmp_path, "other"), every, never) == {"docker.io": ANN}
    assert secrets_for(BuildEnvironment(tmp_path, "absent"), every, never) == {}


@pytest.mark.parametrize(
    ("environment", "given", "why"),
    [
        (IMAGE, {"other.io": ANN}, "has no credentials for me.azurecr.io, only for other.io; `docker login"),
        (BUILD, {"": ANN}, "does not name its registry"),
        (None, {"": ANN}, "is for container images, and this job runs in none"),
        (Bare(), {"a.io": ANN}, "is for container images, and this job runs in none"),
    ],
)
def test_a_credential_that_helps_nobody_is_refused(
    environment: ImageEnvironment | BuildEnvironment | Bare | None, given: dict[str, dict[str, str]], why: str
) -> None:
    with pytest.raises(InputError) as refused:
        secrets_for(environment, given, never)
    assert why in str(refused.value)
    assert "cret" not in str(refused.value)


def test_a_runtime_is_for_images() -> None:
    assert with_runtime(BUILD, "docker") == BuildEnvironment(Path("context"), runtime="docker")
    assert with_runtime(Bare(), None) == Bare()
    with pytest.raises(InputError, match="--runtime = 'docker': is for container images"):
        with_runtime(None, "docker")
    with pytest.raises(InputError, match="not a runtime of containers; use docker, enroot, charliecloud"):
        with_runtime(IMAGE, "podman")
