"""How a job's end is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from launch.errors import JobFailed
from launch.events import JobState
from playbooks.joblog import end


def ended(state: str, reason: str) -> JobState:
    fields = {
        **{"job": "a-1", "name": "a", "kind": "mpi", "state": state, "reason": reason, "exit_status": 130},
        **{"nodes": ["node000000"], "ranks": 1, "port": None, "created": datetime.now(UTC).timestamp()},
        **{"started": None, "ended": None, "failure": None},
    }
    return JobState.from_dict(fields)


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("CANCELLED", "", "job a-1 CANCELLED: it was asked to end"),
        ("LOST", "", "job a-1 LOST: nothing is known of why"),
        ("FAILED", "rank 0 on node000000 ended with exit status 3", None),
    ],
)
def test_an_end_without_a_reason_leaves_no_colon_behind(state: str, reason: str, told: str | None) -> None:
    with pytest.raises(JobFailed) as caught:
        end(ended(state, reason))
    assert str(caught.value) == (told or f"job a-1 {state}: {reason}")
    assert caught.value.exit_status == 130
