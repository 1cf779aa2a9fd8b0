"""An environment stays on every node where ranks run in it, whoever removes it; a node without is named."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client.environments import remove_from
from launch.errors import InputError
from launch.job.plan import JobPlan
from launch.job.spec import JobSpec
from launch.remote.base.records import EnvironmentRecord
from tests.launch.standin import LocalHost, Nodes, end_everything, lines, remarks

ID = "0123456789abcdef01234567"
RECORD: EnvironmentRecord = {
    "kind": "python",
    "id": ID,
    "path": f"~/.ranklift/environments/{ID}",
    "runtime": "bare",
    "title": "requirements.txt",
}


class InEnvironment(Nodes):
    """Nodes that hold an environment, for jobs that run in it."""

    def plan(self, spec: JobSpec) -> JobPlan:
        return replace(super().plan(spec), runs_in=RECORD)

    def place(self, number: int) -> Path:
        return self.folder / self.nodes[number].name / ".ranklift/environments" / ID

    def host(self, number: int) -> LocalHost:
        home = self.folder / self.nodes[number].name
        return LocalHost(self.nodes[number].name, home, {**self.env, "HOME": str(home)})


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[InEnvironment]:
    made = InEnvironment(tmp_path, [1, 1])
    known = {"code": "hash", "nodes": [node.name for node in made.nodes]}
    for number in range(2):
        place = made.place(number)
        (place / "bin").mkdir(parents=True)
        (place / "bin/python").symlink_to(sys.executable)
        place.with_suffix(".manifest").write_text("[]")
        place.with_suffix(".nodes").write_text(json.dumps(known))
    yield made
    end_everything()


def test_it_stays_on_every_node_of_a_job_until_the_job_ends(nodes: InEnvironment, tmp_path: Path) -> None:
    mark, end = tmp_path / "mark", tmp_path / "end"
    line = f"touch {mark}$RANK; until [ -e {end} ]; do sleep 0.05; done"
    spec = JobSpec(name="t", snapshot="code", kind="pytorch", command=("sh", "-c", line))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(nodes.run, spec)
        try:
            while not Path(f"{mark}1").exists():
                assert not running.done(), running.result()
                time.sleep(0.05)
            with pytest.raises(InputError, match=r"is in use by t-.*fab cancel t-"):
                remove_from(nodes.host(0), "hash", [ID], cache=False)
            with pytest.raises(InputError, match=r"is in use on node000001: .* ranks run in it"):
                remove_from(nodes.host(1), "hash", [ID], cache=False)
        finally:
            end.touch()
        assert running.result()[0].state == "SUCCEEDED"
    for number in range(2):
        remove_from(nodes.host(number), "hash", [ID], cache=False)
        assert not nodes.place(number).exists()


def test_a_node_that_has_lost_it_is_named_with_the_remedy_and_no_rank_starts(nodes: InEnvironment) -> None:
    shutil.rmtree(nodes.place(1))
    state, events = nodes.run(
        JobSpec(name="t", snapshot="code", kind="pytorch", command=("sh", "-c", "echo started"))
    )
    assert state.state == "FAILED"
    assert lines(events) == []
    reported = str(state) + str(remarks(events))
    assert f"{ID} is not on this node any more: `fab environment.rm {ID}` removes" in reported
