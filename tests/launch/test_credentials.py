"""Credentials of this machine, which no command sends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.code.snapshot import Snapshot, plan_data, plan_snapshot
from launch.credentials import credential_paths, known_credentials
from launch.data.local_files import list_files
from launch.errors import InputError, RetryError

Send = Callable[[Path], object]
SENDERS = pytest.mark.parametrize("send", [plan_snapshot, plan_data, list_files])
FILES = (
    *(".ssh/id_ed25519", ".azure/msal_token_cache.json", ".pulumi/credentials.json", ".aws/credentials"),
    *(
        ".gnupg/secring.gpg",
        ".kube/config",
        ".docker/config.json",
        ".netrc",
        ".config/gcloud/access_tokens.db",
    ),
    *(".git-credentials", ".pypirc", ".npmrc", ".config/gh/hosts.yml", ".cache/huggingface/token"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with credentials of every kind, and a repository."""
    home = tmp_path / "home"
    for name in FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    (home / "repo").mkdir()
    (home / "repo/train.py").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(home / ".azure"))
    return home


@SENDERS
@pytest.mark.parametrize("name", FILES)
def test_credentials_are_not_sent(home: Path, send: Send, name: str) -> None:
    folder = (home / name).parent if (home / name).parent != home else home
    with pytest.raises(InputError, match="credentials of this machine"):
        send(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_credentials_is_not_sent_under_any_name(home: Path, name: str) -> None:
    (home / "repo/link").symlink_to(home / name)
    os.link(home / name, home / "repo/hard")
    for path in (home / name, home / "repo/link", home / "repo/../repo/link"):
        for send in (plan_data, list_files):
            with pytest.raises(InputError, match="holds credentials of this machine"):
                send(path)
    is_file_of_the_table = (home / name) in known_credentials().paths.values()
    if is_file_of_the_table:
        for each in (plan_data, plan_snapshot, list_files):
            with pytest.raises(InputError, match="credentials of this machine"):
                each(home / "repo")


@SENDERS
def test_a_folder_that_holds_them_is_refused(home: Path, send: Send) -> None:
    for folder in (home, home / ".config", home.parent):
        with pytest.raises(InputError, match="credentials of this machine"):
            send(folder)


def test_code_is_pushed_without_the_credentials_that_its_ignore_files_name(home: Path) -> None:
    (home / ".gitignore").write_text("*\n!train.py\n!repo/\n")
    assert [entry.path for entry in plan_snapshot(home).entries] == ["repo/train.py"]


def test_a_link_to_them_in_code_stays_a_link(home: Path) -> None:
    (home / "repo/keys").symlink_to(home / ".ssh")
    links = [(one.path, one.target) for one in plan_snapshot(home / "repo").entries if one.target]
    assert links == [("keys", str(home / ".ssh"))]


@pytest.mark.parametrize("send", [plan_data, list_files])
@pytest.mark.parametrize("target", ["../.ssh", "../.azure/msal_token_cache.json", "../.SSH/../.ssh", ".."])
def test_a_link_to_them_in_data_is_refused_though_its_folder_is_allowed(
    home: Path, send: Callable[..., object], target: str
) -> None:
    (home / ".SSH").mkdir()
    (home / "repo/sub").mkdir()
    (home / "repo/sub/link").symlink_to(f"../{target}")
    with pytest.raises(InputError, match="credentials of this machine"):
        send(home / "repo", allowed=(home,))


def test_a_folder_of_another_name_that_is_the_same_is_refused(home: Path, tmp_path: Path) -> None:
    (home / ".ssh").rename(tmp_path / "keys")
    (home / ".ssh").symlink_to(tmp_path / "keys")
    for path in (home / ".ssh", tmp_path / "keys", tmp_path / "keys/id_ed25519"):
        with pytest.raises(InputError, match="holds credentials"):
            plan_data(path)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KUBECONFIG", "/nowhere:FILE"),
        ("DOCKER_CONFIG", "FOLDER"),
        ("XDG_CONFIG_HOME", "FOLDER"),
        ("PULUMI_HOME", "FOLDER"),
    ],
)
def test_a_variable_moves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    (tmp_path / "there/gh").mkdir(parents=True)
    for name in ("config.json", "gh/hosts.yml"):
        (tmp_path / "there" / name).write_text("secret")
    file = tmp_path / "there/config.json"
    monkeypatch.setenv(variable, value.replace("FILE", str(file)).replace("FOLDER", str(file.parent)))
    with pytest.raises(InputError, match="credentials of this machine"):
        plan_data(tmp_path / "there")


def test_processes_and_secrets_of_the_machine_are_among_them() -> None:
    paths = {str(path) for path in credential_paths({})}
    assert {"/proc", "/etc/shadow", "/run/secrets"} <= paths
    with pytest.raises(InputError, match="/proc holds credentials"):
        plan_data(Path("/proc/self/environ"))


class TestLinksThatLeaveDataFolders:
    """A link that leaves a data folder is refused, whatever it leads to."""

    @pytest.mark.parametrize("send", [plan_data, list_files])
    @pytest.mark.parametrize(
        "target", ["../outside", "../outside/file", "../data/../outside", "ABSOLUTE", "hop"]
    )
    def test_is_refused_with_both_paths(self, tmp_path: Path, send: Send, target: str) -> None:
        for folder in ("data/sub", "outside"):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "outside/file").write_text("x")
        (tmp_path / "data/own").write_text("x")
        (tmp_path / "hop").symlink_to("outside")
        target = {"ABSOLUTE": str(tmp_path / "outside"), "hop": "../hop"}.get(target, target)
        (tmp_path / "data/sub/link").symlink_to(target if target.startswith("/") else f"../{target}")
        with pytest.raises(InputError, match=rf"sub/link.*{tmp_path}/outside.*--allow-path"):
            send(tmp_path / "data")

    @pytest.mark.parametrize("send", [plan_data, list_files])
    def test_is_followed_into_an_allowed_folder_and_within_its_own(
        self, tmp_path: Path, send: Callable[..., Any]
    ) -> None:
        for folder in ("data", "outside/more"):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "outside/more/two").write_text("2")
        (tmp_path / "data/one").write_text("1")
        (tmp_path / "data/first").symlink_to("one")
        (tmp_path / "data/folder").symlink_to("../outside")
        found = send(tmp_path / "data", allowed=(tmp_path / "outside",))
        entries = found.entries if isinstance(found, Snapshot) else found
        names = [getattr(one, "path" if isinstance(found, Snapshot) else "name") for one in entries]
        assert names == ["first", "folder/more/two", "one"]

    def test_of_an_ignore_file_of_code_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "code").mkdir()
        (tmp_path / "code/train.py").write_text("")
        (tmp_path / "rules").write_text("*.py\n")
        (tmp_path / "code/.gitignore").symlink_to("../rules")
        with pytest.raises(InputError, match=rf"\.gitignore -> {tmp_path}/rules"):
            plan_snapshot(tmp_path / "code")


def test_a_path_that_leads_elsewhere_since_it_was_allowed_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "link").symlink_to("two")
    for plan in (plan_data, plan_snapshot):
        with pytest.raises(RetryError, match=f"led to {tmp_path}/one, and leads to {tmp_path}/two now"):
            plan(tmp_path / "link", expected=tmp_path / "one")
