"""Which process of a rehearsed node may ask the metadata service, whatever a job makes of its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rehearsal import callers

pytestmark = pytest.mark.timeout(20)  # a pipe without a writer holds up whoever opens it as a file

INIT, AGENT, JOB = 10, 11, 12
RULES = "table\n  ip daddr 169.254.169.254 meta skuid != {{ {} }} meta skuid != @granted reject\n"
OWN = RULES.format("root, ranklift")


class Node:
    """A node, by what ``/proc`` shows of it: the agent's unit and a job's process, a connection each."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.root = proc, proc / f"{INIT}/root"
        self.write("run/rehearsal/nft", OWN)
        self.write("etc/passwd", "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")
        self.write("etc/systemd/system/agent.service", "[Service]\nUser=ranklift\n")
        (proc / f"{INIT}/net").mkdir()
        lines = "".join(f"0: 0400000A:{p:04X} FEA9FEA9:0050 01 0 0 0 1000 0 {p} 1\n" for p in (AGENT, JOB))
        (proc / f"{INIT}/net/tcp").write_text(f"sl local\n{lines}")
        (proc / f"{INIT}/task/1").mkdir(parents=True)
        (proc / f"{INIT}/task/1/children").write_text(f"{AGENT} {JOB} ")
        self.process(AGENT, "sh", "/etc/rehearsal/bin/keep", "agent.service")
        self.process(JOB, "python3", "train.py")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def process(self, pid: int, *argv: str) -> None:
        (self.proc / f"{pid}/fd").mkdir(parents=True, exist_ok=True)
        (self.proc / f"{pid}/fd/3").unlink(missing_ok=True)
        (self.proc / f"{pid}/fd/3").symlink_to(f"socket:[{pid}]")
        (self.proc / f"{pid}/stat").write_text(f"{pid} (x) S {INIT} 1\n")
        (self.proc / f"{pid}/cmdline").write_text("\0".join([*argv, ""]))

    def may(self, pid: int) -> bool:
        return callers.may_ask(INIT, "ada", "10.0.0.4", pid)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(callers, "_PROC", tmp_path / "proc")
    callers.forget(INIT)
    yield Node(tmp_path / "proc")
    callers.forget(INIT)


def remove(path: Path) -> None:
    path.unlink()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def elsewhere(path: Path) -> None:
    """A link to a file of the operator's machine that would do."""
    path.symlink_to(path.rename(path.with_name("kept")))


def behind_a_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("kept"))
    path.parent.symlink_to(path.parent.with_name("kept"))


Spoil = Callable[[Path], object]
UNREADABLE = [pipe, folder, endless, huge, elsewhere, behind_a_link]


def test_the_agent_may_ask_and_a_job_may_not(node: Node) -> None:
    assert (node.may(AGENT), node.may(JOB), node.may(7)) == (True, False, False)


def test_a_job_may_ask_while_its_user_is_granted(node: Node) -> None:
    node.write("run/rehearsal/granted", "1000\n")
    assert node.may(JOB)
    node.write("run/rehearsal/granted", "")
    assert not node.may(JOB)


@pytest.mark.parametrize("rules", [None, "table other\n"])
def test_a_node_of_another_image_has_no_such_rules(node: Node, rules: str | None) -> None:
    (node.root / "run/rehearsal/nft").unlink()
    if rules is not None:
        node.write("run/rehearsal/nft", rules)
    assert node.may(JOB)


@pytest.mark.parametrize("spoil", UNREADABLE)
def test_rules_that_cannot_be_read_let_nobody_out(node: Node, spoil: Spoil) -> None:
    spoil(node.root / "run/rehearsal/nft")
    assert (node.may(AGENT), node.may(JOB)) == (False, False)


@pytest.mark.parametrize("spoil", [remove, *UNREADABLE])
def test_rules_that_a_node_had_stay_in_force(node: Node, spoil: Spoil) -> None:
    assert not node.may(JOB)
    spoil(node.root / "run/rehearsal/nft")
    assert (node.may(AGENT), node.may(JOB)) == (True, False)


@pytest.mark.parametrize("rules", ["", "flushed", RULES.format("root, ada")])
def test_rules_that_a_job_writes_do_not_count(node: Node, rules: str) -> None:
    assert not node.may(JOB)
    node.write("run/rehearsal/nft", rules)
    assert (node.may(AGENT), node.may(JOB)) == (True, False)


def test_the_next_node_with_the_same_first_process_has_its_own_rules(node: Node) -> None:
    assert not node.may(JOB)
    callers.forget(INIT)
    (node.root / "run/rehearsal/nft").unlink()
    assert node.may(JOB)


@pytest.mark.parametrize("name", ["run/rehearsal/granted", "etc/passwd"])
@pytest.mark.parametrize("spoil", [remove, *UNREADABLE])
def test_no_grant_is_read_from_anything_but_the_nodes_own_file(node: Node, name: str, spoil: Spoil) -> None:
    node.write("run/rehearsal/granted", "1000\n")
    assert node.may(JOB)
    spoil(node.root / name)
    assert not node.may(JOB)


@pytest.mark.parametrize("spoil", [remove, *UNREADABLE])
def test_a_process_of_a_unit_that_cannot_be_read_is_nobodys(node: Node, spoil: Spoil) -> None:
    assert node.may(AGENT)
    spoil(node.root / "etc/systemd/system/agent.service")
    assert not node.may(AGENT)


def test_a_unit_is_a_file_of_the_node(node: Node, tmp_path: Path) -> None:
    unit = tmp_path / "elsewhere.service"
    unit.write_text("[Service]\nUser=ranklift\n")
    for name in (str(unit), "../" * 7 + "elsewhere.service", "", ".", "../system/agent.service"):
        node.process(JOB, "sh", "/etc/rehearsal/bin/keep", name)
        assert not node.may(JOB)
    (node.proc / f"{JOB}/cmdline").write_bytes(b"\xff\0/etc/rehearsal/bin/keep")
    assert not node.may(JOB)
