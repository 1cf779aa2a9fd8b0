"""A job whose ranks hang as a file orders, until another file lets them go on: round after round."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra import inventory
from launch.client.debug import DebugReport, debug_job
from launch.code.stack_tool import py_spy_path
from playbooks.ssh.connection import Cluster
from tests.e2e.workplace import Workplace
from tests.see.running_jobs import until

__all__ = ["HANGS", "SCRIPT", "WAYS", "Round", "Rounds", "playing"]

WAYS = ("missing", "lock", "loader", "mismatch", "stopped", "kernel", "slow", "network")
HANGS = {
    **dict.fromkeys(("missing", "lock", "loader"), "missing-rank"),
    "mismatch": "mismatched-collective",
    "stopped": "stopped",
    "kernel": "kernel",
    "slow": "slow",
    "network": "dead-network",
}
"""The verdict's kind for each way."""
START_S = 600.0
ROUND_S = 120.0
SETTLE_S = 1.0
"""From the culprit's last sign until the ranks are looked at: the others reach their collective."""
CUT_S = 2.0
"""The same for a path that is cut: TCP repeats first after 0.2 s."""
FEW = 16
DEBIAN_PYTHON = "/usr/bin/python3"
SCRIPT = f"""\
import os, signal, sys, threading, time

JOB, WAYS = os.environ["RANKLIFT_JOB_ID"], {WAYS!r}
BASE = 100_000


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist, self.other = torch, dist, dist.new_group()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def add_up(self, value):
        values = self.torch.tensor([value])
        self.dist.all_reduce(values)
        return int(values)

    def exchange(self):
        values = self.torch.zeros(self.size)
        self.dist.all_to_all_single(self.torch.zeros(self.size), values)

    def meet(self):
        self.dist.barrier(group=self.other)


class Mpi:
    def __init__(self):
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.other = self.world.Dup()
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()

    def add_up(self, value):
        return self.world.allreduce(value)

    def exchange(self):
        self.world.alltoall([0] * self.size)

    def meet(self):
        self.other.Barrier()


def main(flavour):
    # The ranks of a rehearsed cluster share this machine's processors, and those of MPIs wait for each other
    # without a pause: whatever else runs comes first.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    world = Gloo() if flavour == "gloo" else Mpi()
    number = 0
    while True:
        play(world, number, *divmod(world.add_up(order(number) if world.rank == 0 else 0), BASE))
        number += 1


def order(number):
    path = f"/tmp/{{JOB}}-{{number}}.order"
    wait_for(path)
    with open(path) as file:
        way, culprit = file.read().split()
    return WAYS.index(way) * BASE + int(culprit)


def play(world, number, way, culprit):
    way, is_mine = WAYS[way], world.rank == culprit
    begun, go = f"/tmp/{{JOB}}-{{number}}.begun", f"/tmp/{{JOB}}-{{number}}.go"
    if is_mine:
        open(begun, "w").close()
    if way == "slow":
        while not world.add_up(int(is_mine and os.path.exists(go))):
            if is_mine:
                compute(0.5)
    elif way == "network":
        while not world.add_up(int(is_mine and os.path.exists(go))):
            world.exchange()
            time.sleep(0.02)
    elif way == "mismatch":
        if is_mine:
            world.meet()
        else:
            threading.Thread(target=follow, args=(world, go)).start()
        world.add_up(0)
    else:
        if is_mine:
            globals()[way](go)
        world.add_up(0)


def follow(world, go):
    wait_for(go)
    world.meet()


def missing(go):
    while not os.path.exists(go):
        compute(0.1)


def lock(go):
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=release, args=(held, go)).start()
    held.acquire()


def release(held, go):
    wait_for(go)
    held.release()


def loader(go):
    from torch.utils.data import DataLoader, Dataset

    class Late(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            wait_for(go)
            return index

    for batch in DataLoader(Late(), num_workers=1):
        pass


def stopped(go):
    os.kill(os.getpid(), signal.SIGSTOP)


def kernel(go):
    # The new process opens a pipe that nobody writes to, before it executes anything: until then the kernel
    # keeps its parent waiting, uninterruptibly (vfork(2)).
    os.mkfifo(go + ".fifo")
    opens = (os.POSIX_SPAWN_OPEN, 0, go + ".fifo", os.O_RDONLY, 0)
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[opens]), 0)


def compute(seconds):
    time.sleep(seconds)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)


main(sys.argv[1])
"""


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
        self._head = self.cluster.host(saved.nodes[0])
        self._remote = json.loads((folder / "jobs" / f"{job}.json").read_text())["remote"]
        self.random = random.Random(20)  # the same ranks in each run)

    def play(self, way: str) -> Round:
        """Have a rank hang that the seed chooses; look at the job; let it go on."""
        culprit = self.random.randrange(self.nodes * self.per_node)
        nodes = [culprit // self.per_node]
        if way == "network":
            nodes = sorted(self.random.sample(range(1, self.nodes), 2))  # the head orders by its own path
        mark = f"/tmp/{self.job}-{self.number}"
        self.number += 1
        self._on([0], f"echo {way} {culprit} > {mark}.new && mv {mark}.new {mark}.order")
        self._on([culprit // self.per_node], f"until [ -e {mark}.begun ]; do sleep 0.05; done")
        if way == "network":
            self._fault("cut-path", "--nodes", ",".join(map(str, nodes)))
        time.sleep(CUT_S if way == "network" else SETTLE_S)
        begun = time.monotonic()
        found = debug_job(self.job, self._head, remote=self._remote, py_spy=py_spy_path())
        seconds = time.monotonic() - begun
        if way == "network":
            self._fault("clear")
        line = f"touch {mark}.go; [ ! -p {mark}.go.fifo ] || timeout 5 sh -c ': > {mark}.go.fifo'"
        self._on(range(self.nodes), line)
        if way == "stopped":
            self._on(nodes, f"kill -CONT {found.ranks[culprit].pid}")
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
        mark = f"/tmp/{self.job}-{self.number}"
        self._on([0], f"echo network 0 > {mark}.new && mv {mark}.new {mark}.order")
        self._on([0], f"until [ -e {mark}.begun ]; do sleep 0.05; done")
        self._fault("partition", "--nodes", str(node))
        try:
            return debug_job(self.job, self._head, remote=self._remote, py_spy=py_spy_path())
        finally:
            self._fault("heal", "--nodes", str(node))

    def debug(self) -> float:
        """Return the seconds that ``fab debug`` takes; the first one brings py-spy."""
        begun = time.monotonic()
        self.workplace.fab("debug", self.job, "--stack", self.stack)
        return time.monotonic() - begun

    def _fault(self, *words: str) -> None:
        self.workplace.fab("rehearsal.fault", *words, "--stack", self.stack)

    def _on(self, nodes: Sequence[int], line: str) -> None:
        """Run a line on nodes at once, by plain ssh."""
        config = self.workplace.project / ".ranklift" / self.stack / "ssh_config"
        names = [f"node{number:06d}" for number in nodes]
        argvs = [["ssh", "-F", str(config), name, f"sh -c {shlex.quote(line)}"] for name in names]
        started = [subprocess.Popen(argv, stdin=subprocess.DEVNULL) for argv in argvs]
        assert [process.wait(ROUND_S) for process in started] == [0] * len(started), line


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
    task = "launch.torch" if flavour == "gloo" else "launch.mpi"
    python = (
        f"{DEBIAN_PYTHON} " if flavour == "gloo" and nodes * per_node > FEW and has_debian_torch() else ""
    )
    words = ("--stack", stack, "--nproc-per-node", str(per_node), "--no-probe", "--detach")
    job = workplace.fab(task, f"{python}rounds.py {flavour}", *words).out.strip()
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
