"""Files of .ranklift/<stack>/ that are missing or damaged: one line with the file and the remedy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.inventory import Inventory, load
from launch.errors import InputError
from playbooks.ssh.connection import Cluster
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import fab, write_project

INVENTORY = "inventory.json"
NODE = {
    **{"name": "node000000", "instance_id": 0, "private_ip": "10.0.0.4", "host": "127.0.0.1", "port": 22},
    **{"slots": 8, "state": "running"},
}
WHOLE: dict[str, Any] = {
    **{"stack": "dev", "size": "s", "location": "l", "user": "u", "nodes": [NODE], "read_at": 1.5},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, "dev", fabfile=True)
    (folder / "train.py").write_text("")
    host, user = make_key(folder / "host"), make_key(folder / "user")
    save_stack(folder / ".ranklift" / "whole", {0: 1}, host, user)
    return folder


@pytest.fixture
def stack(project: Path) -> Path:
    """The folder of stack ``dev``, whole."""
    folder = project / ".ranklift" / "dev"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(project / ".ranklift" / "whole", folder)
    return folder


COMMANDS = (
    ["exec", "true"],
    ["ssh"],
    ["push", "--source", "."],
    ["jobs"],
    ["logs", "a-1"],
    ["launch.torch", "train.py"],
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("null", "null instead of the inventory's object"),
        ("[]", "list instead of the inventory's object"),
        ("{}", "the inventory has no stack"),
        (json.dumps({**WHOLE, "nodes": None}), "nodes is null, not a list"),
        (json.dumps({**WHOLE, "nodes": [None]}), "null instead of the node's object"),
        (json.dumps({**WHOLE, "nodes": [{**NODE, "port": "22"}]}), "the node's port is str, not int"),
        (json.dumps({**WHOLE, "nodes": [{**NODE, "slots": True}]}), "the node's slots is bool, not int"),
        (json.dumps({**WHOLE, "read_at": "x"}), "the inventory's read_at is str, not float"),
        (json.dumps({**WHOLE, "more": 1}), "the inventory has 'more', which is unknown"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_an_inventory_of_another_shape_is_named(project: Path, stack: Path, text: str, problem: str) -> None:
    (stack / INVENTORY).write_text(text)
    ran = fab(project, "exec", "true")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith(f"error: inventory = '{stack / INVENTORY}': cannot be read (")
    assert problem in ran.stderr
    assert ran.stderr.endswith("; run `fab status --stack dev`\n")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_says_so(project: Path, stack: Path, words: list[str]) -> None:
    (stack / INVENTORY).write_text("null")
    ran = fab(project, *words)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "null instead of the inventory's object" in ran.stderr


def test_an_inventory_that_is_a_folder_or_no_text_is_named(project: Path, stack: Path) -> None:
    (stack / INVENTORY).write_bytes(b"\xff\xfe")
    assert "cannot be read ('utf-8' codec" in fab(project, "exec", "true").stderr
    (stack / INVENTORY).unlink()
    (stack / INVENTORY).mkdir()
    assert "cannot be read (Is a directory)" in fab(project, "exec", "true").stderr


@given(JSON)
def test_whatever_json_it_holds_it_is_an_inventory_or_wrong_input(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    for text in (value, {**WHOLE, "nodes": value}, {**WHOLE, "nodes": [value]}, {**WHOLE, "user": value}):
        (folder / INVENTORY).write_text(json.dumps(text))
        try:
            assert isinstance(load(folder), Inventory)
        except InputError as error:
            assert "run `fab status --stack any`" in str(error)


@pytest.mark.parametrize("file", ["known_hosts", "id_ed25519", "ssh_config"])
def test_a_missing_file_is_named_with_the_remedy(project: Path, stack: Path, file: str) -> None:
    (stack / file).unlink()
    for words in (["exec", "true"], ["ssh"]):
        if (file, words[0]) == ("ssh_config", "exec"):
            continue  # which only ssh reads
        ran = fab(project, *words)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert file in ran.stderr
        assert "fab status" in ran.stderr


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00", b"null", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"]
)
@pytest.mark.parametrize("file", ["known_hosts", "id_ed25519"])
def test_a_damaged_key_is_wrong_input(project: Path, stack: Path, file: str, data: bytes) -> None:
    inventory = load(stack)
    (stack / file).write_bytes(data)
    if (file, data) == ("known_hosts", b""):
        return  # no line is wrong there: the node is refused for want of a pin
    with pytest.raises(InputError, match="fab status"):
        Cluster(inventory, stack)


@given(data=st.binary(max_size=200))
def test_no_bytes_in_place_of_keys_lead_to_anything_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "keys"
    folder.mkdir(exist_ok=True)
    inventory = Inventory("dev", "size", "place", "me", ())
    for file in ("known_hosts", "id_ed25519"):
        (folder / "known_hosts").write_bytes(b"")
        (folder / file).write_bytes(data)
        with pytest.raises(InputError, match="fab status"):
            Cluster(inventory, folder)
