"""From a plan to a job on the cluster: push, submit, follow."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from infra.inventory import KEY_FILE, Inventory, Node
from launch.access import is_within, read_resolved
from launch.errors import (
    InputError,
    ManyNodesError,
    NodeUnreachable,
    NotPushed,
    RankliftError,
    RetryError,
    StepTimeout,
)
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.signals import attached
from playbooks.cli.task import with_address_age
from playbooks.data.staging import Staging, bring_data
from playbooks.jobs.cancel import cancel_job, format_cancelled
from playbooks.jobs.job_environment import in_environment
from playbooks.jobs.location import forget, remember
from playbooks.jobs.plan_view import plan_text
from playbooks.jobs.printer import EventPrinter, detached_job_commands, end_as, report_left
from playbooks.nodes.push import push_notices, push_to, record_push
from playbooks.project import Stack
from playbooks.start import OutputFailed

if TYPE_CHECKING:
    from launch.client.events import Event, JobState
    from launch.code.failure_hints import PushedCode
    from launch.code.snapshot import Snapshot
    from launch.host import Host
    from launch.job.plan import JobPlan
    from launch.job.spec import JobSpec
    from launch.job.stages import Stages
    from launch.remote.base.phase_records import PlannedPrice

__all__ = ["Handling", "Identity", "Load", "hand_over", "home_of", "planned_as", "source_text"]

_SCRIPT_BYTES = 1 << 20
"""Of a script, what is read to see which launcher it uses."""


@dataclass(frozen=True, slots=True)
class Handling:
    """Options for what happens once a job is planned."""

    detach: bool
    json: bool
    dry_run: bool
    cancel_on_interrupt: bool = False
    registries: Mapping[str, dict[str, str]] = field(default_factory=dict, repr=False)
    """Credentials by registry, which only the head gets."""
    on_event: Callable[[Event], None] | None = None
    """Gets the job's events, which are not printed then; any signal ends the job too."""
    is_repeat: bool = False
    """Whether the same job was launched before, and its notices are printed."""

    def __post_init__(self) -> None:
        """Raise :class:`~launch.errors.InputError` for options that exclude each other."""
        if self.detach and self.cancel_on_interrupt:
            problem = "cannot be combined with --detach, which returns before anybody can interrupt"
            raise InputError("--cancel-on-interrupt", None, problem, "give one of the two")

    @property
    def cancelling_signals(self) -> frozenset[int]:
        """The signals that end the job too."""
        if self.on_event is not None:
            return frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        return frozenset((signal.SIGINT,) if self.cancel_on_interrupt else ())


@dataclass(frozen=True, slots=True)
class Identity:
    """Time and random part of a job's id, fixed before the plan: paths in a command may hold the id."""

    now: datetime = field(default_factory=datetime.now)
    token: str = field(default_factory=lambda: secrets.token_hex(2))

    def random(self, _: int) -> str:
        """Return the random part, for :func:`launch.job.plan.job_id`."""
        return self.token

    def of(self, name: str) -> str:
        """Return the id of a job of that name."""
        from launch.job.plan import job_id

        return job_id(name, self.now, self.random)


@dataclass(frozen=True, slots=True)
class Load:
    """Snapshots that go to the nodes before the job."""

    code: Snapshot
    data: Mapping[Path, Snapshot] = field(default_factory=dict)
    staging: Staging | None = None
    """What brings data that is in storage."""
    tool: Snapshot | None = None
    """What reads the stacks of ranks that hang."""
    allowed: tuple[Path, ...] = ()
    """Resolved paths that links in the folders of its environment may lead into."""

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All of them, the code first."""
        return (self.code, *self.data.values(), *filter(None, (self.tool,)))

    @property
    def pushed(self) -> PushedCode:
        """The code, for hints at what a failed job lacked."""
        from launch.code.failure_hints import PushedCode

        files = frozenset(entry.path for entry in self.code.entries)
        return PushedCode(self.code.root, files, partial(source_text, self.code.root))

    @property
    def notices(self) -> list[str]:
        """Parts that are not sent, though a user could expect them to be."""
        code = [self.code.notice] if self.code.notice else []
        return code + [f"{path}: {one.notice}" for path, one in self.data.items() if one.notice]


def home_of(user: str) -> str:
    """Return the home folder of the nodes' user."""
    return "/root" if user == "root" else f"/home/{user}"


def source_text(root: Path, script: str) -> str | None:
    """Return the text of a script of the code in ``root``; None for one that cannot be read, or is a link out
    of the code."""
    path = Path(os.path.realpath(root / script))
    if not is_within(path, [Path(os.path.realpath(root))]):
        return None
    try:
        return read_resolved(path, _SCRIPT_BYTES).decode()
    except (OSError, RetryError, UnicodeDecodeError):
        return None


def planned_as(
    identity: Identity,
    spec: JobSpec,
    size: str,
    nodes: Sequence[Node],
    files: Collection[str] | None = None,
    *,
    rehearsed: bool = False,
    price: PlannedPrice | None = None,
) -> JobPlan:
    """Return the job's plan on these nodes, which may be ``rehearsed`` and have a ``price`` each; with
    ``files``, its script has to be one of them."""
    from launch.code.node_code import remote_id
    from launch.job.plan import plan
    from launch.job.spec import JobNode

    planned = plan(
        spec,
        [JobNode(node.name, node.private_ip, node.slots) for node in nodes],
        size=size,
        remote=remote_id(),
        files=files,
        rehearsed=rehearsed,
        now=identity.now,
        random=identity.random,
    )
    planned = replace(planned, node_price=price)
    if spec.hang_after_s is None:
        return planned
    from launch.code.stack_tool import py_spy_path

    return replace(planned, py_spy=py_spy_path())


def hand_over(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    planned: JobPlan,
    load: Load,
    handling: Handling,
    notices: Sequence[str] = (),
    kind: str | None = None,
) -> None:
    """Submit the job and end as it ends; with ``detach``, once the head has it.

    With ``dry_run`` print the plan instead, with ``kind`` in place of the plan's own word.
    """
    if planned.py_spy:
        from launch.code.stack_tool import py_spy_snapshot

        load = replace(load, tool=py_spy_snapshot())
    elif planned.spec.hang_after_s is not None:
        from launch.code.stack_tool import NO_STACKS

        notices = [*notices, NO_STACKS]
    notices = [*notices, *load.notices, *push_notices(stack, load.snapshots)]
    if handling.dry_run and not handling.json:
        output.result(plan_text(planned, load.code, load.data, notices, kind))
        return
    for notice in () if handling.is_repeat else notices:
        output.progress(notice)
    if handling.dry_run:
        output.as_json(planned.shown())
        return
    for snapshot in load.snapshots:
        record_push(stack, snapshot, is_pushed=False)
    detach = _OnSignal(stack, inventory, planned.id, handling.cancelling_signals)
    try:
        _run(stack, inventory, nodes, planned, load, handling, detach)
    except OutputFailed:
        output.progress(detach(signal.SIGPIPE))  # the signal that other programs get then
        raise


def _run(
    stack: Stack,
    inventory: Inventory,
    nodes: Sequence[Node],
    planned: JobPlan,
    load: Load,
    handling: Handling,
    detach: _OnSignal,
) -> None:
    from launch.client.events import StateChange
    from launch.client.submit import submit, submit_and_follow
    from launch.job.stages import Stages
    from playbooks.ssh.connection import Cluster

    job, head, remote = planned.id, nodes[0], PurePosixPath(planned.remote).name
    stages, pushed = Stages(), tuple(snapshot.id for snapshot in load.snapshots)
    with Cluster(inventory, stack.folder) as cluster, attached(detach):
        host = cluster.host(head)
        shown = EventPrinter(to_stderr=handling.json)
        printer = handling.on_event or shown

        def on_event(event: Event) -> None:
            if detach.phase == "sent":
                remember(stack, job, head.name, remote)
            is_over = isinstance(event, StateChange) and event.state.is_terminal
            detach.phase = "over" if is_over else "taken"
            printer(event)

        def start(planned: JobPlan) -> JobState | None:
            remember(stack, job, head.name, remote, taken=False)
            detach.phase = "sent"
            planned = replace(_signed(stack, planned), stages=stages.before_submit(), snapshots=pushed)
            if handling.detach:
                submit(planned, host)
                remember(stack, job, head.name, remote)
                detach.phase = "taken"
                return None
            return submit_and_follow(planned, host, on_event)

        ready: JobPlan | None = None
        try:
            for on_refusal in ("push", "stage", "raise"):
                try:
                    ready = ready or _bring(detach, nodes, planned, load, handling, host, stages)
                    state = start(ready)
                    break
                except NotPushed:
                    if on_refusal == "raise":
                        raise
                    forget(stack, job)
                    if on_refusal == "push":
                        _push(detach, nodes, load, host, stages)
                    else:
                        ready = None  # data or environment were removed meanwhile: stage again
        except (NodeUnreachable, StepTimeout):
            if detach.phase == "sent":
                output.progress(
                    f"job {job} was being submitted: `fab job {job}` shows whether its head has it"
                )
            raise
        if state is not None:
            report_left(state, inventory, cluster, remote, is_watched=handling.on_event is None)
    if state is None:
        _report_detached(stack, job, head, json=handling.json)
        return
    if handling.json:
        output.as_json(state)
    code = load.pushed if state.state == "FAILED" else None  # names every file of the code
    end_as(state, shown.error_line, code, planned.spec.environment)


def _signed(stack: Stack, planned: JobPlan) -> JobPlan:
    """Return the plan with the operator's signature where the job uses the nodes' identity."""
    if not planned.spec.identity:
        return planned
    from launch.job.identity_request import signed_request

    names = [part.node.name for part in planned.nodes]
    return replace(planned, identity=signed_request(planned.id, names, stack.folder / KEY_FILE))


def _report_detached(stack: Stack, job: str, head: Node, *, json: bool) -> None:
    if json:
        output.as_json({"job": job, "head": head.name})
    else:
        output.result(job)
    output.progress(detached_job_commands(stack, job))


_NO_JOB = {
    "data": "interrupted while data was staged: no job was created; the nodes keep the parts that they have, "
    "and the next launch gets the rest",
    "environment": "interrupted while the environment was made: no job was created; the head keeps what it "
    "has downloaded, and an environment only where it is whole",
    "push": "interrupted while the code was pushed: no job was created",
}
"""By phase, the last message of a command that ends before there is a job."""


@dataclass(slots=True)
class _OnSignal:
    """Returns the last message of a command that a signal, or a stdout that cannot be written, ends.

    It depends on how far the job has come.
    """

    stack: Stack
    inventory: Inventory
    job: str
    cancels: frozenset[int]
    """Signals that end the job too; a closed terminal is not a request, except where nobody but the command
    needs the job."""
    phase: Literal["data", "environment", "push", "sent", "taken", "over"] = "push"

    def __call__(self, number: int) -> str:
        """Return the message for :func:`playbooks.cli.signals.attached`; cancel the job where asked for."""
        if self.phase in _NO_JOB:
            return _NO_JOB[self.phase]
        if self.phase == "over":
            return f"job {self.job} has ended: see `fab job {self.job}`"
        if number in self.cancels:
            output.progress(f"cancelling job {self.job}")
            try:
                done = cancel_job(self.stack, self.inventory, self.job, None)
                return "\n".join(filter(None, (format_cancelled(done), done.problem)))
            except RankliftError as error:
                return f"job {self.job} could not be cancelled: {error}"
        if self.phase == "sent":
            return f"interrupted while job {self.job} was submitted: `fab jobs` shows whether its head has it"
        return f"job {self.job} continues\n{detached_job_commands(self.stack, self.job)}"


def _bring(
    detach: _OnSignal,
    nodes: Sequence[Node],
    planned: JobPlan,
    load: Load,
    handling: Handling,
    head: Host,
    stages: Stages,
) -> JobPlan:
    """Return the plan with its data and its environment, which the nodes hold then."""
    detach.phase, begun = "data", stages.now()
    staged = bring_data(detach.inventory, nodes, planned, load.staging, head)
    if staged is not planned:
        stages.add("stage-data", begun, sum(one["bytes"] for one in staged.data if one["seconds"]))
    detach.phase, begun = "environment", stages.now()
    complete = in_environment(
        detach.stack, detach.inventory, nodes, staged, head, handling.registries, load.allowed
    )
    if complete is not staged:
        stages.add("stage-environment", begun)
    return complete


def _push(detach: _OnSignal, nodes: Sequence[Node], load: Load, head: Host, stages: Stages) -> None:
    detach.phase, begun, moved = "push", stages.now(), 0
    for snapshot in load.snapshots:
        try:
            report = push_to(detach.stack, head, nodes, snapshot)
        except ManyNodesError as error:
            raise with_address_age(
                detach.inventory, ManyNodesError("the push before the job", error.results)
            ) from None
        moved += report.bytes_sent
        if snapshot.entries:
            sent = size(report.bytes_sent)
            output.progress(f"snapshot {report.snapshot}: {sent} sent in {report.seconds:.1f} s")
    stages.add("stage-code", begun, moved)
