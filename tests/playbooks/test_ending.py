"""What ``fab cancel`` says it did."""

from __future__ import annotations

import pytest

from launch.ending import Swept
from launch.errors import NodeUnreachable
from launch.events import JobState
from playbooks.ending import Cancelled, told
from tests.playbooks.test_jobtext import state


def cancelled(before: str | None, now: JobState | None, **swept: Swept | Exception) -> str:
    return told(Cancelled("t-1", now, before, swept))


GONE = NodeUnreachable("node000001", "refused")


@pytest.mark.parametrize(
    ("before", "now", "swept", "text"),
    [
        (
            "QUEUED",
            state("t-1", "CANCELLED", started=None),
            {},
            "job t-1 CANCELLED: it was waiting, nothing was started",
        ),
        ("RUNNING", state("t-1", "CANCELLED"), {}, "job t-1 CANCELLED: all its processes ended on 2 nodes"),
        (
            "STARTING",
            state("t-1", "CANCELLED", nodes=("node000000",)),
            {},
            "job t-1 CANCELLED: all its processes ended on node000000",
        ),
        ("RUNNING", state("t-1", "SUCCEEDED"), {}, "job t-1 ended before it could be cancelled: SUCCEEDED"),
        ("FAILED", state("t-1", "FAILED"), {}, "job t-1 had ended before: FAILED"),
        ("CANCELLED", state("t-1", "CANCELLED"), {}, "job t-1 had ended before: CANCELLED"),
        (
            "RUNNING",
            state("t-1", "CANCELLED"),
            {"node000001": GONE},
            "job t-1 CANCELLED: all its processes ended on node000000",
        ),
        (
            "LOST",
            state("t-1", "LOST"),
            {"node000000": Swept(2, ()), "node000001": Swept(2, ())},
            "job t-1 had ended before: LOST\n  node[000000-000001]: 2 processes ended",
        ),
        (
            "LOST",
            state("t-1", "LOST"),
            {"node000000": Swept(0, ()), "node000001": Swept(1, ())},
            "job t-1 had ended before: LOST\n"
            "  node000000: nothing of it was left\n"
            "  node000001: 1 process ended",
        ),
        (
            None,
            None,
            {"node000000": Swept(1, (7, 9)), "node000001": GONE},
            "job t-1: what became of it is not known\n"
            "  node000000: even SIGKILL did not end 7, 9: restart the node",
        ),
    ],
)
def test_each_way_it_can_go_has_its_words(
    before: str | None, now: JobState | None, swept: dict[str, Swept | Exception], text: str
) -> None:
    assert cancelled(before, now, **swept) == text
