"""A job whose ranks hang as a file orders, until another file lets them go on: round after round."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra import inventory
from launch.client.debug import DebugReport, debug_job
from launch.code.stack_tool import py_spy_path
from playbooks.ssh.connection import Cluster
from playbooks.ssh.fanout import fan_out
from rehearsal import control
from rehearsal.faults.fault_kinds import FaultSpec
from tests.e2e.workplace import ROOT, Workplace
from tests.see.hang_script import HANGS, SCRIPT
from tests.see.running_jobs import until

__all__ = ["FLAVOURS", "Flavour", "Round", "Rounds", "playing"]

TIMES = 20
LIMIT_S = 15.0
"""For the answer, and for the whole ``fab debug``."""
START_S = 600.0
ROUND_S = 120.0
SETTLE_S = 0.5
"""From the culprit's last sign until the ranks are looked at: the others reach their collective."""
CUT_S = 2.0
"""The same for a path that is cut: TCP repeats first after 0.2 s."""
FEW = 16
DEBIAN_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True, slots=True)
class Flavour:
    """What the ranks wait for each other by."""

    task: str
    script: str
    """How the ranks' script is to communicate."""
    words: tuple[str, ...] = ()
    """Options of the launch."""


_OPEN_MPI = ("--env", "OMPI_MCA_mpi_yield_when_idle=1")
"""Ranks that wait call sched_yield(2). Open MPI turns that on by itself where a node has more ranks than
slots (``ompi_info --param mpi all --level 5``); here, four nodes of 44 slots share two processors, of which
it knows nothing. A rank that yields is ready to run as before: its state stays R, and no voluntary switch is
counted."""
_MPICH = ("--mpi", "mpich", "--python", str(ROOT / ".venv-mpich"))
_INTEL = ("--mpi", "intelmpi", "--python", str(ROOT / ".venv-impi"))
_OPEN_MPI_5 = (*_OPEN_MPI, "--python", str(ROOT / ".venv-openmpi"))
FLAVOURS = {
    "gloo": Flavour("launch.torch", "gloo"),
    "mpi": Flavour("launch.mpi", "mpi", _OPEN_MPI),
    "mpich": Flavour("launch.mpi", "mpi", _MPICH),
    "intelmpi": Flavour("launch.mpi", "mpi", _INTEL),
    # Ranks that wait look for messages and sleep in turns, as users ask for where they share processors.
    "mpich-sleeping": Flavour("launch.mpi", "mpi", (*_MPICH, "--env", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1")),
    "intelmpi-sleeping": Flavour("launch.mpi", "mpi", (*_INTEL, "--env", "I_MPI_THREAD_YIELD=3")),
    "openmpi-5-sleeping": Flavour(
        "launch.mpi",
        "mpi",
        (*_OPEN_MPI_5, "--env", "OMPI_MCA_threads_pthreads_yield_strategy=nanosleep"),
    ),
}


@dataclass(frozen=True, slots=True)
class Round:
    """A round that was played: the verdict on it."""

    way: str
    culprit: int
    kind: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    expected_nodes: tuple[str, ...]
    seconds: float
    """From the request until the answer is here."""
    text: str

    @property
    def is_right(self) -> bool:
        """Whether the verdict names the kind and the rank, or the two nodes whose path is cut."""
        ranks = () if self.way == "network" else (self.culprit,)
        return (self.kind, self.ranks, self.nodes) == (HANGS[self.way], ranks, self.expected_nodes)


class Rounds:
    """A job of ``nodes`` times ``per_node`` ranks that plays."""

    def __init__(
        self, workplace: Workplace, stack: str, flavour: str, job: str, nodes: int, per_node: int
    ) -> None:
        self.workplace, self.stack, self.flavour, self.job = workplace, stack, flavour, job
        self.nodes, self.per_node = nodes, per_node
        self.number = 0
        folder = workplace.project / ".ranklift" / stack
        saved = inventory.load(folder)
        self.cluster = Cluster(saved, folder)
        self._hosts = {node.name: self.cluster.host(node) for node in saved.nodes[:nodes]}
        self._names = list(self._hosts)
        self._remote = json.loads((folder / "jobs" / f"{job}.json").read_text())["remote"]
        self.random = random.Random(20)  # the same ranks in each run)

    def show(self, way: str, figures: list[str]) -> None:
        """Play a way 20 times; add a line to ``figures``; fail unless each verdict is right and in time."""
        begun = time.monotonic()
        played = [self.play(way) for _ in range(TIMES)]
        took = (time.monotonic() - begun) / TIMES
        wrong = [one for one in played if not one.is_right]
        slowest, command = max(one.seconds for one in played), self.debug()
        name = f"{self.flavour}, {self.nodes * self.per_node} ranks, {way}"
        figures.append(
            f"{name}: {TIMES - len(wrong)} of {TIMES} right, answers in {slowest:.1f} s at most, "
            f"the command {command:.1f} s, a round {took:.1f} s"
        )
        assert not wrong, "\n".join(map(str, wrong))  # pytest shows the values of its own modules alone
        assert max(slowest, command) < LIMIT_S, name

    def play(self, way: str) -> Round:
        """Have a rank hang that the seed chooses; look at the job; let it go on."""
        culprit = self.random.randrange(self.nodes * self.per_node)
        nodes = [culprit // self.per_node]
        if way == "network":
            nodes = sorted(self.random.sample(range(1, self.nodes), 2))  # the head orders by its own path
        mark = self._begin(way, culprit)
        if way == "network":
            control.inject(self.workplace.project, self.stack, FaultSpec("cut-path", nodes=tuple(nodes)))
        time.sleep(CUT_S if way == "network" else SETTLE_S)
        begun = time.monotonic()
        found = self._look()
        seconds = time.monotonic() - begun
        if way == "network":
            control.clear_faults(self.workplace.project)
        lines = dict.fromkeys(range(self.nodes), f"touch {mark}.go")
        lines[culprit // self.per_node] += (
            f"; [ ! -p {mark}.go.fifo ] || timeout 5 sh -c ': > {mark}.go.fifo'"
        )
        if way == "stopped":
            lines[culprit // self.per_node] += f"; kill -CONT $(cat {mark}.begun)"
        self._on(lines)
        return Round(
            way=way,
            culprit=culprit,
            kind=found.kind,
            ranks=found.ranks_at_fault,
            nodes=found.nodes_at_fault,
            expected_nodes=tuple(f"node{number:06d}" for number in nodes),
            seconds=seconds,
            text=found.verdict,
        )

    def cut_off(self, node: int) -> DebugReport:
        """Take a node's link down for as long as its job takes that; return what the others show."""
        self._begin("network", 0)
        control.inject_vm_fault(self.workplace.project, self.stack, [self._names[node]], "partition")
        try:
            return self._look()
        finally:
            control.inject_vm_fault(self.workplace.project, self.stack, [self._names[node]], "heal")

    def debug(self) -> float:
        """Return the seconds that ``fab debug`` takes; the first one brings py-spy."""
        begun = time.monotonic()
        self.workplace.fab("debug", self.job, "--stack", self.stack)
        return time.monotonic() - begun

    def _begin(self, way: str, culprit: int) -> str:
        """Order a round; wait until the culprit has the order. Return how the names of its files begin."""
        mark = f"/tmp/{self.job}-{self.number}"
        self.number += 1
        order = f"echo {way} {culprit} > {mark}.new && mv {mark}.new {mark}.order"
        begun = f"until [ -e {mark}.begun ]; do sleep 0.05; done"
        node = culprit // self.per_node
        self._on({0: order, node: begun} if node else {0: f"{order} && {begun}"})
        return mark

    def _look(self) -> DebugReport:
        return debug_job(self.job, self._hosts[self._names[0]], remote=self._remote, py_spy=py_spy_path())

    def _on(self, lines: Mapping[int, str]) -> None:
        """Run a line on each of the nodes, at once."""
        by_name = {self._names[node]: line for node, line in lines.items()}

        def run(name: str) -> int:
            return self._hosts[name].run(by_name[name], timeout=ROUND_S).exit_status

        assert fan_out(run, by_name) == dict.fromkeys(by_name, 0), by_name


def has_debian_torch() -> bool:
    """Return whether Debian's PyTorch 1.13 is there: a rank has 0.12 GB of it to itself, and 0.3 of 2.15."""
    asked = [
        DEBIAN_PYTHON,
        "-c",
        "import importlib.util as u; raise SystemExit(u.find_spec('torch') is None)",
    ]
    return subprocess.run(asked, check=False).returncode == 0


@contextmanager
def playing(workplace: Workplace, stack: str, flavour: str, nodes: int, per_node: int) -> Iterator[Rounds]:
    """Start a job that plays; cancel it at the end."""
    Path(workplace.own, "rounds.py").write_text(SCRIPT)
    its = FLAVOURS[flavour]
    python = (
        f"{DEBIAN_PYTHON} " if flavour == "gloo" and nodes * per_node > FEW and has_debian_torch() else ""
    )
    words = ("--stack", stack, "--nproc-per-node", str(per_node), "--no-probe", "--detach", *its.words)
    job = workplace.fab(its.task, f"{python}rounds.py {its.script}", *words).out.strip()
    try:
        until(
            lambda: (
                workplace.fab("job", job, "--stack", stack, "--json").json()["state"]["state"] == "RUNNING"
            ),
            START_S,
        )
        made = Rounds(workplace, stack, flavour, job, nodes, per_node)
        with made.cluster:
            yield made
    finally:
        workplace.fab("cancel", job, "--stack", stack, "--grace", "1s", status=None)
