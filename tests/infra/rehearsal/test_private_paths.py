"""Nodes do not see where the user who rehearses keeps credentials."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.rehearsal.daemon import machine_settings
from infra.rehearsal.folder import Folder
from infra.rehearsal.private_paths import NAMES, PrivatePaths, private_paths
from tests.infra.rehearsal.hardware import lab

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder where nodes could see it: they have a /tmp of their own."""
    with tempfile.TemporaryDirectory(prefix=".test-home-", dir=ROOT) as name:
        yield Path(name)


def found(environment: dict[str, str], *needed: Path) -> PrivatePaths:
    return private_paths(environment, needed)


def test_a_home_is_known_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real" / ".ssh").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    private = found({"HOME": str(tmp_path / "link")})
    assert tmp_path / "real" in private.homes
    assert tmp_path / "real/.ssh" in private.hidden
    assert tmp_path / "link" not in private.homes


def test_what_a_private_name_points_to_is_private_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "vault" / "keys").mkdir(parents=True)
    (tmp_path / "vault" / "netrc").touch()
    (tmp_path / "home/.ssh").symlink_to("../vault/keys")
    (tmp_path / "home/.netrc").symlink_to("../vault/netrc")
    hidden = found({"HOME": str(tmp_path / "home")}).hidden
    assert {tmp_path / "vault/keys", tmp_path / "vault/netrc"} <= set(hidden)


def test_variables_name_more_of_it_unless_the_project_is_in_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    environment = {"AZURE_CONFIG_DIR": str(tmp_path / "a"), "KUBECONFIG": f"{tmp_path}/b:{tmp_path}/none"}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path)}
    hidden = found(environment, tmp_path / "project").hidden
    assert {tmp_path / "a", tmp_path / "b"} <= set(hidden)
    assert tmp_path not in hidden


@pytest.mark.parametrize("folder", ["/", "/home"])
def test_the_systems_own_folders_are_nobodys_home(folder: str) -> None:
    assert Path(folder) not in found({"HOME": folder}).homes


def test_the_folders_that_matter_most_are_on_the_list() -> None:
    assert {".ssh", ".azure", ".aws", ".pulumi", ".config"} <= set(NAMES)


def test_a_node_sees_nothing_private_now_or_later(home: Path, tmp_path: Path) -> None:
    for name in (".ssh", ".azure", ".config", "work", "vault"):
        (home / name).mkdir()
        (home / name / "file").write_text(f"secret {name}\n")
    (home / ".aws").symlink_to("vault")
    (home / ".netrc").write_text("secret password\n")
    (home / "notes").write_text("secret notes\n")
    elsewhere = home.with_name(f"{home.name}-elsewhere")
    elsewhere.write_text("secret elsewhere\n")

    async def story() -> tuple[str, str]:
        private = found({"HOME": str(home), "KUBECONFIG": str(elsewhere)}, ROOT)
        async with lab(tmp_path, 1, private=private) as it:
            files = f"{home}/*/file {home}/.*/file {home}/* {elsewhere}"
            _, now = await it.ssh(0, f"exec 2>&1; ls -A {home}; cat {files}")
            (home / ".pulumi").mkdir()
            (home / ".pulumi/credentials.json").write_text("secret later\n")
            (home / ".ssh/id").write_text("secret later\n")
            line = f"cat {home}/.pulumi/* {home}/.ssh/*; touch {home}/new; ls -A {home}"
            _, later = await it.ssh(0, f"exec 2>&1; {line}")
            return now, later

    try:
        now, later = asyncio.run(story())
    finally:
        elsewhere.unlink()
    assert [line for line in now.splitlines() if line.startswith("secret")] == ["secret work"]
    assert now.splitlines()[:2] == ["vault", "work"]
    assert "secret" not in later.replace("secret work", "")
    assert {line for line in later.splitlines() if ":" not in line} == {"vault", "work"}
    assert "Read-only file system" in later


def test_a_rehearsal_hides_its_own_record_the_stacks_keys_and_the_users_home(home: Path) -> None:
    (home / ".ssh").mkdir()
    folder = Folder(ROOT)
    settings = machine_settings(folder, None, 3, {"HOME": str(home)})
    assert home in settings.homes
    assert home / ".ssh" in settings.masked
    for private in (folder.record_file, folder.control, ROOT / ".ranklift" / "dev" / "key"):
        assert any(private.is_relative_to(path) for path in settings.masked)
