"""Rows in which processes that end a job are killed, alone and together, under ranks of each kind.

Each node runs four ranks: one that ends by SIGTERM, one that does not, and one of either kind with children,
of which one has left its session, its parents and the job's variables. A runner that is killed with its
guardians leaves nobody to find that one: docs/jobs.md says so.
"""

from __future__ import annotations

from tests.chaos import faults
from tests.chaos.faults import Victims
from tests.chaos.rows import ANY, SOON_S, Expected, Kind, Row

__all__ = ["KILLS"]

LOST = Expected("LOST", 255, says=("supervisor exited without recording why",))
RANKS = 4
"""On each node: one of each kind."""


def _row(what: str, kind: Kind, expected: Expected, *victims: Victims, ranks: str = "mixed") -> Row:
    return Row(f"{what} killed", kind, ranks, faults.kill_together(*victims), expected, each=RANKS)


def _both(what: str, expected: Expected, *victims: Victims, ranks: str = "mixed") -> list[Row]:
    return [_row(what, kind, expected, *victims, ranks=ranks) for kind in ("mpi", "pytorch")]


FAILED = Expected("FAILED", 255, ANY, 1, notice_s=2 * SOON_S)
WITHOUT_MPIRUN = Expected("FAILED", 137, notice_s=2 * SOON_S)

KILLS = [
    *_both("supervisor under mixed ranks", LOST, faults.supervisor),
    *_both("supervisor under deaf ranks with children", LOST, faults.supervisor, ranks="deaf-child"),
    _row("mpirun under mixed ranks", "mpi", WITHOUT_MPIRUN, faults.mpirun),
    _row("orted", "mpi", FAILED, faults.orted(1)),
    *_both("runners of a node", FAILED, faults.runners(1)),
    _row("supervisor and mpirun", "mpi", LOST, faults.supervisor, faults.mpirun),
    _row("supervisor and orted", "mpi", LOST, faults.supervisor, faults.orted(1)),
    *_both("supervisor and runners of the head", LOST, faults.supervisor, faults.runners(0)),
    *_both("supervisor and all runners", LOST, faults.supervisor, faults.runners(0, 1)),
    *_both(
        "supervisor and all runners under deaf ranks with children",
        LOST,
        faults.supervisor,
        faults.runners(0, 1),
        ranks="deaf-child",
    ),
    _row("mpirun and orted", "mpi", WITHOUT_MPIRUN, faults.mpirun, faults.orted(1)),
    _row("orted and its runners", "mpi", FAILED, faults.orted(1), faults.runners(1)),
    _row(
        "mpirun and runners of the head",
        "mpi",
        Expected("FAILED", 255, ANY, 0, notice_s=2 * SOON_S),
        faults.mpirun,
        faults.runners(0),
    ),
]
