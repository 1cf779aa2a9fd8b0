"""The rows: what a job of two nodes with two ranks each does, what is done to it, and what has to be seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tests.chaos import faults
from tests.chaos.faults import Fault

__all__ = ["ANY", "ROWS", "ROWS_IN_CONTAINERS", "Expected", "Kind", "Row", "When", "in_container"]

Kind = Literal["mpi", "pytorch", "torchrun", "tensorflow"]
When = Literal["running", "queued", "starting", "refused"]

ANY = -1
"""Some rank, whichever; its node has to be the one it runs on."""
NODES, EACH = 2, 2
KEEP_ALIVE_S, TETHER_S = 20.0, 40.0
"""What the design promises: a silent node is noticed, and its ranks have ended by themselves."""
SOON_S = 12.0
"""For what the design promises within 5 s: the machine may have two slow cores and other work."""
CANCEL_S = 20.0
"""From the start of ``fab cancel``, beside five other rows, to the end of the launch that watched the job."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What has to be seen."""

    state: str | None
    """None when nobody is left who knows it."""
    status: int
    """``fab``'s exit status."""
    rank: int | None = None
    """The first rank that failed, :data:`ANY` of several at once; None when none did by itself."""
    node: int | None = None
    """Its node, by its place among the job's."""
    notice_s: float = SOON_S
    """Most seconds from the fault to the end of ``fab``."""
    gone_s: float = 2 * SOON_S
    """Most seconds from the fault until no process of the job is left."""
    says: tuple[str, ...] = ()
    """What ``fab`` has to have shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault and what it leads to."""

    what: str
    kind: Kind
    ranks: str
    """The words for ``rank.py``."""
    fault: Fault
    expected: Expected
    when: When = "running"
    before: Fault = faults.nothing
    """What is done to the nodes before any job runs there."""
    early: Fault = faults.nothing
    """What is done to them before the launch, while a job runs beside it."""
    options: tuple[str, ...] = ()
    setup: str = ""
    """A line that every node runs first; the job is then launched by a job file, which alone can say so."""
    dead: tuple[int, ...] = ()
    """Places of nodes that do not live afterwards: nobody else's job runs on them either."""
    cut: tuple[int, ...] = ()
    """Places of nodes that are alive, and that nobody reaches."""
    spoils: bool = False
    """The nodes are of no use to other rows."""
    each: int = EACH
    """Ranks on each node."""
    beside: int = 2
    """Ranks on each node of the job that runs beside it; 0 for none, as torchrun has its nodes to itself."""

    @property
    def name(self) -> str:
        """The row as the id of a test and the name of a job.

        >>> ROWS[0].name
        'rank-exits-with-3-mpi'
        """
        words = "".join(letter if letter.isalnum() else " " for letter in f"{self.what} {self.kind}".lower())
        return "-".join(words.split())

    @property
    def waits(self) -> float:
        """How long it takes at most: the longest are begun first."""
        return max(self.expected.notice_s, self.expected.gone_s)


def for_kinds(
    what: str, kinds: tuple[Kind, ...], ranks: str, fault: Fault, expected: Expected, **more: object
) -> list[Row]:
    """The same row under several kinds of job."""
    return [Row(what, kind, ranks, fault, expected, **more) for kind in kinds]  # type: ignore[arg-type]


BOTH: tuple[Kind, ...] = ("mpi", "pytorch")

RANKS_FAIL = [
    *for_kinds(
        "rank exits with 3", BOTH, "exit 2", faults.go, Expected("FAILED", 3, 2, 1, says=("  loss is nan",))
    ),
    *for_kinds(
        "rank raises",
        BOTH,
        "raise 2",
        faults.go,
        Expected("FAILED", 1, 2, 1, says=("  RuntimeError: loss is nan",)),
    ),
    *for_kinds("rank killed by SIGKILL", BOTH, "wait", faults.kill_rank(3, 1), Expected("FAILED", 137, 3, 1)),
    *for_kinds("rank killed by SIGSEGV", BOTH, "segv 1", faults.go, Expected("FAILED", 139, 1, 0)),
    *for_kinds(
        "rank exits with 3 and its peers after it", BOTH, "lead 2", faults.go, Expected("FAILED", 3, 2, 1)
    ),
    *for_kinds("all ranks fail at once", BOTH, "exit", faults.go, Expected("FAILED", 3, ANY)),
    *for_kinds(
        "rank 0 returns before the others",
        BOTH,
        "return 0",
        faults.go,
        Expected("SUCCEEDED", 0, says=tuple(f"rank {rank} has worked" for rank in range(4))),
    ),
    *for_kinds(
        "rank hangs past the time limit",
        BOTH,
        "hang 3",
        faults.go,
        Expected("FAILED", 124, notice_s=12 + SOON_S, gone_s=12 + 2 * SOON_S, says=("time limit of 12 s",)),
        options=("--timeout", "12s"),
    ),
    Row(
        "rank exits with 3",
        "torchrun",
        "exit 2",
        faults.go,
        # On a busy machine torchrun itself takes 24 s to notice its rank and to word its end.
        Expected("FAILED", 1, 1, 1, notice_s=5 * SOON_S, gone_s=5 * SOON_S),
        beside=0,
    ),
    Row("rank exits with 3", "tensorflow", "exit 1", faults.go, Expected("FAILED", 3, 1, 1)),
]

MACHINES_FAIL = [
    *for_kinds(
        "node killed",
        BOTH,
        "wait",
        faults.node("death", 1),
        Expected("FAILED", 255, 2, 1, KEEP_ALIVE_S, TETHER_S),
        dead=(1,),
        spoils=True,
    ),
    *for_kinds(
        "node partitioned",
        BOTH,
        "wait",
        faults.node("partition", 1),
        Expected("FAILED", 255, 2, 1, KEEP_ALIVE_S, TETHER_S),
        cut=(1,),
        spoils=True,
    ),
    *for_kinds(
        "head killed",
        BOTH,
        "wait",
        faults.node("death", 0),
        Expected(None, 1, notice_s=KEEP_ALIVE_S, gone_s=TETHER_S, says=("its head is gone or unreachable",)),
        dead=(0,),
        spoils=True,
    ),
    *for_kinds(
        "supervisor killed",
        BOTH,
        "wait",
        faults.kill_supervisor,
        Expected("LOST", 255, says=("supervisor exited without recording why",)),
    ),
    *for_kinds("runner killed", BOTH, "wait", faults.kill_runner(2, 1), Expected("FAILED", 255, 2, 1)),
    Row(
        "mpirun killed",
        "mpi",
        "wait",
        faults.kill_launcher_of_mpi,
        Expected("FAILED", 137, notice_s=2 * SOON_S, says=("mpirun",)),
    ),
    Row(
        "torchrun killed",
        "torchrun",
        "wait",
        faults.kill_top(1),
        Expected("FAILED", 137, 1, 1),
        beside=0,
    ),
    *for_kinds(
        "sshd restarted",
        BOTH,
        "return 0",
        faults.in_turn(faults.restart_sshd(1), faults.go),
        Expected("SUCCEEDED", 0),
    ),
    *for_kinds(
        "disk full on the head",
        BOTH,
        "talk",
        faults.in_turn(faults.fill(0), faults.go),
        Expected("SUCCEEDED", 0, notice_s=2 * SOON_S),
        before=faults.small_job_folder(0, "8m"),
        spoils=True,
    ),
    *for_kinds(
        "disk full on another node",
        BOTH,
        "talk",
        faults.in_turn(faults.fill(1), faults.go),
        Expected("SUCCEEDED", 0, notice_s=2 * SOON_S),
        before=faults.small_job_folder(1, "8m"),
        spoils=True,
    ),
    *for_kinds(
        "tmp not writable",
        BOTH,
        "return 0",
        faults.nothing,
        Expected("FAILED", 255, says=("no rank was started", "/tmp cannot be written")),
        when="refused",
        early=faults.in_turn(faults.seal_tmp(0), faults.seal_tmp(1)),
        spoils=True,
    ),
    *for_kinds(
        "tmp no longer writable",
        BOTH,
        "return 0",
        faults.in_turn(faults.seal_tmp(0), faults.seal_tmp(1), faults.go),
        Expected("SUCCEEDED", 0),
        spoils=True,
    ),
]

CANCELLED = Expected("CANCELLED", 130, notice_s=CANCEL_S)

OPERATOR_CANCELS = [
    *for_kinds("cancel while queued", BOTH, "wait", faults.cancel(), CANCELLED, when="queued", beside=7),
    *for_kinds(
        "cancel while starting", BOTH, "wait", faults.cancel(), CANCELLED, when="starting", setup="sleep 300"
    ),
    *for_kinds("cancel while running", BOTH, "wait", faults.cancel(), CANCELLED),
    *for_kinds(
        "cancel while ending",
        BOTH,
        "stubborn-exit 2",
        faults.in_turn(faults.go, faults.until_gone(2, 1), faults.cancel(shows="FAILED")),
        Expected("FAILED", 3, 2, 1, notice_s=CANCEL_S),
    ),
    *for_kinds("cancel twice", BOTH, "wait", faults.cancel(times=2), CANCELLED),
    *for_kinds(
        "cancel from two terminals", BOTH, "stubborn", faults.cancel(times=2, at_once=True), CANCELLED
    ),
    *for_kinds(
        "cancel during a partition",
        BOTH,
        "wait",
        faults.meanwhile(faults.cancel(status=1), faults.node("partition", 1)),
        Expected("CANCELLED", 130, notice_s=2 * CANCEL_S, gone_s=TETHER_S),
        cut=(1,),
        spoils=True,
    ),
    *for_kinds("cancel ranks that ignore SIGTERM", BOTH, "stubborn", faults.cancel(), CANCELLED),
    *for_kinds("cancel ranks with daemons", BOTH, "daemons", faults.cancel(), CANCELLED),
    *for_kinds(
        "cancel ranks that are stopped",
        BOTH,
        "wait",
        faults.in_turn(faults.stop_ranks, faults.cancel()),
        CANCELLED,
    ),
    Row("cancel ranks that ignore SIGTERM", "tensorflow", "stubborn", faults.cancel(), CANCELLED),
    Row(
        "cancel ranks that ignore SIGTERM",
        "torchrun",
        "stubborn",
        faults.cancel(),
        CANCELLED,
        beside=0,
    ),
]

ROWS = [*RANKS_FAIL, *MACHINES_FAIL, *OPERATOR_CANCELS]

BARE_ALONE = (
    "sshd restarted",
    "disk full on the head",
    "disk full on another node",
    "tmp not writable",
    "tmp no longer writable",
)
"""Rows that end no running job: what they break is beside the ranks, whatever these run in."""


def in_container(row: Row) -> Row:
    """The row with its ranks in containers of the image that ``environments/boxed.yml`` names."""
    options = (*row.options, "--environment", "boxed", "--runtime", "charliecloud")
    before = faults.give_torchrun if row.kind == "torchrun" else row.before
    return replace(row, what=f"{row.what} in a container", options=options, before=before)


ROWS_IN_CONTAINERS = [in_container(row) for row in ROWS if row.what not in BARE_ALONE]
