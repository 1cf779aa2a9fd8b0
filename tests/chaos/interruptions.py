"""Operators whose ``fab launch`` is killed, and who then type the same again."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from launch.client.cancel import end_job
from launch.code.node_code import remote_id
from playbooks.ssh.connection import Cluster
from tests.chaos import faults
from tests.chaos.engine import STACK, Beside, Engine, Launch, until
from tests.chaos.faults import Scene
from tests.chaos.inside import Process
from tests.chaos.rows import EACH, NODES, Expected, Kind, Row, in_container
from tests.e2e.workplace import Ran

__all__ = ["INTERRUPTIONS", "INTERRUPTIONS_IN_CONTAINERS", "Interruption", "Seen", "interrupt"]

Phase = Literal["begins", "pushes", "hands over", "waits", "starts", "runs", "ends"]
WEIGHT = 24_000_000
"""Bytes to push where the push is interrupted: enough for it to take a while."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """A launch that is killed, by what it does at that moment."""

    phase: Phase
    row: Row
    """What is launched, and how it ends when nobody but itself ends it."""
    jobs: tuple[int, ...] = (1,)
    """How many jobs there may be then."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of both launches."""

    row: Row
    killed: str
    again: str
    """All that each has shown."""
    first: list[str]
    """Jobs there were when the first was killed."""
    second: str
    status: int
    """The second's exit status."""
    watched: list[Ran]
    """``fab logs -f`` of the first's job."""
    states: dict[str, str]
    """Of all jobs of that name in the end."""
    strangers: list[Process]
    """Processes of jobs that nobody knows of, after the kill."""
    left: list[str]
    """Processes of either job in the end."""
    kept: bool
    """Whether the job beside them had all its ranks when they had ended."""


def _interruption(phase: Phase, kind: Kind, *jobs: int, **more: Any) -> Interruption:
    row = Row(
        f"operator killed while fab {phase}", kind, "return 0", faults.go, Expected("SUCCEEDED", 0), **more
    )
    return Interruption(phase, row, jobs or (1,))


def _ending(kind: Kind) -> Interruption:
    expected = Expected("FAILED", 3, 2, 1)
    row = Row("operator killed while job ends", kind, "stubborn-exit 2", faults.go, expected)
    return Interruption("ends", row)


INTERRUPTIONS = [
    _interruption("begins", "pytorch", 0),
    _interruption("pushes", "pytorch", 0),
    _interruption("hands over", "pytorch", 0, 1),
    _interruption("hands over", "mpi", 0, 1),
    _interruption("waits", "pytorch", beside=7),
    _interruption("waits", "mpi", beside=7),
    _interruption("starts", "pytorch", setup="sleep 3"),
    _interruption("starts", "mpi", setup="sleep 3"),
    _interruption("runs", "pytorch"),
    _interruption("runs", "mpi"),
    _ending("pytorch"),
    _ending("mpi"),
]
INTERRUPTIONS_IN_CONTAINERS = [
    replace(one, row=in_container(one.row)) for one in INTERRUPTIONS if one.phase == "runs"
]


def interrupt(engine: Engine, what: Interruption) -> Seen:
    """Launches, kills the launch, launches again, and lets everything come to its end."""
    row = what.row
    with ExitStack() as stack:
        scene = Scene(engine.workplace, STACK, stack.enter_context(engine.lent(NODES)))
        cluster = stack.enter_context(Cluster(engine.inventory, engine.stack_folder))
        beside = engine.begin_beside(row, scene, cluster)
        before = {one.name: one.processes() for one in scene.nodes}
        words = _words(engine, what, scene)
        first = stack.enter_context(engine.launch(*words))
        _until_it(what.phase, row, scene, first)
        first.process.kill()
        until(lambda: first.ended, first)
        there = _jobs(engine, row, scene)
        strangers = [
            one
            for inside in scene.nodes
            for one in inside.processes()
            if one.job and one.job not in (*there, *(its.job for its in beside))
        ]
        second = stack.enter_context(engine.launch(*words))
        until(lambda: second.job or second.ended, second)
        if what.phase == "waits":
            _end(engine, beside, cluster)
        _go(scene, [*there, second.job], second)
        until(lambda: second.ended, second)
        watched = [engine.workplace.fab("logs", "-f", job, status=None) for job in there]
        states = _jobs(engine, row, scene)
        others = beside if what.phase != "waits" else []
        left = engine.left(scene.nodes, before, beside, [*states])
        kept = all(one.now() == one.ranks for one in others)
        _end(engine, others, cluster)
        return Seen(
            row,
            str(first),
            str(second),
            [*there],
            second.job,
            second.process.returncode,
            watched,
            states,
            strangers,
            [f"{name}: {one}" for name, found in left.items() for one in found],
            kept,
        )


def _words(engine: Engine, what: Interruption, scene: Scene) -> list[str]:
    words = engine.words(what.row, scene)
    if what.phase == "pushes":
        heavy = engine.workplace.own / f"heavy-{what.row.kind}"
        shutil.copytree(engine.workplace.own / "ranks", heavy)
        (heavy / "weights").write_bytes(random.randbytes(WEIGHT))
        words[words.index("ranks")] = heavy.name
    return words


def _until_it(phase: Phase, row: Row, scene: Scene, launch: Launch) -> None:
    if phase == "begins":
        time.sleep(0.3)
    elif phase == "pushes":
        snapshots = scene.nodes[0].path(".ranklift/snapshots")
        until(lambda: any(snapshots.glob(".new-*")), launch)
    elif phase == "hands over":
        until(lambda: launch.err.startswith("snapshot "), launch)
    elif phase == "waits":
        until(lambda: launch.shows("QUEUED"), launch)
    elif phase == "starts":
        until(lambda: launch.shows("STARTING") and scene.nodes[1].of_job(launch.job), launch)
    else:
        until(lambda: launch.ready == NODES * EACH, launch)
        scene.job = launch.job
        if phase == "ends":
            faults.in_turn(faults.go, faults.until_gone(2, 1))(scene)


def _jobs(engine: Engine, row: Row, scene: Scene) -> dict[str, str]:
    """The states of the jobs that either launch has made."""
    result = engine.workplace.fab("jobs", "--json", "--all", "--nodes", scene.ids).json()
    return {job["job"]: job["state"] for job in result if job["name"] == row.name}


def _go(scene: Scene, jobs: list[str], second: Launch) -> None:
    """Tells the ranks of all jobs to go on, once they are there to be told."""
    until(lambda: second.ready == NODES * EACH or second.ended, second)
    for scene.job in jobs:
        faults.go(scene)


def _end(engine: Engine, beside: list[Beside], cluster: Cluster) -> None:
    for one in beside:
        end_job(one.job, engine.head(cluster, one.where[0].name), remote=remote_id())
