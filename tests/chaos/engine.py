"""Plays rows on the nodes of one rehearsed stack, several at a time, each on nodes of its own."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from infra.inventory import Inventory, load
from launch.client import submit
from launch.client.cancel import end_job
from launch.code.node_code import remote_id
from launch.job.plan import plan
from launch.job.spec import JobNode, JobSpec
from playbooks.ssh.connection import Cluster
from tests.chaos.faults import Scene
from tests.chaos.inside import Inside, Process, new_since, nodes
from tests.chaos.rows import NODES, Row
from tests.e2e.workplace import Workplace

__all__ = ["Beside", "Engine", "Launch", "Outcome", "until"]

RANKS = Path(__file__).with_name("ranks")
STACK = "rehearsal"
PATIENCE_S = 60.0
"""For everything that is no figure of a row."""
TASKS = {
    "mpi": "launch.mpi",
    "pytorch": "launch.torch",
    "torchrun": "launch.torch",
    "tensorflow": "launch.tensorflow",
}
JOB_FILE = """\
code: ranks
command: python rank.py {ranks}
distribution: {{type: {kind}, process_count_per_instance: {each}}}
resources: {{instance_count: {nodes}}}
ranklift: {{setup: {setup}}}
"""


def until(true: Callable[[], object], what: object, seconds: float = PATIENCE_S) -> float:
    """Waits until something is so; gives the seconds that took. ``what`` is named when it never is."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"after {seconds:g} s not yet: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass(slots=True)
class Launch:
    """A ``fab launch`` that runs, with what it has shown so far."""

    process: subprocess.Popen[bytes]
    words: Sequence[str]
    _out: Path
    _err: Path
    ended: float = 0.0
    """When it ended, by the monotonic clock."""

    def watch(self) -> None:
        """Waits for its end, whatever else is done meanwhile."""
        self.process.wait()
        self.ended = time.monotonic()

    @property
    def out(self) -> str:
        """What came to stdout: the ranks' lines."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What came to stderr: states, and in the end the error."""
        return self._err.read_text(errors="replace")

    @property
    def job(self) -> str:
        """The job's id, once it was shown; else empty."""
        found = re.search(r"^(?:error: )?job (\S+) [A-Z]+\b", self.err, re.MULTILINE)
        return found[1] if found else ""

    @property
    def ready(self) -> int:
        """How many ranks have printed that they are."""
        return len(set(re.findall(r"^\[\d+ \S+\] ready (\d+)$", self.out, re.MULTILINE)))

    def shows(self, state: str) -> bool:
        """Whether it has printed that the job is in that state."""
        return re.search(rf"^job \S+ {state}\b", self.err, re.MULTILINE) is not None

    def __str__(self) -> str:
        status = self.process.poll()
        printed = f"{self.out[-4000:]}\n-- stderr --\n{self.err}"
        return f"$ fab {' '.join(self.words)}\n{printed}\n-- exit status {status}"


@dataclass(slots=True)
class Beside:
    """A job that has nothing to do with the fault, on the same nodes."""

    job: str
    where: list[Inside]
    ranks: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Its ranks' processes by node, each with its pid and start."""

    def until_it_runs(self, each: int) -> None:
        """Returns when each node runs so many ranks, and remembers which."""
        until(lambda: all(len(found) == each for found in self.now().values()), f"{self.job} runs")
        self.ranks = self.now()

    def now(self) -> dict[str, set[tuple[int, int]]]:
        """The same at this moment."""
        return {one.name: _ranks(one, self.job) for one in self.where}


def _ranks(inside: Inside, job: str) -> set[tuple[int, int]]:
    return {(found.pid, found.start) for found in inside.tops(job) if found.rank}


@dataclass(slots=True)
class Outcome:
    """What was seen of a row."""

    row: Row
    nodes: tuple[str, ...]
    shown: str
    """All that ``fab`` said, for whoever has to find out."""
    error: str
    """Its last words."""
    status: int
    notice_s: float
    gone_s: float
    left: list[str]
    """Processes of the job that were still there when their time was over."""
    states: dict[str, Any]
    """What ``fab jobs --json`` says afterwards, by job."""
    job: str
    beside: list[Beside]
    kept: list[bool]
    """Whether each of those had all its ranks afterwards."""
    ended: list[str] = field(default_factory=list)
    """The states in which they then were ended."""


def _failed(begun: Future[None]) -> bool:
    """Raises what it raised. Its end alone says nothing: a cancel may well outlive the launch."""
    if begun.done():
        begun.result()
    return False


class Engine:
    """The nodes, and who has them."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        self.living = nodes(workplace.project, STACK)
        self._free = list(self.living)
        self._lending = threading.Condition()
        self._count = 0
        self.inventory: Inventory = load(self.stack_folder)
        self.snapshot: str = workplace.fab("push", "--source", "ranks", "--json").json()["snapshot"]

    @property
    def stack_folder(self) -> Path:
        """What is kept of the stack."""
        return self.workplace.project / ".ranklift" / STACK

    @contextmanager
    def lent(self, count: int, *, spoiled: bool = False) -> Iterator[list[Inside]]:
        """Nodes that nobody else has meanwhile, and afterwards only if they are good for something."""
        with self._lending:
            assert self._lending.wait_for(lambda: len(self._free) >= count, PATIENCE_S), "no nodes are free"
            names, self._free = self._free[:count], self._free[count:]
        yield [self.living[name] for name in sorted(names)]
        if not spoiled:  # nor after an error
            with self._lending:
                self._free += names
                self._lending.notify_all()

    # -- jobs ---------------------------------------------------------------------------------------------

    @contextmanager
    def launch(self, *words: str) -> Iterator[Launch]:
        """A launch in a process of its own; its files are the operator's temporary ones."""
        with self._lending:
            self._count += 1
            out, err = (self.workplace.own.parent / f"launch-{self._count}.{end}" for end in ("out", "err"))
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = subprocess.Popen(
                ["fab", *words],
                cwd=self.workplace.own,
                env=self.workplace.environment,
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
            )
        launch = Launch(process, words, out, err)
        watcher = threading.Thread(target=launch.watch)
        watcher.start()
        try:
            yield launch
        finally:
            process.kill()
            watcher.join()

    def words(self, row: Row, scene: Scene) -> list[str]:
        """What launches the row's job."""
        where = ["--nodes", scene.ids, "--name", row.name]
        if row.setup:
            file = self.workplace.own / f"{row.name}.yml"
            text = JOB_FILE.format(
                ranks=row.ranks, kind=row.kind, each=row.each, nodes=NODES, setup=row.setup
            )
            file.write_text(text)
            return ["launch", file.name, *where, *row.options]
        kinds = {"mpi": ["--env", "CHAOS_MPI=1"], "torchrun": ["--torchrun"]}
        each = ["--nproc-per-node", str(row.each)]
        if row.kind == "tensorflow":
            each = ["--workers", str(NODES * row.each)]
        line = f"rank.py {row.ranks}"
        return [
            TASKS[row.kind],
            line,
            "--source",
            "ranks",
            *each,
            *where,
            *kinds.get(row.kind, []),
            *row.options,
        ]

    def plan(self, where: Sequence[Inside], spec: JobSpec) -> Any:
        """A job's plan on these nodes."""
        by_name = {node.name: node for node in self.inventory.nodes}
        chosen = [by_name[one.name] for one in where]
        return plan(
            spec,
            [JobNode(node.name, node.private_ip, node.slots) for node in chosen],
            size=self.inventory.size,
            remote=remote_id(),
            rehearsed=True,
        )

    def head(self, cluster: Cluster, name: str) -> Any:
        """A node as launch.client.submit asks it."""
        return cluster.host(next(node for node in self.inventory.nodes if node.name == name))

    def begin_beside(self, row: Row, scene: Scene, cluster: Cluster) -> list[Beside]:
        """Jobs that run all the time on the row's nodes: one on those that live, one on each cut off."""
        spared = [i for i in range(NODES) if i not in (*row.dead, *row.cut)]
        if not row.beside:
            return []
        groups = [[scene.nodes[i] for i in group] for group in (spared, *([i] for i in row.cut))]
        kind: Literal["mpi", "pytorch"] = "pytorch" if row.kind == "mpi" else "mpi"
        begun: list[Beside] = []
        for where in groups:
            spec = JobSpec(
                name="beside",
                kind=kind,
                command=("rank.py", "wait"),
                processes_per_node=row.beside,
                snapshot=self.snapshot,
            )
            job = submit.submit(self.plan(where, spec), self.head(cluster, where[0].name))
            begun.append(Beside(job, where))
        for one in begun:
            one.until_it_runs(row.beside)
        return begun

    # -- rows ---------------------------------------------------------------------------------------------

    def play(self, row: Row) -> Outcome:
        """Everything of one row, up to what was seen of it."""
        with ExitStack() as stack:
            scene = Scene(self.workplace, STACK, stack.enter_context(self.lent(NODES, spoiled=row.spoils)))
            cluster = stack.enter_context(Cluster(self.inventory, self.stack_folder))
            row.before(scene)
            beside = self.begin_beside(row, scene, cluster)
            row.early(scene)
            before = {one.name: one.processes() for one in scene.nodes}
            launch = stack.enter_context(self.launch(*self.words(row, scene)))
            self._until_it_is_time(row, scene, launch)
            living = [one for place, one in enumerate(scene.nodes) if place not in row.dead]
            began = time.monotonic()
            fault = stack.enter_context(ThreadPoolExecutor(1)).submit(row.fault, scene)
            until(lambda: launch.ended or _failed(fault), launch, max(row.waits, PATIENCE_S))
            noticed = launch.ended - began
            left = self.left(living, before, beside, [scene.job])
            while left and time.monotonic() - began < row.expected.gone_s:
                time.sleep(0.1)
                left = self.left(living, before, beside, [scene.job])
            gone = time.monotonic() - began
            fault.result()
            queried = [one for place, one in enumerate(scene.nodes) if place not in (*row.dead, *row.cut)]
            found = self.workplace.fab(
                "jobs", "--json", "--all", "--nodes", Scene(self.workplace, STACK, queried).ids
            ).json()
            outcome = Outcome(
                row,
                tuple(one.name for one in scene.nodes),
                "\n".join([str(launch), *map(str, scene.ran)]),
                launch.err[launch.err.rfind("error: ") :],
                launch.process.returncode,
                noticed,
                gone,
                [f"{one.name}: {found}" for one in living for found in left.get(one.name, [])],
                {state["job"]: state for state in found},
                scene.job,
                beside,
                [one.now() == one.ranks for one in beside],
            )
            for one in beside:
                if one.where[0].name in (node.name for node in queried):
                    head = self.head(cluster, one.where[0].name)
                    outcome.ended.append(end_job(one.job, head, remote=remote_id()).state.state)
            return outcome

    def _until_it_is_time(self, row: Row, scene: Scene, launch: Launch) -> None:
        def is_time() -> bool:
            if row.when == "refused":
                return bool(launch.job)
            assert not launch.ended, f"it ended before its time:\n{launch}"
            if row.when == "running":
                return launch.ready == NODES * row.each
            if row.when == "queued":
                return launch.shows("QUEUED")
            return launch.shows("STARTING") and all(
                any(found.args == row.setup for found in one.of_job(launch.job)) for one in scene.nodes
            )

        until(is_time, launch)
        scene.job = launch.job

    @staticmethod
    def left(
        living: Sequence[Inside], before: dict[str, list[Process]], beside: list[Beside], jobs: Sequence[str]
    ) -> dict[str, list[Process]]:
        """What of the jobs is on each node: their own, and whatever else came since they were launched."""
        others = {one.job for one in beside}
        found = {}
        for one in living:
            now = one.processes()
            strangers = [new for new in new_since(before[one.name], now) if new.job not in others]
            own = [its for its in now if its.job in jobs or any(job in its.args for job in jobs)]
            mine = list(dict.fromkeys([*own, *strangers]))
            if mine:
                found[one.name] = mine
        return found
