"""Where the Pulumi CLI comes from, and that it is whole."""

from __future__ import annotations

import importlib.util
import io
import re
import tarfile
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


def release(releases: Path, parts: tuple[str, ...]) -> None:
    for machine in ("x64", "arm64"):
        with tarfile.open(releases / f"pulumi-v3.232.0-linux-{machine}.tar.gz", "w:gz") as archive:
            for part in parts:
                entry = tarfile.TarInfo(f"pulumi/{part}")
                entry.size = len(part)
                archive.addfile(entry, io.BytesIO(part.encode()))


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


def test_the_official_release_is_unpacked_flat(tmp_path: Path) -> None:
    release(tmp_path, (*install.PARTS, "pulumi-watch"))
    into = tmp_path / "bin"
    into.mkdir()
    assert install.fetch_release("3.232.0", into, tmp_path.as_uri())
    assert install.complete(into)
    assert (into / "pulumi-watch").read_text() == "pulumi-watch"


def test_a_release_that_cannot_be_had_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert not install.fetch_release("3.232.0", tmp_path / "bin", (tmp_path / "nowhere").as_uri())
    assert list((tmp_path / "bin").iterdir()) == []


def test_a_release_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    release(tmp_path, install.PARTS[:2])
    (tmp_path / "bin").mkdir()
    with pytest.raises(install.InstallError, match="pulumi-resource-pulumi-python"):
        install.fetch_release("3.232.0", tmp_path / "bin", tmp_path.as_uri())


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
