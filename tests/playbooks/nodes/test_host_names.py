"""The nodes' names in a node's ``/etc/hosts``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.inventory import Node
from playbooks.nodes.host_names import WRITE, hosts_block

BEFORE = "127.0.0.1 localhost\n127.0.1.1 node000001\n"


def nodes(*numbers: int) -> list[Node]:
    return [Node(f"node{n:06}", n, f"10.0.0.{n + 4}", "192.0.2.1", 50000 + n, 8, "running") for n in numbers]


def write(file: Path, *numbers: int) -> str:
    subprocess.run(
        ["sh", "-c", WRITE, "sh", str(file)], input=hosts_block(nodes(*numbers)).encode(), check=True
    )
    assert [path.name for path in file.parent.iterdir()] == ["hosts"]
    return file.read_text()


def test_they_come_first_so_that_a_node_finds_its_own_private_address(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(BEFORE)
    assert write(tmp_path / "hosts", 0, 1) == hosts_block(nodes(0, 1)) + BEFORE


def test_another_set_of_nodes_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(BEFORE)
    write(tmp_path / "hosts", 0, 1, 2)
    assert write(tmp_path / "hosts", 1, 3) == hosts_block(nodes(1, 3)) + BEFORE


def test_what_stands_there_already_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(BEFORE)
    write(tmp_path / "hosts", 0)
    inode = (tmp_path / "hosts").stat().st_ino
    write(tmp_path / "hosts", 0)
    assert (tmp_path / "hosts").stat().st_ino == inode


def test_a_node_without_an_address_has_no_line() -> None:
    assert "node000000" not in hosts_block([Node("node000000", 0, "", "", 0, 8, "creating")])
