"""Launches of a repository that names variables and files of the operator's machine, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.inventory import INVENTORY_FILE, Inventory, Node
from launch.access import Access
from playbooks.jobs.launch_file import load_of, read_job_file
from playbooks.jobs.submit import source_text
from playbooks.project import Stack
from tests.playbooks.typed import FAB, ROOT, fab, write_project

SECRET = "value-of-the-token"
LAUNCHES = {
    "torch": ("launch.torch", "train.py", "--requirements", "requirements.txt"),
    "mpi": ("launch.mpi", "train.py", "--requirements", "requirements.txt"),
    "tensorflow": ("launch.tensorflow", "train.py", "--requirements", "requirements.txt"),
    "conda": ("launch.torch", "train.py", "--conda", "conda.yml"),
    "environment": ("launch.torch", "train.py", "--environment", "own"),
    "job file": ("launch", "job.yml"),
    "job file's option": ("launch", "plain.yml", "--requirements", "requirements.txt"),
    "scaling": ("scaling", "job.yml", "--nodes", "1,2"),
    "scaling's environment": ("scaling", "plain.yml", "--nodes", "1,2", "--environment", "own"),
}
ALL = pytest.mark.parametrize("words", LAUNCHES.values(), ids=LAUNCHES)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository and a folder ``private`` beside the project, whose stack ``dev`` has two nodes."""
    project, own = tmp_path / "ranklift", tmp_path / "own"
    (project / ".ranklift/dev").mkdir(parents=True)
    write_project(project)
    nodes = tuple(
        Node(f"node{n:06x}", n, f"10.0.0.{n + 4}", "127.0.0.1", 50000 + n, 8, "running") for n in range(2)
    )
    saved = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "azureuser", nodes, 0.0)
    (project / ".ranklift/dev" / INVENTORY_FILE).write_text(json.dumps(asdict(saved)))
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret.txt").write_text("numpy\n")
    (own / "environments").mkdir(parents=True)
    (own / "train.py").write_text("import torch\n")
    (own / "fabfile.py").write_text(
        'from playbooks import ns\nns.configure({"ranklift": {"project": "../ranklift"}})\n'
    )
    environment = "ranklift: {environment: {requirements: requirements.txt}}\n"
    job = "command: python train.py\ncode: .\ndistribution: {type: pytorch}\n"
    (own / "job.yml").write_text(f"{job}{environment}")
    (own / "plain.yml").write_text(job)
    (own / "environments/own.yml").write_text("name: own\nrequirements: ../requirements.txt\n")
    write_requirement(own, "--index-url https://index.example/${INDEX_TOKEN}/simple")
    return own


def write_requirement(own: Path, line: str) -> None:
    (own / "requirements.txt").write_text(f"torch\n{line}\n")
    item = line.replace("'", "''")
    (own / "conda.yml").write_text(f"dependencies:\n- pip:\n  - torch\n  - '{item}'\n")


def run(own: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return fab(own, *words, "--dry-run", env={"INDEX_TOKEN": SECRET})


@ALL
def test_a_variable_that_the_user_did_not_name_is_refused_with_its_line_and_the_remedy(
    own: Path, words: tuple[str, ...]
) -> None:
    ran = run(own, *words)
    assert ran.returncode == 2
    assert "${INDEX_TOKEN}: is a variable of this machine" in ran.stderr
    assert "give --fill INDEX_TOKEN" in ran.stderr
    assert ("conda.yml, line 4" if "conda.yml" in words else "requirements.txt, line 2") in ran.stderr
    assert SECRET not in ran.stdout + ran.stderr


@ALL
def test_a_variable_that_the_user_names_is_filled_in_and_named_in_the_output(
    own: Path, words: tuple[str, ...]
) -> None:
    ran = run(own, *words, "--fill", "INDEX_TOKEN")
    assert ran.returncode == 0, ran.stderr
    assert "${INDEX_TOKEN} is filled in from this machine's environment" in ran.stdout + ran.stderr
    assert SECRET not in ran.stdout + ran.stderr


def test_a_variable_that_is_not_set_or_has_a_value_on_the_command_line_is_refused(own: Path) -> None:
    words = LAUNCHES["torch"]
    for given, refusal in (
        ("OTHER_TOKEN", "--fill = 'OTHER_TOKEN': is not set in the environment of this command"),
        ("INDEX_TOKEN=x", "--fill = 'INDEX_TOKEN': is not the name of such a variable"),
    ):
        ran = run(own, *words, "--fill", given)
        assert (ran.returncode, refusal in ran.stderr) == (2, True), ran.stderr


@pytest.mark.parametrize("key", ["fill: [INDEX_TOKEN]", "ranklift: {fill: INDEX_TOKEN}", "allow_path: /"])
def test_a_job_file_cannot_allow_itself_anything(own: Path, key: str) -> None:
    (own / "job.yml").write_text(f"command: python train.py\ncode: .\n{key}\n")
    ran = run(own, "launch", "job.yml")
    assert ran.returncode == 2
    assert "unknown key" in ran.stderr


@ALL
def test_a_file_outside_of_the_repository_is_refused_with_its_path(own: Path, words: tuple[str, ...]) -> None:
    write_requirement(own, "-r ../private/secret.txt")
    ran = run(own, *words)
    assert ran.returncode == 2
    assert f"'{own.parent}/private/secret.txt': lies outside of the repository {own}" in ran.stderr
    assert f"give --allow-path {own.parent}/private" in ran.stderr


@ALL
def test_a_file_that_the_user_allows_is_shown_with_its_full_path(own: Path, words: tuple[str, ...]) -> None:
    write_requirement(own, "-r ../private/secret.txt")
    ran = run(own, *words, "--allow-path", "../private")
    assert ran.returncode == 0, ran.stderr
    assert f"read from outside of the repository: {own.parent}/private/secret.txt" in ran.stdout + ran.stderr


def test_a_dry_run_shows_the_full_path_of_all_that_is_sent(own: Path) -> None:
    (own / "data").mkdir()
    (own / "data/a").write_text("a")
    (own / "current").symlink_to("data")
    (own / "plain.yml").write_text(
        "command: python train.py\ncode: .\ninputs: {x: {type: uri_folder, path: ./current}}\n"
    )
    ran = run(own, "launch", "plain.yml")
    assert f"from       {own}\n" in ran.stdout
    assert f"data       {own}/data: snapshot" in ran.stdout


def test_what_the_user_types_is_not_asked_about(own: Path) -> None:
    (own.parent / "private/train.py").write_text("import torch\n")
    ran = run(own, "launch.torch", "train.py", "--source", "../private", "--input", "x=../private")
    assert ran.returncode == 0, ran.stderr
    assert "outside" not in ran.stdout + ran.stderr
    ran = run(own, "launch.torch", "train.py", "--requirements", "../private/secret.txt")
    assert ran.returncode == 0, ran.stderr


def test_a_script_that_is_a_link_out_of_the_code_is_not_read(own: Path) -> None:
    (own / "link.py").symlink_to("../private/secret.txt")
    (own / "inner.py").symlink_to("train.py")
    scripts = ("link.py", "../private/secret.txt", "inner.py")
    assert [source_text(own, script) for script in scripts] == [None, None, "import torch\n"]


def answered(own: Path, answer: str, *words: str) -> str:
    """What a terminal shows of a command whose question gets that answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [FAB, *words],
        cwd=own,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("answer", "is_launched"), [("y", True), ("n", False), ("", False)])
def test_the_user_is_asked_at_a_terminal_with_the_path(own: Path, answer: str, is_launched: bool) -> None:
    (own / "plain.yml").write_text(
        "command: python train.py\ncode: .\ninputs: {x: {type: uri_folder, path: ../private}}\n"
    )
    shown = answered(own, answer, "launch", "plain.yml", "--dry-run")
    assert f"inputs.x.path names {own.parent}/private, outside of the repository {own}." in shown
    assert ("hostfile" in shown) == is_launched
    assert ("lies outside of the repository" in shown) != is_launched


@pytest.mark.parametrize("typed", ["link", "link/deep", "nested"])
@pytest.mark.parametrize(
    "words",
    [
        ("data.put", "TYPED", "https://acme.blob.core.windows.net/data/x"),
        ("push", "--source", "TYPED"),
        ("launch.torch", "train.py", "--source", "TYPED"),
        ("launch.torch", "train.py ${{inputs.x}}", "--source", ".", "--input", "x=TYPED"),
    ],
    ids=["data.put", "push", "source", "input"],
)
def test_a_link_of_the_repository_that_the_user_types_leads_no_further_than_allowed(
    own: Path, words: tuple[str, ...], typed: str
) -> None:
    (own.parent / "private/deep").mkdir()
    (own.parent / "private/deep/train.py").write_text("import torch\n")
    (own.parent / "private/train.py").write_text("import torch\n")
    (own / "link").symlink_to("../private")
    (own / "nested").symlink_to("link/deep")
    words = tuple(word.replace("TYPED", typed) for word in words)
    ran = run(own, *words)
    assert ran.returncode == 2
    real = f"{own.parent}/private{'' if typed == 'link' else '/deep'}"
    assert f"'{real}': lies outside of the repository {own}; give --allow-path {real}" in ran.stderr
    ran = run(own, *words, "--allow-path", "../private")
    assert ran.returncode == 0, ran.stderr
    assert f"read from outside of the repository: {real}" in ran.stdout + ran.stderr


def test_data_put_refuses_links_that_leave_the_folder(own: Path) -> None:
    (own / "data").mkdir()
    (own / "data/link").symlink_to("../../private")
    address = "https://acme.blob.core.windows.net/data/x"
    ran = run(own, "data.put", "data", address)
    assert ran.returncode == 2
    assert f"is a link that leaves the folder, to {own.parent}/private" in ran.stderr
    ran = run(own, "data.put", "data", address, "--allow-path", "../private")
    assert ran.returncode == 0, ran.stderr


def test_a_folder_that_many_inputs_name_is_read_once(own: Path) -> None:
    (own / "data").mkdir()
    (own / "data/a").write_text("a")
    paths = ("data", "./data", "environments/../data")
    inputs = "".join(f"  x{n}: {{path: {path}}}\n" for n, path in enumerate(paths))
    (own / "job.yml").write_text(f"command: hostname\ninputs:\n{inputs}")
    read: list[Path] = []

    class Recorded(Stack):
        def hashes_of(self, source: Path) -> Path:
            read.append(source)
            return super().hashes_of(source)

    stack = Recorded("dev", own.parent / "ranklift", {})
    load = load_of(stack, read_job_file(str(own / "job.yml"), (), Access()), ())
    assert list(load.data) == read == [own / "data"]


@pytest.fixture
def images(own: Path) -> Path:
    """That repository, whose files name an image of another registry than the login ``token`` is for."""
    (own / "token").write_text("ann:hunter2\n")
    image = "image: 'me.azurecr.io.evil.example/train:1'"
    (own / "image.yml").write_text(f"command: hostname\nenvironment: {{{image}}}\n")
    (own / "environments/image.yml").write_text(f"name: image\n{image}\n")
    return own


IMAGES = pytest.mark.parametrize(
    "words",
    [("launch", "image.yml"), ("launch.torch", "train.py", "--environment", "image")],
    ids=["file", "name"],
)


@IMAGES
def test_a_login_without_a_registry_goes_to_none_that_a_file_names(
    images: Path, words: tuple[str, ...]
) -> None:
    refused = fab(images, *words, "--registry-token", "token")
    assert refused.returncode == 2
    assert (
        "does not name its registry, and a file names an image of me.azurecr.io.evil.example"
        in refused.stderr
    )
    assert "give --registry-token me.azurecr.io.evil.example=token if it may go there" in refused.stderr
    other = fab(images, *words, "--registry-token", "me.azurecr.io=token")
    assert other.returncode == 2
    assert "has no credentials for me.azurecr.io.evil.example, only for me.azurecr.io" in other.stderr
    assert "hunter2" not in refused.stderr + other.stderr


@IMAGES
def test_a_dry_run_shows_to_which_registry_a_login_would_go(images: Path, words: tuple[str, ...]) -> None:
    question = "Send the login in token to me.azurecr.io.evil.example?"
    ran = run(images, *words, "--registry-token", "token")
    assert ran.returncode == 0, ran.stderr
    assert question in ran.stdout
    for typed in (
        ("--registry-token", "me.azurecr.io.evil.example=token"),
        ("--image", "me.azurecr.io/train:1", "--registry-token", "token"),
    ):
        ran = run(images, *(("launch.torch", "train.py") if "--image" in typed else words), *typed)
        assert (ran.returncode, "Send the login" in ran.stdout) == (0, False), ran.stderr


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("n", False)])
def test_the_user_is_asked_at_a_terminal_to_which_registry_a_login_goes(
    images: Path, answer: str, goes_on: bool
) -> None:
    shown = answered(images, answer, "launch", "image.yml", "--registry-token", "token")
    assert "Send the login in token to me.azurecr.io.evil.example? [y/N]" in shown
    assert ("does not name its registry" in shown) != goes_on


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("n", False), ("", False)])
def test_the_user_is_asked_at_a_terminal_about_the_nodes_identity(
    own: Path, answer: str, goes_on: bool
) -> None:
    (own / "plain.yml").write_text("command: hostname\nranklift: {identity: true}\n")
    shown = answered(own, answer, "launch", "plain.yml")
    assert "plain.yml, line 2 asks for the nodes' identity" in shown
    assert "Sign the job for it? [y/N]" in shown
    assert ("is not for a file alone to decide" in " ".join(shown.split())) != goes_on
