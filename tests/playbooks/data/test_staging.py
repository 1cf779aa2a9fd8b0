"""Data on its way to a job's nodes: what is said of it, and what the plan becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launch.client import stage
from launch.client.stage import Progress, Staged
from launch.data.data_spec import BlobAddress, DataSource
from launch.data.data_stores import Storage
from launch.errors import NotPushed
from launch.remote.base.phase_records import Phase
from launch.remote.base.records import DataRecord
from playbooks.cli.signals import attached as attached_to
from playbooks.data.staging import Staging, bring_data
from playbooks.jobs import submit as handover
from playbooks.jobs.submit import Handling, Load, hand_over
from tests.playbooks.jobs.test_submit import LOAD, Desk

SOURCE = DataSource("iris", "folder", BlobAddress("https://acme.blob.core.windows.net", "data", "iris"))
RECORD: DataRecord = {
    "name": "iris",
    "id": "5",
    "path": "~/.ranklift/data/5",
    "url": SOURCE.address.url,
    "bytes": 3,
    "files": 2,
    "seconds": 1.0,
}
SPEC = SimpleNamespace(
    environment=None, runtime="bare", home="/home/azureuser", hang_after_s=None, identity=False
)


@dataclass(frozen=True)
class Planned:
    """As much of a plan as a launch looks at here."""

    id: str = "t-1"
    remote: str = ".ranklift/remote/abc"
    spec: Any = field(default_factory=lambda: SPEC)
    paths: Mapping[str, str] | None = None
    data: tuple[DataRecord, ...] = ()
    py_spy: str = ""
    stages: tuple[Phase, ...] = ()
    snapshots: tuple[str, ...] = ()


STAGING = Staging([SOURCE], Storage(None), lambda paths: cast("Any", Planned(paths=paths)))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def stages(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Staged]) -> None:
    monkeypatch.setattr(stage, "stage_data", answer)


def launch(desk: Desk) -> None:
    load = Load(LOAD.code, staging=STAGING)
    handling = Handling(detach=True, json=False, dry_run=False)
    hand_over(desk.stack, desk.inventory, desk.inventory.nodes, STAGING.first_plan(), load, handling)


def test_the_first_plan_names_what_is_to_come() -> None:
    planned = cast("Any", STAGING.first_plan())
    assert planned.paths == {"iris": "${{inputs.iris}}"}
    assert [(one["name"], one["id"], one["url"]) for one in planned.data] == [
        ("iris", "", SOURCE.address.url)
    ]


def test_the_plan_has_the_paths_that_the_nodes_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages(monkeypatch, lambda *_: Staged((RECORD,), 1.0, 3))
    made = cast(
        "Any",
        bring_data(desk.inventory, desk.inventory.nodes, STAGING.first_plan(), STAGING, cast("Any", None)),
    )
    assert made.paths == {"iris": "/home/azureuser/.ranklift/data/5"}
    assert made.data == (RECORD,)
    assert capsys.readouterr().err == "data: 2 files, 3 B on 2 nodes in 1.0 s; 3 B left storage\n"


def test_data_that_the_nodes_hold_is_said_to_be_held(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages(monkeypatch, lambda *_: Staged((RECORD,), 0.1, 0))
    bring_data(desk.inventory, desk.inventory.nodes, STAGING.first_plan(), STAGING, cast("Any", None))
    assert capsys.readouterr().err == "data: 2 files, 3 B, which 2 nodes held already\n"


def test_a_head_without_the_code_gets_it_before_the_data(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def lacking_first(*_: object) -> Staged:
        done.append("stage")
        if done == ["stage"]:
            raise NotPushed("node000000", "push first")
        return Staged((RECORD,), 1.0, 3)

    stages(monkeypatch, lacking_first)
    desk.pushes(lambda *_: done.append("push"))
    desk.submits(lambda planned, *_: done.append(planned.data[0]["id"]))
    launch(desk)
    assert done == ["stage", "push", "stage", "5"]


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        pytest.param(1, ["stage", "submit", "push", "submit"], id="the code"),
        pytest.param(
            2, ["stage", "submit", "push", "submit", "stage", "submit"], id="data removed meanwhile"
        ),
    ],
)
def test_a_refused_job_gets_its_code_first_and_its_data_again_only_where_that_was_not_all(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, lacking: int, expected: list[str]
) -> None:
    done: list[str] = []

    def stage(*_: object) -> Staged:
        done.append("stage")
        return Staged((RECORD,), 1.0, 3)

    def submit(*_: object) -> None:
        done.append("submit")
        if done.count("submit") <= lacking:
            raise NotPushed("node000000", "push first")

    stages(monkeypatch, stage)
    desk.pushes(lambda *_: done.append("push"))
    desk.submits(submit)
    launch(desk)
    assert done == expected
    assert desk.note() == {"head": "node000000", "remote": "abc"}


def test_ctrl_c_while_data_is_staged_says_that_there_is_no_job_and_what_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []

    def interrupted(*_: object) -> Staged:
        messages.append(attached[0](2))
        raise KeyboardInterrupt

    attached: list[Callable[[int], str]] = []

    def noted(on_signal: Callable[[int], str]) -> Any:
        attached.append(on_signal)
        return attached_to(on_signal)

    monkeypatch.setattr(handover, "attached", noted)
    stages(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(desk)
    assert messages == [
        "interrupted while data was staged: no job was created; the nodes keep the parts that they have, "
        "and the next launch gets the rest"
    ]
    assert desk.note() is None


def test_progress_names_the_node_that_is_last() -> None:
    from playbooks.data.staging import progress_text

    held = {"node000000": 20, "node000001": 5}
    assert progress_text(Progress("", 25, 40, held)) == "data: 1 of 2 nodes have all, node000001 has 25 %"
