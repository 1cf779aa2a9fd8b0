"""Names of images, as a registry is asked with them; and Microsoft's curated ones."""

from __future__ import annotations

import pytest

from launch.environment.curated import CURATED, curated_image
from launch.environment.image_reference import image_reference
from launch.errors import InputError

DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("python", "docker.io/library/python:latest"),
        ("pytorch/pytorch:2.8.0", "docker.io/pytorch/pytorch:2.8.0"),
        (f"mine.azurecr.io/train{DIGEST}", f"mine.azurecr.io/train{DIGEST}"),
        (f"mine.azurecr.io/train:1{DIGEST}", f"mine.azurecr.io/train:1{DIGEST}"),
        ("index.docker.io/me/train", "docker.io/me/train:latest"),  # whose credentials are docker.io's
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("http://10.0.0.9:5000/train:1", "http://10.0.0.9:5000/train:1"),
        ("https://localhost:5000/train:1", "https://localhost:5000/train:1"),  # by TLS, though on loopback
        ("http://localhost:5000/train:1", "localhost:5000/train:1"),
        ("registry-1.docker.io/me/train:1", "docker.io/me/train:1"),
        ("https://mine.azurecr.io/train:1", "mine.azurecr.io/train:1"),
    ],
)
def test_a_name_is_completed_as_docker_does_it(written: str, whole: str) -> None:
    assert image_reference("image", written) == whole


@pytest.mark.parametrize(
    "text", ["", "Upper/case", "two words", "a//b", "a:b:c", "-a", "http://a", "a@sha256:1"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not the name of an image; write it as REGISTRY/NAME:TAG"):
        image_reference("image", text)


def test_a_curated_name_is_an_image_with_the_version_as_its_tag() -> None:
    image = "mcr.microsoft.com/azureml/curated/acpt-pytorch-2.8-cuda12.6"
    assert curated_image("AzureML-ACPT-pytorch-2.8-cuda12.6", "12") == f"{image}:12"
    assert curated_image("acpt-pytorch-2.8-cuda12.6", "") == f"{image}:latest"
    assert curated_image("AzureML-PyTorch-1.6-GPU", "") is None


@pytest.mark.parametrize("name", CURATED)
def test_every_curated_name_is_one_that_a_registry_takes(name: str) -> None:
    image = curated_image(name, "1")
    assert image is not None
    assert image_reference("image", image) == image
