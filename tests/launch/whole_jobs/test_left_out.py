"""What a push never takes: private keys, by whatever way they are reached, and what is no content."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from infra.inventory import INVENTORY_FILE, KEY_FILE
from launch.code.hashes import Changed, Content, Hashes
from launch.code.private_keys import LARGEST, key_numbers
from launch.code.snapshot import Snapshot, plan_data, plan_snapshot
from launch.errors import InputError, RetryError

PLANS = pytest.mark.parametrize("plan", [plan_snapshot, plan_data])
Plan = Callable[[Path], Snapshot]


def stack(folder: Path) -> Path:
    """What ``fab up`` leaves of a stack there."""
    folder.mkdir(parents=True)
    for name in (INVENTORY_FILE, KEY_FILE, "known_hosts"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with a stack, in a folder with another one."""
    project = tmp_path / "all" / "project"
    stack(project / ".ranklift" / "dev")
    stack(project / "vendor" / "other" / ".ranklift" / "prod")
    (project / "train.py").write_text("print('hello')\n")
    return project


def paths(snapshot: Snapshot) -> list[str]:
    return [entry.path for entry in snapshot.entries]


@PLANS
@pytest.mark.parametrize("rules", ["", "!.ranklift/\n!.ranklift/**\n!id_ed25519\n"])
@pytest.mark.parametrize("file", [".gitignore", ".amlignore", ".ranklift-ignore"])
def test_keys_are_left_out_at_every_depth_whatever_the_rules_say(
    tree: Path, plan: Plan, file: str, rules: str
) -> None:
    (tree / file).write_text(rules)
    assert paths(plan(tree)) == [file, "train.py"]
    assert paths(plan(tree.parent)) == [f"project/{file}", "project/train.py"]


@PLANS
def test_a_stacks_folder_is_known_by_what_it_holds_where_it_was_renamed(tree: Path, plan: Plan) -> None:
    (tree / ".ranklift").rename(tree / "kept")
    (tree / "kept" / "notes.txt").write_text("mine")
    snapshot = plan(tree)
    assert paths(snapshot) == ["kept/notes.txt", "train.py"]
    assert "kept/dev" in snapshot.private
    assert "not pushed: kept/dev" in (snapshot.notice or "")


@PLANS
def test_nothing_is_pushed_from_within(tree: Path, plan: Plan) -> None:
    dev = tree / ".ranklift" / "dev"
    (dev / "jobs").mkdir()
    (dev / "jobs" / "one").write_text("head")
    (tree / "link").symlink_to(".ranklift/dev")
    for root in (tree / ".ranklift", dev, dev / "jobs", tree / "link", tree / "link" / "jobs"):
        with pytest.raises(InputError, match=r"holds a stack's private keys") as error:
            plan(root)
        assert str(root) in str(error.value)


def test_a_file_of_it_is_no_data(tree: Path) -> None:
    (tree / "key").symlink_to(f".ranklift/dev/{KEY_FILE}")
    for file in (tree / ".ranklift" / "dev" / KEY_FILE, tree / "key"):
        with pytest.raises(InputError, match="holds a stack's private keys"):
            plan_data(file)


def test_links_of_data_do_not_lead_into_it(tree: Path) -> None:
    data = tree / "data"
    data.mkdir()
    (data / "table.csv").write_text("a")
    (data / "folder").symlink_to("../.ranklift/dev")
    (data / "above").symlink_to("../.ranklift")
    (data / "key").symlink_to(f"../.ranklift/dev/{KEY_FILE}")
    snapshot = plan_data(data)
    assert paths(snapshot) == ["table.csv"]
    assert snapshot.private == ("above", "folder", "key")


def test_a_link_in_code_is_pushed_as_a_link_and_never_as_what_it_leads_to(tree: Path) -> None:
    (tree / "keys").symlink_to(".ranklift/dev")
    snapshot = plan_snapshot(tree)
    assert [(entry.path, entry.target) for entry in snapshot.entries if entry.target] == [
        ("keys", ".ranklift/dev")
    ]
    assert snapshot.blobs() == [entry for entry in snapshot.entries if entry.path == "train.py"]


@pytest.mark.parametrize("ignored", [False, True])
def test_links_in_a_circle_are_pushed_as_links_or_passed_over(tree: Path, ignored: bool) -> None:
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    (tree / "self").symlink_to("self")
    (tree / "gone").symlink_to("nowhere")
    if ignored:
        (tree / ".ranklift-ignore").write_text("a\nb\nself\ngone\n.ranklift-ignore\n")
    wanted = ["train.py"] if ignored else ["a", "b", "gone", "self", "train.py"]
    assert paths(plan_snapshot(tree)) == wanted


def test_rules_that_are_a_link_in_a_circle_are_none(tree: Path) -> None:
    (tree / ".gitignore").symlink_to(".gitignore")
    assert paths(plan_snapshot(tree)) == [".gitignore", "train.py"]


def test_all_links_of_data_that_lead_nowhere_are_named_in_one_error(tree: Path) -> None:
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    (tree / "gone").symlink_to("nowhere")
    (tree / "lost").symlink_to("nowhere")
    with pytest.raises(InputError) as error:
        plan_data(tree)
    assert "No such file or directory: gone, lost" in str(error.value)
    assert "Too many levels of symbolic links: a, b" in str(error.value)


@PLANS
def test_what_is_no_content_is_passed_over_and_named_in_one_notice(
    tree: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    os.mkfifo("pipe")
    (tree / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("run/live")
        snapshot = plan(tree)
    assert paths(snapshot) == ["train.py"]
    assert (snapshot.notice or "").startswith("not pushed: pipe, run/live (pipes, sockets and devices")


def test_what_is_no_content_and_ignored_is_not_spoken_of(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / ".ranklift-ignore").write_text("pipe\n")
    assert plan_snapshot(tree).notice is None


def test_a_pipe_is_no_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe': is neither a file nor a folder"):
        plan_data(tmp_path / "pipe")


@PLANS
def test_all_that_cannot_be_read_is_named_in_one_error(
    tree: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "b.py").write_text("b")
    refuse(monkeypatch, PermissionError(13, "Permission denied"), "b.py", "train.py")
    with pytest.raises(
        InputError, match=r"some of it cannot be read \(Permission denied: b\.py, train\.py\)"
    ):
        plan(tree)


@PLANS
def test_a_file_that_vanishes_while_the_tree_is_read_is_named(
    tree: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Hashes.of

    def vanishing(hashes: Hashes, path: str, full: str, status: os.stat_result) -> Content:
        Path(full).unlink()
        return real(hashes, path, full, status)

    monkeypatch.setattr(Hashes, "of", vanishing)
    with pytest.raises(RetryError, match=r"train\.py vanished or changed while being read; try again"):
        plan(tree)


@PLANS
def test_a_file_that_never_rests_while_it_is_read_is_named(
    tree: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(1, 100))
    real = os.fstat

    def busy(handle: int) -> os.stat_result:
        found = real(handle)
        os.utime(tree / "train.py", (next(times), next(times)))
        return found

    monkeypatch.setattr(os, "fstat", busy)
    with pytest.raises(RetryError, match=r"train\.py vanished or changed"):
        plan(tree)


def test_a_pipe_that_takes_a_files_place_is_not_waited_for(tree: Path) -> None:
    status = (tree / "train.py").stat()
    (tree / "train.py").unlink()
    os.mkfifo(tree / "train.py")
    with pytest.raises(Changed):
        Hashes(None, tree).of("train.py", str(tree / "train.py"), status)


def refuse(monkeypatch: pytest.MonkeyPatch, error: OSError, *names: str) -> None:
    real = os.open

    def opened(path: str, *rest: object, **more: object) -> int:
        if os.path.basename(path) in names:  # noqa: PTH119  (what is patched takes both)
            raise error
        return real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opened)


def make_key(path: Path, *options: str) -> bytes:
    path.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *options]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path.read_bytes()


@PLANS
def test_a_key_is_known_by_its_numbers_whatever_the_file_round_it(
    tree: Path, plan: Callable[..., Snapshot], tmp_path: Path
) -> None:
    key = tree / ".ranklift" / "dev" / KEY_FILE
    text = make_key(key)
    key.with_suffix(".pub").unlink()
    copies = {
        "copy": text,
        "crlf": text.replace(b"\n", b"\r\n"),
        "unended": b"\n  " + text.strip(),
        "indented.yml": b"key: |\n" + b"".join(b"  " + line for line in text.splitlines(keepends=True)),
        "quoted.json": json.dumps({"key": text.decode()}).encode(),
        "bundle.sh": b"# setup\n" * 100 + text,
    }
    for name, content in copies.items():
        (tree / name).write_bytes(content)
    (tree / "hard").hardlink_to(key)
    for name, change in (("comment", ["-c", "-C", "x"]), ("locked", ["-p", "-N", "secret"])):
        (tree / name).write_bytes(text)
        (tree / name).chmod(0o600)
        words = ["ssh-keygen", "-q", *change, "-f", str(tree / name)]
        subprocess.run([*words, "-P", ""], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        (tree / f"{name}.pub").unlink(missing_ok=True)
    private = load_ssh_private_key(text, None)
    (tree / "pkcs8").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for _ in range(2):  # the second time nothing but those files is read
        snapshot = plan(tree, tmp_path / "cache.json", key_numbers(text))
        assert paths(snapshot) == ["train.py"]
        assert {*copies, "hard", "comment", "locked", "pkcs8"} <= set(snapshot.private)
        assert "bundle.sh" in (snapshot.notice or "")
        assert "(a stack's private keys)" in (snapshot.notice or "")
    with pytest.raises(InputError, match="is a stack's private key, which never leaves this machine"):
        plan_data(tree / "crlf", None, key_numbers(text))


@PLANS
def test_keys_of_others_public_keys_and_texts_about_keys_are_content(
    tree: Path, plan: Callable[..., Snapshot], tmp_path: Path
) -> None:
    (tmp_path / "keys").mkdir()
    numbers = key_numbers(make_key(tmp_path / "keys" / "own"))
    public = (tmp_path / "keys" / "own.pub").read_bytes()
    (tree / "another").write_bytes(make_key(tmp_path / "keys" / "another"))
    (tree / "own.pub").write_bytes(public)
    (tree / "text.md").write_bytes(
        b"-----BEGIN PRIVATE KEY-----\n" + public + b"...\n-----END PRIVATE KEY-----"
    )
    snapshot = plan(tree, tmp_path / "cache.json", numbers)
    assert paths(snapshot) == ["another", "own.pub", "text.md", "train.py"]


def test_a_key_comes_to_be_known_though_the_file_was_remembered_before(tree: Path, tmp_path: Path) -> None:
    text = make_key(tmp_path / "id")
    (tree / "copy").write_bytes(text)
    old = time.time() - 60
    os.utime(tree / "copy", (old, old))
    cache = tmp_path / "cache.json"
    assert "copy" in paths(plan_snapshot(tree, cache))
    assert "copy" not in paths(plan_snapshot(tree, cache, key_numbers(text)))


def test_a_key_behind_another_first_line_or_without_its_last_one_is_found(tree: Path, tmp_path: Path) -> None:
    text = make_key(tmp_path / "id")
    first = b"-----BEGIN PRIVATE KEY-----\n"
    (tree / "behind").write_bytes(first + text)
    (tree / "cut").write_bytes(text.partition(b"-----END")[0])
    found = plan_snapshot(tree, None, key_numbers(text))
    assert {"behind", "cut"} <= set(found.private)


def test_a_file_that_is_too_large_is_not_searched(tree: Path, tmp_path: Path) -> None:
    text = make_key(tmp_path / "id")
    for name, padding in (("small", LARGEST - len(text)), ("large", LARGEST - len(text) + 1)):
        (tree / name).write_bytes(b"x" * padding + text)
    found = plan_snapshot(tree, None, key_numbers(text))
    assert ("small" in found.private, "large" in found.private) == (True, False)
