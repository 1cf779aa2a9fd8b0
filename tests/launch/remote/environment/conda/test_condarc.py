"""A node's settings of conda: which files, which of them wins, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.remote.environment.build import Failed
from launch.remote.environment.conda import condarc
from launch.remote.environment.conda.condarc import Condarc, read_condarc


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node's folder with its /etc and a home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(condarc, "_FOLDERS", (f"{tmp_path}/etc/conda", "{root}", "~/.conda"))
    (tmp_path / "etc/conda/condarc.d").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    yield tmp_path


def test_without_settings_they_are_condas_own(node: Path) -> None:
    assert read_condarc({}) == Condarc()


def test_of_several_files_the_users_wins_and_lists_are_joined(node: Path) -> None:
    (node / "etc/conda/.condarc").write_text("channel_alias: https://a\nchannels: [one]\n")
    (node / "etc/conda/condarc.d/b.yml").write_text("channels:\n- two\ncustom_channels:\n  x: https://b\n")
    (node / "etc/conda/condarc.d/c.txt").write_text("channels: [never]\n")
    (node / "home/.condarc").write_text("channel_alias: 'https://c'\nchannels:\n  - one # again\n")
    (node / "named").write_text("channel_priority: strict\ndefault_channels: [https://d/main]\n")
    found = read_condarc({"CONDARC": str(node / "named")})
    assert (found.channel_alias, found.channels) == ("https://c", ("one", "two"))
    assert (found.channel_priority, found.default_channels) == ("strict", ("https://d/main",))
    assert found.custom_channels["x"] == "https://b"


def test_the_folder_of_conda_itself_and_variables_count(node: Path) -> None:
    (node / "root").mkdir()
    (node / "root/.condarc").write_text("channel_priority: false\nchannels: [a]\n")
    found = read_condarc({"CONDA_CHANNELS": "b,c", "CONDA_CHANNEL_ALIAS": "https://e"}, str(node / "root"))
    assert (found.channel_priority, found.channels) == ("disabled", ("b", "c", "a"))
    assert found.channel_alias == "https://e"


def test_channels_of_several_are_read(node: Path) -> None:
    text = "custom_multichannels:\n  ours:\n    - https://a/x\n    - conda-forge\n  more: [b]\n"
    (node / "home/.condarc").write_text(text)
    assert read_condarc({}).custom_multichannels == {"ours": ("https://a/x", "conda-forge"), "more": ("b",)}


def test_what_only_conda_obeys_is_noted_with_its_line(node: Path) -> None:
    text = "show_channel_urls: true\nssl_verify: true\nproxy_servers:\n  https: http://p:3128\n"
    (node / "home/.condarc").write_text(text)
    assert read_condarc({}).elsewhere == (f"{node}/home/.condarc, line 3: proxy_servers",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("channels: conda-forge\n", r"line 1: channels is not understood; write a list"),
        ("\nchannel_alias: &x https://a\n", r"line 2: channel_alias: '&x https://a' is not understood"),
        ("channels\n", r"line 1: 'channels' is not understood; write `key: value`"),
        ("custom_channels: https://a\n", r"line 1: custom_channels is not understood; write a mapping"),
        ("channel_priority: often\n", r"channel_priority = 'often': use strict, flexible or disabled"),
        ("channel_alias:\n  a: b\n", r"line 1: channel_alias is not one value"),
    ],
)
def test_what_is_not_understood_is_refused(node: Path, text: str, words: str) -> None:
    (node / "home/.condarc").write_text(text)
    with pytest.raises(Failed, match=words):
        read_condarc({})
