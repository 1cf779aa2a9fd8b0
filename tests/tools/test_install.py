"""Where the Pulumi CLI comes from, and that it is whole."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "pulumi" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = load("install")


def command(folder: Path, name: str, prints: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{prints}'\n")
    (folder / name).chmod(0o755)
    return folder / name


def built(folder: Path) -> Path:
    """Parts with the record of a build."""
    for part in install.PARTS:
        command(folder, part)
    (folder / install.RECORD).write_text(install.digests(folder))
    return folder


def test_engine_and_python_sdk_are_pinned_to_one_version() -> None:
    (sdk,) = re.findall(r"^pulumi==(\S+)", (ROOT / "requirements" / "base.txt").read_text(), re.MULTILINE)
    assert install.pinned_version() == sdk
    assert f"{install.SDK} v{sdk} " in (ROOT / "tools" / "pulumi" / "go.mod").read_text()


def test_a_new_enough_cli_on_path_is_used(tmp_path: Path) -> None:
    pulumi = command(tmp_path, "pulumi", "v3.231.0")
    command(tmp_path, "pulumi-language-python")
    assert install.own_cli(str(tmp_path)) == pulumi


@pytest.mark.parametrize(
    ("version", "host", "why"),
    [("v3.230.9", True, "older than 3.231"), ("v3.240.0", False, "no Python language host")],
)
def test_a_cli_that_will_not_do_is_passed_over_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, host: bool, why: str
) -> None:
    command(tmp_path, "pulumi", version)
    if host:
        command(tmp_path, "pulumi-language-python")
    assert install.own_cli(str(tmp_path)) is None
    assert why in capsys.readouterr().out


def test_no_cli_on_path_is_no_error(tmp_path: Path) -> None:
    assert install.own_cli(str(tmp_path)) is None


def test_what_was_built_is_used_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = built(tmp_path / "3.232.0")
    install.make(folder, tmp_path / "no-uv")
    assert capsys.readouterr().out == f"Pulumi 3.232.0, kept in {folder}\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: command(folder, "pulumi", "other"), "not what was built: pulumi"),
        (lambda folder: command(folder, "pulumi-more"), "not what was built: pulumi-more"),
        (lambda folder: (folder / "pulumi").unlink(), "lacks one of pulumi, "),
        (lambda folder: (folder / install.RECORD).unlink(), "no SHA256SUMS says what was built"),
    ],
    ids=["changed", "added", "lost", "without a record"],
)
def test_what_is_not_what_was_built_is_built_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], object],
    why: str,
) -> None:
    folder = built(tmp_path / "3.232.0")
    change(folder)
    monkeypatch.setattr(install, "find_go", lambda: tmp_path / "go")
    monkeypatch.setattr(install, "build", lambda go, into, work, *, own_caches: built(into))
    install.make(folder, tmp_path / "no-uv")
    assert f"is not used and built again: {why}" in capsys.readouterr().out
    assert install.fault(folder) == ""


def test_nothing_is_downloaded_but_what_a_lock_holds() -> None:
    text = (ROOT / "tools/pulumi/install.py").read_text()
    assert "urllib" not in text and "https://" not in text


def test_links_of_an_earlier_run_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    old, new, bin_folder = tmp_path / "old", tmp_path / "new", tmp_path / "bin"
    for folder in (old, new):
        for part in install.PARTS:
            command(folder, part)
    command(old, "pulumi-watch")
    own = command(bin_folder, "pulumi-own")
    install.link(old, bin_folder)
    install.link(new, bin_folder)
    assert {
        link.name: link.resolve().parent for link in bin_folder.iterdir() if link != own
    } == dict.fromkeys(install.PARTS, new)
    install.link(None, bin_folder)
    assert list(bin_folder.iterdir()) == [own]


def test_the_cache_follows_the_users_choice(tmp_path: Path) -> None:
    version = install.pinned_version()
    assert install.cache_folder({"HOME": "/h"}) == Path("/h/.cache/ranklift/pulumi") / version
    assert (
        install.cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/ranklift/pulumi") / version
    )


def test_a_download_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "PAUSE_S", 0.0)
    line = "echo once more >> tries; test $(wc -l < tries) -ge {}"
    install.persistently(["sh", "-c", line.format(2)], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert (tmp_path / "tries").read_text() == "once more\n" * 2
    with pytest.raises(install.InstallError, match="ended with 1"):
        install.persistently(["sh", "-c", line.format(9)], cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert (tmp_path / "tries").read_text() == "once more\n" * 5
