"""Which URLs a conda file's channels stand for on a node."""

from __future__ import annotations

import pytest

from launch.remote.environment.build import Failed
from launch.remote.environment.conda.conda_channels import resolve, searched
from launch.remote.environment.conda.condarc import Condarc

MIRROR = Condarc(
    channel_alias="https://mirror.example/all/",
    default_channels=("https://mirror.example/main", "r"),
    custom_channels={"conda-forge": "https://forge.example", "pkgs": "https://repo.anaconda.com"},
    custom_multichannels={"ours": ("https://a.example/x", "conda-forge")},
)


@pytest.mark.parametrize(
    ("channel", "urls"),
    [
        ("bioconda", ["https://conda.anaconda.org/bioconda"]),
        ("conda-forge/label/dev", ["https://conda.anaconda.org/conda-forge/label/dev"]),
        ("defaults", ["https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r"]),
        ("pkgs/main", ["https://repo.anaconda.com/pkgs/main"]),
        ("https://a.example/b/", ["https://a.example/b"]),
        ("/shared/channel", ["file:///shared/channel"]),
    ],
)
def test_without_settings_names_mean_what_they_mean_to_conda(channel: str, urls: list[str]) -> None:
    assert resolve([channel], [], Condarc()).channels == tuple(urls)


@pytest.mark.parametrize(
    ("channel", "urls"),
    [
        ("bioconda", ["https://mirror.example/all/bioconda"]),
        ("conda-forge/label/dev", ["https://forge.example/conda-forge/label/dev"]),
        ("defaults", ["https://mirror.example/main", "https://mirror.example/all/r"]),
        ("ours", ["https://a.example/x", "https://forge.example/conda-forge"]),
        ("https://conda.anaconda.org/conda-forge", ["https://conda.anaconda.org/conda-forge"]),
    ],
)
def test_mirrors_are_those_of_the_nodes_settings(channel: str, urls: list[str]) -> None:
    assert resolve([channel], [], MIRROR).channels == tuple(urls)


def test_a_package_of_a_named_channel_comes_from_that_alone() -> None:
    found = resolve(["bioconda"], ["conda-forge::numpy=2", "samtools"], MIRROR)
    assert found.specs == ("https://forge.example/conda-forge::numpy=2", "samtools")
    assert found.channels == ("https://mirror.example/all/bioconda", "https://forge.example/conda-forge")


def test_configured_channels_come_last_and_once() -> None:
    settings = Condarc(channels=("conda-forge", "more"))
    assert searched(["conda-forge", "folder:0"], settings, ["/sent"]) == (
        "conda-forge",
        "file:///sent",
        "more",
    )
    assert searched([], settings, []) == ("conda-forge", "more")


@pytest.mark.parametrize(
    ("settings", "specs", "words"),
    [
        (Condarc(), ["defaults::numpy"], "defaults::numpy: defaults stands for 2 channels; name one of"),
        (Condarc(elsewhere=("f, line 3: offline",)), [], "f, line 3: offline: only conda itself obeys"),
        (Condarc(channel_alias="https://me:secret@a.example"), [], r"channel https://\*\*\*@a.example/x: a"),
        (Condarc(channel_alias="https://a.example/t/to-ken"), [], r"channel https://a.example/t/\*\*\*/x: a"),
        (Condarc(channel_alias="a.example"), [], "a.example of the .condarc is not a URL"),
    ],
)
def test_what_cannot_be_searched_is_refused(settings: Condarc, specs: list[str], words: str) -> None:
    with pytest.raises(Failed, match=words):
        resolve(["x"], specs, settings)
