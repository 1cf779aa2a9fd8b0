"""An image's name means what it means to Docker; a name that is wrong is refused with its part at fault."""

from __future__ import annotations

import pytest

from launch.remote.environment.image_reference import ImageError, parse_reference

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("nvidia/cuda:12.4.1-base", "docker.io/nvidia/cuda:12.4.1-base"),
        ("index.docker.io/library/debian", "docker.io/library/debian:latest"),
        ("mcr.microsoft.com/azureml/base:1", "mcr.microsoft.com/azureml/base:1"),
        ("registry:5000/a/b/c", "registry:5000/a/b/c:latest"),
        ("localhost/train", "localhost/train:latest"),
        (f"me.azurecr.io/train@{DIGEST}", f"me.azurecr.io/train@{DIGEST}"),
        (f"me.azurecr.io/train:2@{DIGEST}", f"me.azurecr.io/train:2@{DIGEST}"),
        ("http://10.0.0.9:5000/train:2", "10.0.0.9:5000/train:2"),
        ("[::1]:5000/train", "[::1]:5000/train:latest"),
    ],
)
def test_a_name_without_registry_or_tag_gets_those_of_docker(text: str, whole: str) -> None:
    assert str(parse_reference(text)) == whole


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("debian", "https://registry-1.docker.io/v2/library/debian/"),
        ("me.azurecr.io/train", "https://me.azurecr.io/v2/train/"),
        ("127.0.0.1:5000/train", "http://127.0.0.1:5000/v2/train/"),
        ("https://localhost:5000/train", "https://localhost:5000/v2/train/"),
        ("http://10.0.0.9:5000/train", "http://10.0.0.9:5000/v2/train/"),
        ("127.0.0.1.example.com/train", "https://127.0.0.1.example.com/v2/train/"),
    ],
)
def test_a_registry_is_called_by_tls_unless_it_is_on_loopback_or_named_with_http(
    text: str, base: str
) -> None:
    assert parse_reference(text).base == base


@pytest.mark.parametrize(
    ("text", "at_fault"),
    [
        ("", "'' is not a name"),
        ("me.azurecr.io/Train", "'Train' is not a name"),
        ("me.azurecr.io/../train", "'../train' is not a name"),
        ("train:a b", "'a b' is not a tag"),
        ("train:", "'' is not a tag"),
        ("train@sha256:12", "'sha256:12' is not a digest"),
        ("train@", "'' is not a digest"),
        ("ftp://host/train", "'//host/train' is not a tag"),
    ],
)
def test_a_wrong_name_is_refused_with_the_part_at_fault(text: str, at_fault: str) -> None:
    with pytest.raises(ImageError) as refused:
        parse_reference(text)
    assert str(refused.value).startswith(f"image = {text}: ")
    assert at_fault in str(refused.value)
    assert str(refused.value).endswith("write it as REGISTRY/NAME[:TAG][@DIGEST]")
