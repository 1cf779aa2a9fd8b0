"""Full disks, killed builds and lost nodes while an environment is made or sent: nothing half made counts or
stays, and the next launch is right."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.inside import Inside
from tests.chaos.inside import nodes as living_nodes
from tests.e2e.workplace import Ran, Workplace
from tests.launch.wheels import make_wheel

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]
STORE = ".ranklift/environments"
FOLDER = f"/home/azureuser/{STORE}"
MEGABYTES = 20
LIMIT_S = 60.0
ANSWER = "the answer is 42"


class Desk:
    """An operator whose jobs need a package that is not small."""

    def __init__(self, cluster: Workplace, wheels: Path) -> None:
        self.cluster, self.wheels = cluster, wheels
        self.count = 0
        (cluster.own / "use_bulky.py").write_text(f"import bulky\nprint('{ANSWER}' * (bulky.ANSWER == 42))\n")
        (cluster.own / "bulky.txt").write_text("bulky\n--no-index\n")

    def fresh(self) -> None:
        """Makes the next launch need an environment that no node has."""
        self.count += 1
        noise = random.Random(self.count).randbytes(MEGABYTES * 1_000_000)
        files = {f"bulky/part{number}": noise[number::50] for number in range(50)}
        make_wheel(self.wheels, "bulky", f"{self.count}.0", {"bulky/__init__.py": b"ANSWER = 42\n", **files})

    @property
    def words(self) -> list[str]:
        """The launch."""
        wheels = ["--find-links", str(self.wheels), "--requirements", "bulky.txt"]
        return ["launch.torch", "use_bulky.py", *wheels]

    def launch(self, *words: str, status: int | None = 0) -> Ran:
        return self.cluster.fab(*self.words, *words, status=status)

    def node(self, number: int) -> Inside:
        return living_nodes(self.cluster.project, "rehearsal")[f"node{number:06}"]

    def halves(self, *nodes: int) -> list[str]:
        """Folders of environments on nodes that a killed build or spread has left under their final names."""
        line = f"cd {STORE} && for one in *; do case $one in *.*) ;; "
        line += "*) [ -e $one.manifest ] || [ ! -d $one ] || echo $one;; esac; done"
        named = ",".join(map(str, nodes))
        answers = self.cluster.fab("exec", "--json", "--nodes", named, line).json()
        return [name for answer in answers.values() for name in answer["stdout"].split()]

    def receiving(self, *nodes: int) -> list[str]:
        """Folders of what nodes are being sent."""
        line = f"cd {STORE} && ls -d .new-* 2>/dev/null; true"
        answers = self.cluster.fab("exec", "--json", "--nodes", ",".join(map(str, nodes)), line).json()
        return [name for answer in answers.values() for name in answer["stdout"].split()]

    def until_none_receives(self, *nodes: int) -> None:
        until = time.monotonic() + LIMIT_S
        while left := self.receiving(*nodes):
            assert time.monotonic() < until, left
            time.sleep(0.5)

    def check(self, *words: str, built: bool, nodes: int = 4) -> None:
        """The launch works on all its nodes."""
        ran = self.launch(*words)
        assert ran.out.count(ANSWER) == nodes, ran
        assert bool(re.search(r"^environment \w+: made for", ran.err, re.MULTILINE)) == built, ran


@pytest.fixture
def desk(cluster: Workplace, wheels: Path, tmp_path: Path) -> Desk:
    for wheel in wheels.glob("uv-*"):
        (tmp_path / wheel.name).hardlink_to(wheel)
    made = Desk(cluster, tmp_path)
    made.fresh()
    return made


@contextmanager
def small_disk(node: Inside, options: str) -> Iterator[None]:
    """The node's environments are on a file system of their own."""
    node.mount(FOLDER, options)
    try:
        yield
    finally:
        node.unmount(FOLDER)


@contextmanager
def stopped_receiver(desk: Desk, number: int) -> Iterator[Callable[[], None]]:
    """Stops the process that receives the next environment on a node; yields what waits until it has one."""
    space = Path(f"/proc/{desk.node(number).init}/ns/pid").readlink()
    found: list[int] = []

    def wait() -> None:
        until = time.monotonic() + LIMIT_S
        while not found:
            assert time.monotonic() < until, "nothing is sent"
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    if (
                        b"spread.main" in (entry / "cmdline").read_bytes()
                        and (entry / "ns/pid").readlink() == space
                    ):
                        os.kill(int(entry.name), signal.SIGSTOP)
                        found.append(int(entry.name))
                except OSError:
                    continue

    try:
        yield wait
    finally:
        for pid in found:
            subprocess.run(["kill", "-CONT", str(pid)], check=False, capture_output=True)


def test_a_disk_that_fills_during_the_build_is_named_and_keeps_nothing(desk: Desk) -> None:
    with small_disk(desk.node(0), "2g,nr_inodes=40"):
        refused = desk.launch(status=1)
        assert "the disk of node000000 is full" in refused.err
        assert "`fab environment.prune`" in refused.err
        assert "No space left on device" in refused.err
        assert desk.halves(0) == []
    desk.check(built=True)


@pytest.mark.parametrize("options", ["1m", "1g,nr_inodes=40"], ids=["no room", "fills"])
def test_a_receiver_whose_disk_is_full_is_named_and_gets_it_later(desk: Desk, options: str) -> None:
    with small_disk(desk.node(2), options):
        refused = desk.launch(status=None)
        assert refused.status != 0
        assert re.search(r"node000002: .*No space left on device", refused.err)
        assert "node000001" not in refused.err
        assert desk.halves(0, 1, 2, 3) + desk.receiving(0, 1, 2, 3) == []
    desk.check(built=False)


def test_a_build_that_is_killed_leaves_nothing_that_counts(desk: Desk) -> None:
    cluster = desk.cluster
    desk.launch("--nodes", "0")  # uv is there then
    desk.fresh()
    slow = "printf '#!/bin/sh\\nmkdir \"$6\" && exec sleep 60\\n' > uv && chmod +x uv"  # uv venv ... FOLDER
    cluster.fab("exec", "--nodes", "0", f"cd .ranklift/tools/uv-* && mv uv uv.real && {slow}")
    head = desk.node(0)
    try:
        with cluster.begin(*desk.words) as process:
            until = time.monotonic() + LIMIT_S
            while not any(found.args == "sleep 60" for found in head.processes()):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            making = [found.pid for found in head.processes() if found.args.endswith(" environment")]
            assert making
            head.kill(signal.SIGKILL, *making)
            out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode != 0
        assert "node000000: signal 9 ended it before the environment was made" in out
        assert len(desk.halves(0)) == 1
    finally:
        cluster.fab("exec", "--nodes", "0", "cd .ranklift/tools/uv-* && mv uv.real uv")
    desk.check(built=True)
    assert desk.halves(0, 1, 2, 3) == []


def test_a_node_cut_off_in_the_spread_is_named_and_gets_it_later(desk: Desk) -> None:
    cluster = desk.cluster
    try:
        with stopped_receiver(desk, 3) as wait, cluster.begin(*desk.words) as process:
            wait()
            cluster.fab("rehearsal.fault", "partition", "--nodes", "3")
            out, _ = process.communicate(timeout=3 * LIMIT_S)
        assert process.returncode != 0
        assert "node000003" in out
        assert "node000001" not in out
    finally:
        cluster.fab("rehearsal.fault", "heal", "--nodes", "3")
    desk.until_none_receives(0, 1, 2, 3)
    assert desk.halves(0, 1, 2, 3) == []
    desk.check(built=False)


def test_a_head_lost_in_the_spread_leaves_nothing_that_counts(desk: Desk) -> None:
    cluster = desk.cluster
    with stopped_receiver(desk, 3) as wait, cluster.begin(*desk.words) as process:
        wait()
        cluster.fab("rehearsal.fault", "death", "--nodes", "0")
        out, _ = process.communicate(timeout=3 * LIMIT_S)
    try:
        assert process.returncode != 0
        assert "node000000" in out
        assert desk.halves(1, 2, 3) == []
        desk.check("--nodes", "1-3", built=True, nodes=3)
    finally:
        cluster.fab("replace", "0", "--reimage")
    desk.check(built=True)
