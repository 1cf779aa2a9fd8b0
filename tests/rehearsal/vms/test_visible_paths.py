"""Nodes see the machine's software and their Python, and nothing else of the machine that they run on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.daemon import machine_settings
from rehearsal.run_dir import Folder
from rehearsal.vms.visible_paths import VisiblePaths, environments, visible_paths
from tests.rehearsal.node_lab import lab

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside the ones that nodes have of their own anyway, like /tmp."""
    with tempfile.TemporaryDirectory(prefix=".test-place-", dir=ROOT) as name:
        yield Path(name)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The top folders of a machine."""
    made = tmp_path / "machine"
    for name in ("usr/bin", "usr/src", "usr/local/src", "opt/mpi/bin", "srv/other", "home/user", "data"):
        (made / name).mkdir(parents=True)
    (made / "bin").symlink_to("usr/bin")
    return made


def seen(machine: Path, environment: dict[str, str] | None = None, *needed: Path) -> VisiblePaths:
    return visible_paths(environment or {}, machine / "srv/project", needed, machine)


def test_what_is_shown_is_a_list(machine: Path) -> None:
    view = seen(machine)
    assert view.shown == (machine / "usr", machine / "opt/mpi")
    assert view.links == ((machine / "bin", "usr/bin"),)
    assert view.hidden == (machine / "usr/src", machine / "usr/local/src")
    assert view.kept == ()


def test_a_folder_of_opt_in_which_people_work_is_not_shown(machine: Path) -> None:
    (machine / "opt/checkout/.ranklift").mkdir(parents=True)
    (machine / "opt/checkouts/one/.ranklift").mkdir(parents=True)
    (machine / "opt/home/user").mkdir(parents=True)
    (machine / "opt/keys").mkdir()
    environment = {"HOME": str(machine / "opt/home/user"), "KUBECONFIG": f"{machine}/opt/keys/config"}
    assert seen(machine, environment).shown == (machine / "usr", machine / "opt/mpi")
    own = visible_paths(environment, machine / "opt/mpi", (), machine)
    assert own.shown == (machine / "usr",)


def test_a_project_and_credentials_among_the_system_software_are_hidden(machine: Path) -> None:
    (machine / "usr/share/project").mkdir(parents=True)
    (machine / "usr/share/keys").mkdir()
    environment = {"AZURE_CONFIG_DIR": f"{machine}/usr/share/keys", "XDG_CONFIG_HOME": f"{machine}/usr"}
    hidden = visible_paths(environment, machine / "usr/share/project", (), machine).hidden
    assert {machine / "usr/share/project", machine / "usr/share/keys"} <= set(hidden)
    assert machine / "usr" not in hidden


def test_an_environment_comes_with_every_link_to_its_interpreter(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "pythons/3.11.9/bin").mkdir(parents=True)
    (tmp_path / "pythons/3.11.9/bin/python3.11").touch()
    (tmp_path / "pythons/3.11").symlink_to("3.11.9")
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to("python3")
    (tmp_path / "venv/bin/python3").symlink_to(tmp_path / "pythons/3.11/bin/python3.11")
    (tmp_path / "link").symlink_to("venv")
    kept = seen(machine, None, tmp_path / "link").kept
    assert set(kept) == {tmp_path / name for name in ("link", "venv", "pythons/3.11", "pythons/3.11.9")}


def test_of_an_interpreter_in_a_home_folder_itself_its_parts_alone_are_shown(machine: Path) -> None:
    home = machine / "home/user"
    for name in ("bin", "lib", ".ssh"):
        (home / name).mkdir()
    (home / "bin/python").touch()
    assert set(seen(machine, {"HOME": str(home)}, home).kept) == {home / "bin", home / "lib"}


def test_environments_beside_the_nodes_own_are_needed_too(tmp_path: Path) -> None:
    for name in (".venv-node", ".venv-mpich", "env"):
        (tmp_path / "made" / name).mkdir(parents=True)
        (tmp_path / "made" / name / "pyvenv.cfg").touch()
    (tmp_path / "made/code").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.venv-node").symlink_to(tmp_path / "made/.venv-node")
    found = environments(tmp_path / "project/.venv-node")
    beside = {tmp_path / "made" / name for name in (".venv-node", ".venv-mpich", "env")}
    assert set(found) == {tmp_path / "project/.venv-node", *beside}


def test_a_node_sees_nothing_of_homes_and_other_projects_now_or_later(place: Path, tmp_path: Path) -> None:
    home, other, vault = place / "home", place / "other", place / "vault"
    for name in (home / ".ssh", home / "work", other / ".ranklift/dev", vault):
        name.mkdir(parents=True)
        (name / "key").write_text("secret\n")
    (home / "notes").write_text("secret\n")
    (home / ".aws").symlink_to(vault / "later")  # to nothing yet

    async def story() -> None:
        view = visible_paths({"HOME": str(home)}, other, (Path(sys.base_prefix),))
        async with lab(tmp_path, 1, view=view) as it:
            reached = f"ls -A {home} {other} {vault} {place} {ROOT}; cat {home}/* {other}/.ranklift/*/key"
            _, now = await it.ssh(0, f"exec 2>&1; {reached}; ls -A / /home /root /srv /boot /opt /mnt")
            (vault / "later").mkdir()
            (vault / "later/credentials").write_text("secret\n")
            (other / ".ranklift/later").mkdir()
            (other / ".ranklift/later/key").write_text("secret\n")
            _, later = await it.ssh(0, f"exec 2>&1; cat {home}/.aws/* {vault}/*/*; {reached}")
            for output in (now, later):
                assert "secret" not in output
                assert f"{ROOT}': No such file" in output
            listed = now[now.index("/:\n") :].strip().split("\n\n")
            assert {"/home:\nazureuser", "/root:", "/srv:", "/boot:"} <= set(listed)
            system = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "var", "etc"}
            places = {"boot", "dev", "home", "mnt", "proc", "root", "run", "srv", "sys", "tmp"}
            assert set(listed[0].splitlines()[1:]) <= system | places

    asyncio.run(story())


def test_an_environment_in_a_hidden_folder_works_and_nothing_beside_it_is_seen(
    place: Path, tmp_path: Path
) -> None:
    made = place / ".venv-node"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    (place / ".ranklift").mkdir()

    async def story() -> None:
        view = visible_paths({"HOME": str(place)}, place, (*environments(made), Path(sys.base_prefix)))
        async with lab(tmp_path, 1, node_python=made, view=view) as it:
            ask = f"python -c 'import sys; print(sys.prefix)'; ls -A {place}; touch {made}/new {place}/new"
            _, output = await it.ssh(0, ask)
            assert output.startswith(f"{made}\n.venv-node\n")
            assert output.count("Read-only file system") == 2

    asyncio.run(story())


def test_a_rehearsal_shows_neither_its_project_nor_the_users_home(place: Path) -> None:
    folder = Folder(ROOT)
    settings = machine_settings(folder, ROOT / ".venv-node", 3, {"HOME": str(place)})
    view = settings.view
    for private in (folder.record_file, folder.control, ROOT / ".ranklift/dev/key", ROOT / "infra", place):
        for path in (*view.shown, *view.kept):
            assert not private.is_relative_to(path) or any(private.is_relative_to(one) for one in view.hidden)
    assert ROOT / ".venv-node" in view.kept


def test_the_command_line_of_a_network_shows_nothing_of_what_nodes_see(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0):
            lines = [_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
            networks = [words for words in lines if "rehearsal.vms.netns" in words]
            (words,) = [
                words for words in networks if str(tmp_path / "nodes") in words and words[0] != "unshare"
            ]
            assert words[words.index("rehearsal.vms.netns") + 2 :] == [str(tmp_path / "nodes"), ""]

    asyncio.run(story())


def _command_line(path: Path) -> list[str]:
    try:
        return path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]
