"""What ranks are started in, with a runtime that the package does not know."""

from __future__ import annotations

import pytest

from launch.errors import InputError
from launch.job.runtime import RUNTIMES, Bare
from launch.job.spec import JobSpec
from launch.launchers.base import Spec
from tests.launch.standin import Nodes, lines

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]


class Wrapped(Bare):
    """Starts ranks under env(1)."""

    def argv(self, spec: Spec) -> tuple[str, ...]:
        return ("env", "WRAPPED=$RANK", *super().argv(spec))


def test_ranks_run_in_the_runtime_of_their_job(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "wrapped", Wrapped())
    command = ("sh", "-c", 'echo "${WRAPPED-bare}"')
    _, events = nodes.run(JobSpec("t", "pytorch", command, runtime="wrapped"))
    assert sorted(lines(events)) == [(0, "0"), (1, "1"), (2, "2")]
    _, events = nodes.run(JobSpec("t", "pytorch", command))
    assert {text for _, text in lines(events)} == {"bare"}


def test_one_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="runtime = 'jail': is not a runtime; use bare"):
        JobSpec("t", "mpi", ("hostname",), runtime="jail")
