"""What is done to a job: each fault is a function of the scene it is played on."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from signal import SIGKILL, SIGSTOP

from rehearsal import control
from rehearsal.vms.api import VmFault
from tests.chaos.inside import Inside, Process
from tests.e2e.workplace import Ran, Workplace
from tests.environments.planted_images import link_torch

__all__ = [
    "Fault",
    "Scene",
    "Victims",
    "cancel",
    "fill",
    "give_torchrun",
    "go",
    "in_turn",
    "kill_launcher_of_mpi",
    "kill_rank",
    "kill_runner",
    "kill_supervisor",
    "kill_together",
    "kill_top",
    "meanwhile",
    "mpirun",
    "node",
    "nothing",
    "orted",
    "restart_sshd",
    "runners",
    "seal_tmp",
    "small_job_folder",
    "stop_ranks",
    "supervisor",
    "until_gone",
]

JOBS = "/home/azureuser/.ranklift/jobs"
SSHD = "/usr/sbin/sshd"
PATIENCE_S = 60.0


@dataclass(slots=True)
class Scene:
    """A job's nodes, in the order of its plan, and the job once it is known."""

    workplace: Workplace
    stack: str
    nodes: Sequence[Inside]
    job: str = ""
    ran: list[Ran] = field(default_factory=list)
    """Commands that were part of the fault."""

    @property
    def ids(self) -> str:
        """The nodes as ``--nodes`` takes them."""
        return ",".join(str(int(one.name[-6:], 36)) for one in self.nodes)

    def of_rank(self, rank: int, place: int) -> Process:
        """The process of a rank on the node at ``place``."""
        return self.nodes[place].rank(self.job, rank)


Fault = Callable[[Scene], None]


def nothing(scene: Scene) -> None:
    """The job breaks by itself, or not at all."""


def go(scene: Scene) -> None:
    """Tells the ranks to go on, on all nodes at once."""
    for inside in scene.nodes:
        inside.path(f"go-{scene.job}").touch()


def give_torchrun(scene: Scene) -> None:
    """Puts PyTorch into the nodes' home folders, where containers have it too: ``torch/bin/torchrun``."""
    for inside in scene.nodes:
        (home,) = scene.workplace.folder.root.glob(f"nodes/*/{inside.name}/home")
        link_torch(home / "torch")


def in_turn(*faults: Fault) -> Fault:
    """One after the other."""

    def play(scene: Scene) -> None:
        for fault in faults:
            fault(scene)

    return play


def meanwhile(slow: Fault, fault: Fault) -> Fault:
    """The second while the first, which takes its time to begin, is on its way."""

    def play(scene: Scene) -> None:
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(slow, scene)
            fault(scene)
            begun.result()

    return play


def kill_rank(rank: int, place: int) -> Fault:
    """SIGKILL to a rank."""
    return lambda scene: scene.nodes[place].kill(SIGKILL, scene.of_rank(rank, place).pid)


def stop_ranks(scene: Scene) -> None:
    """SIGSTOP to every process of every rank."""
    for inside in scene.nodes:
        inside.kill(SIGSTOP, *(one.pid for one in inside.processes() if one.job == scene.job and one.rank))


def kill_runner(rank: int, place: int) -> Fault:
    """SIGKILL to what stands beside a rank: the rank's parent."""
    return lambda scene: scene.nodes[place].kill(SIGKILL, scene.of_rank(rank, place).parent)


Victims = Callable[[Scene], dict[int, list[int]]]
"""Finds processes: their pids by the place of their node."""


def supervisor(scene: Scene) -> dict[int, list[int]]:
    """The job's supervisor, which is on the head."""
    state = json.loads(scene.nodes[0].path(f".ranklift/jobs/{scene.job}/state.json").read_text())
    return {0: [state["supervisor"]["pid"]]}


def mpirun(scene: Scene) -> dict[int, list[int]]:
    """mpirun itself."""
    found = [one.pid for one in scene.nodes[0].of_job(scene.job) if one.args.split()[0].endswith("mpirun")]
    assert len(found) == 1, f"no mpirun, or several: {found}"
    return {0: found}


def orted(place: int) -> Victims:
    """mpirun's daemon on a node other than the head: above the runners."""

    def find(scene: Scene) -> dict[int, list[int]]:
        by_pid = {one.pid: one for one in scene.nodes[place].processes()}
        above = next(one for one in by_pid.values() if one.job == scene.job and one.rank)
        while not above.args.startswith("orted "):
            above = by_pid[above.parent]
        return {place: [above.pid]}

    return find


def runners(*places: int) -> Victims:
    """All runners of the nodes: the parents of the ranks."""

    def find(scene: Scene) -> dict[int, list[int]]:
        tops = {place: scene.nodes[place].tops(scene.job) for place in places}
        return {
            place: sorted({one.parent for one in found if one.rank} - {1}) for place, found in tops.items()
        }

    return find


def kill_together(*victims: Victims) -> Fault:
    """SIGKILL to processes on all nodes at once."""

    def play(scene: Scene) -> None:
        pids: dict[int, list[int]] = {}
        for find in victims:
            for place, found in find(scene).items():
                assert found, f"nothing to kill on {scene.nodes[place].name}"
                pids.setdefault(place, []).extend(found)
        with ThreadPoolExecutor(len(pids)) as pool:
            list(pool.map(lambda place: scene.nodes[place].kill(SIGKILL, *pids[place]), pids))

    return play


kill_supervisor = kill_together(supervisor)
kill_launcher_of_mpi = kill_together(mpirun)


def kill_top(place: int) -> Fault:
    """SIGKILL to what the runner of a node has started: the user's own launcher."""

    def play(scene: Scene) -> None:
        inside = scene.nodes[place]
        inside.kill(SIGKILL, *(one.pid for one in inside.tops(scene.job)))

    return play


def restart_sshd(place: int) -> Fault:
    """The listening sshd of a node ends and another one comes; connections that are open stay."""

    def play(scene: Scene) -> None:
        inside = scene.nodes[place]
        (before,) = listeners(inside)
        inside.kill(SIGKILL, before.pid)
        until = time.monotonic() + PATIENCE_S
        while all(one.pid == before.pid for one in listeners(inside)):
            assert time.monotonic() < until, "no other sshd came"
            time.sleep(0.1)

    return play


def listeners(inside: Inside) -> list[Process]:
    """The node's sshd itself: the child of its first process."""
    return [one for one in inside.processes() if SSHD in one.args and one.parent == 1]


def small_job_folder(place: int, size: str) -> Fault:
    """From now on the folders of jobs on a node share a disk of that size."""
    return lambda scene: scene.nodes[place].mount(JOBS, size)


def fill(place: int) -> Fault:
    """That disk becomes full to the last byte."""

    def play(scene: Scene) -> None:
        rubbish = scene.nodes[place].path(".ranklift/jobs/rubbish")
        with rubbish.open("ab", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    return play


def seal_tmp(place: int) -> Fault:
    """From now on nobody can write to /tmp of a node."""
    return lambda scene: scene.nodes[place].seal("/tmp")


def node(kind: VmFault, place: int) -> Fault:
    """A node dies, is cut off, or comes back."""
    return lambda scene: control.inject_vm_fault(
        scene.workplace.project, scene.stack, [scene.nodes[place].name], kind
    )


def until_gone(rank: int, place: int) -> Fault:
    """Waits until a rank has ended."""

    def play(scene: Scene) -> None:
        until = time.monotonic() + PATIENCE_S
        while any(one.rank == str(rank) for one in scene.nodes[place].of_job(scene.job)):
            assert time.monotonic() < until, f"rank {rank} does not end"
            time.sleep(0.02)

    return play


def cancel(*, times: int = 1, at_once: bool = False, shows: str = "CANCELLED", status: int = 0) -> Fault:
    """``fab cancel``, so many times, one after the other or each from a terminal of its own.

    ``status`` is what it ends with: 1 where it could not see to some node.
    """

    def play(scene: Scene) -> None:
        def one(_: int) -> Ran:
            return scene.workplace.fab("cancel", scene.job, status=None)

        if at_once:
            with ThreadPoolExecutor(times) as pool:
                ran = list(pool.map(one, range(times)))
        else:
            ran = [one(number) for number in range(times)]
        scene.ran += ran
        for done in ran:
            assert done.status == status, done
            assert re.match(
                rf"job {scene.job} ((had ended before|ended before it could be cancelled): )?{shows}\b",
                done.out,
            ), done

    return play
