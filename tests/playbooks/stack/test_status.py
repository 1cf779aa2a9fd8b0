"""What `fab status` says beside its table: when the nodes end, and what of the stack is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from invoke.context import Context
from invoke.exceptions import Exit

from infra import inventory
from infra.arm.update_errors import AzureFailed
from infra.scale_plan import Drift
from launch.errors import NodeUnreachable, RankliftError
from playbooks.nodes import health, look, vm_ops
from playbooks.project import Stack
from playbooks.pulumi import drift
from playbooks.stack import converge, status
from tests.infra.preflight.test_stale import remembered
from tests.launch.remote.health.some_findings import DOWN, HOT, looked
from tests.playbooks.screen import hold, screen
from tests.playbooks.typed import fake_pulumi

GOLDEN = Path(__file__).parent / "golden"
SET = "/subscriptions/s-1/resourceGroups/ranklift-dev/providers/Microsoft.Compute/virtualMachineScaleSets/x"
OUTPUTS = inventory.StackOutputs(
    "dev", SET, None, None, None, 22, "size", "place", 0, 1, "me", "private", "key", "key"
)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Stack ``dev`` without nodes, of which Azure has everything."""
    made = Stack("dev", tmp_path, fake_pulumi(tmp_path, f"cat {tmp_path}/state"))
    (tmp_path / "state").write_text("{}")
    monkeypatch.setattr(status, "open_from", lambda *_: made)
    monkeypatch.setattr(Stack, "outputs", lambda _: OUTPUTS)
    monkeypatch.setattr(
        inventory, "read_azure", lambda *_: inventory.Inventory("dev", "size", "place", "me", ())
    )
    monkeypatch.setattr(drift, "find_drift", lambda *_: Drift(0, 0, 0))
    monkeypatch.setattr(health, "probe", lambda *_: {})
    monkeypatch.setattr(look, "look", lambda *_: {})
    return made


def ended(json: bool = False) -> int:
    try:
        status.status(Context(), json=json)
    except Exit as error:
        return int(error.code)
    return 0


def made_before(stack: Stack, hours: float, ttl: str | None) -> None:
    made = datetime.now(UTC) - timedelta(hours=hours, seconds=5)
    (stack.project / "state").write_text(json.dumps(remembered(made.isoformat(), ttl)))


def test_one_minute_is_left_in_the_singular(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    made_before(stack, 6 - 1.2 / 60, "6")
    ended()
    assert "1 minute is left until " in capsys.readouterr().out


def test_a_cluster_without_nodes_has_no_table(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended() == 0
    assert capsys.readouterr().out == ""
    assert ended(json=True) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_cluster_with_a_time_says_what_is_left_of_it(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    made_before(stack, 2.5, "6")
    until = (datetime.now(UTC) + timedelta(hours=3.5, seconds=-5)).strftime("%Y-%m-%d %H:%M")
    assert ended() == 0
    printed = (
        f"3.5 hours are left until {until} UTC (ranklift:ttlHours is 6), when the nodes delete themselves"
    )
    assert printed in capsys.readouterr().out.splitlines()
    assert ended(json=True) == 0
    shown = capsys.readouterr()
    assert (json.loads(shown.out), shown.err.strip()) == ([], printed)
    made_before(stack, 7, "6")
    ended()
    assert "their lifetime ended at" in capsys.readouterr().out
    made_before(stack, 7, None)
    ended()
    assert "time" not in capsys.readouterr().out


def test_what_azure_has_no_more_is_named_and_amiss(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drift, "find_drift", lambda *_: Drift(0, 0, 0, ("RoleAssignment data-right",)))
    assert ended() == 1
    printed = "RoleAssignment data-right: Azure no longer has it: `fab up --stack dev` repairs that"
    assert printed in capsys.readouterr().err


def test_what_could_not_be_asked_is_said_and_amiss(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise RankliftError("Azure says no")

    monkeypatch.setattr(drift, "find_drift", refused)
    assert ended() == 1
    assert (
        "whether Azure has the stack's other resources is unknown: Azure says no" in capsys.readouterr().err
    )


def gone(code: str) -> Callable[..., Any]:
    def refused(*_: object) -> None:
        error = ResourceNotFoundError("it was not found")
        error.error = type("Said", (), {"code": code, "message": "it was not found"})()
        raise error

    return refused


@pytest.mark.parametrize(
    ("hours", "ttl", "printed"),
    [
        (
            2.1,
            "2",
            r"their lifetime ended at \S+ \S+ UTC \(ranklift:ttlHours is 2\)[^\n]*\n`fab up --stack dev`",
        ),
        (1.9, "2", "it was removed, by an interrupted `fab down` or in"),
        (1.9, None, "`fab down --stack dev` removes the rest"),
    ],
)
def test_a_cluster_that_ended_itself_was_removed_by_nobody(
    hours: float, ttl: str | None, printed: str, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "read_azure", gone("ResourceNotFound"))
    made_before(stack, hours, ttl)
    with pytest.raises(AzureFailed, match=printed):
        vm_ops.refresh(stack, OUTPUTS)


def test_another_failure_stays_what_it_is(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    made_before(stack, 3, "2")
    monkeypatch.setattr(inventory, "read_azure", gone("Conflict"))
    with pytest.raises(AzureFailed, match="Conflict"):
        vm_ops.refresh(stack, OUTPUTS)


@pytest.fixture
def nodes(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes of it, of which one does not answer."""
    made = tuple(
        inventory.Node(f"node00000{n}", n, f"10.0.0.{4 + n}", "127.81.98.172", 50000 + n, 8, "running")
        for n in range(3)
    )
    found = inventory.Inventory("dev", "Standard_ND40rs_v2", "place", "me", made)
    silent = NodeUnreachable("node000002", "127.81.98.172:50002: the connection is closed before any sshd")
    monkeypatch.setattr(inventory, "read_azure", lambda *_: found)
    monkeypatch.setattr(
        health,
        "probe",
        lambda *_: {"node000000": health.Health(), "node000001": health.Health(), "node000002": silent},
    )


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_the_nodes_fit_the_terminal_and_no_reason_is_lost(
    monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    terminal = screen(monkeypatch, columns, colours=colours)
    assert ended() == 1
    shown = terminal.getvalue()
    hold(shown, GOLDEN / f"status-{columns}-{'colours' if colours else 'plain'}.txt")
    if not colours:
        assert max(map(len, shown.splitlines())) <= columns
    assert "closed" in shown


@pytest.mark.usefixtures("nodes")
def test_a_drained_node_is_shown_and_not_amiss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drained = health.Health(drain="drained 2026-03-01T09:05:07Z by ann on desk")
    there = {f"node00000{n}": drained if n else health.Health() for n in range(3)}
    monkeypatch.setattr(health, "probe", lambda *_: there)
    monkeypatch.setattr(converge, "wanted_of", lambda _: 3)
    assert ended() == 0
    shown = capsys.readouterr()
    assert shown.out.count("running, drained") == 2
    line = (
        "node[000001-000002]: drained 2026-03-01T09:05:07Z by ann on desk: no new job before `fab undrain`\n"
    )
    assert shown.err == line
    assert ended(json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["drain"] for row in rows] == ["", drained.drain, drained.drain]


@pytest.mark.usefixtures("nodes")
def test_what_a_look_finds_is_shown_and_errors_make_a_node_not_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(converge, "wanted_of", lambda _: 3)
    monkeypatch.setattr(health, "probe", lambda *_: {f"node00000{n}": health.Health() for n in range(3)})
    found = {"node000000": looked(HOT), "node000001": looked(), "node000002": looked(DOWN)}
    monkeypatch.setattr(look, "look", lambda *_: found)
    assert ended(json=True) == 1
    shown = capsys.readouterr()
    assert [[one["rule"] for one in row["findings"]] for row in json.loads(shown.out)] == [
        ["gpu-temperature"],
        [],
        ["ib-state"],
    ]
    assert shown.err == (
        "node000002: mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE (healthagent); `fab replace 2`\n"
        "node000000: warning: GPU 1: 95 C; expected: at most 93 C (healthagent); wait\n"
    )
    found["node000002"] = looked()
    assert ended(json=True) == 0


@pytest.mark.usefixtures("nodes")
def test_wide_shows_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = screen(monkeypatch, 40, colours=False)
    with pytest.raises(Exit):
        status.status(Context(), wide=True)
    hold(terminal.getvalue(), GOLDEN / "status-wide.txt")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (3, "configured for 3 nodes, Azure has 5: `fab up --stack dev` removes 2, `fab scale 5` keeps 5\n"),
        (6, "configured for 6 nodes, Azure has 5: `fab up --stack dev` adds 1, `fab scale 5` keeps 5\n"),
        (5, ""),
    ],
)
def test_another_number_than_configured_is_reported_with_both_remedies(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wanted: int,
    words: str,
) -> None:
    nodes = tuple(inventory.Node(f"n{i}", i, "", "", 0, 8, "running") for i in range(5))
    found = inventory.Inventory("dev", "size", "place", "me", nodes)
    monkeypatch.setattr(inventory, "read_azure", lambda *_: found)
    good = {node.name: health.Health(0.0, 0.5) for node in nodes}
    monkeypatch.setattr(health, "probe", lambda *_: good)
    stack.configuration.write_text(f"config:\n  ranklift:nodeCount: {wanted}\n")
    assert ended(json=True) == bool(words)
    assert capsys.readouterr().err == words


# -- the idle stop


NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LEFT = "(ranklift:idleStopMinutes is 30), when the nodes are deleted unless a job runs or waits"


def told(**answers: dict[str, float]) -> str:
    return status.idle_words(answers, 30, NOW)


def test_the_idle_stop_is_due_half_an_hour_after_the_last_job() -> None:
    leader = {"idle_s": 780.0, "leads": 1.0, "used_s": 780.0}
    assert told(a=leader, b={"idle_s": 1700.0}) == f"17 minutes are left until 2026-03-01 09:17 UTC {LEFT}"
    added = told(a=leader, b={"idle_s": 5.0, "new": 1.0})
    assert added == f"17 minutes are left until 2026-03-01 09:17 UTC {LEFT}"
    assert told(a={"idle_s": 1740.0, "leads": 1.0}).startswith("1 minute is left until 2026-03-01 09:01 UTC")


def test_while_a_job_runs_there_is_no_time_for_the_idle_stop() -> None:
    after = "the nodes are deleted 30 minutes after the last one (ranklift:idleStopMinutes is 30)"
    assert told(a={"idle_s": 780.0, "leads": 1.0}, b={"idle_s": 0.0}) == f"a job runs or waits: {after}"


def test_a_node_that_does_not_answer_is_named_beside_the_time() -> None:
    line = told(n0={"idle_s": 780.0, "leads": 1.0}, n1={})
    assert line.startswith("at least 30 minutes are left until 2026-03-01 09:30 UTC")
    assert line.endswith("; no answer from n1, which counts as busy for as long")
    unknown = told(n0={"idle_s": 780.0, "leads": 1.0}, n1={}, n2={})
    assert "unknown: 1 of 3 nodes answer" in unknown


def test_a_time_that_no_node_has_confirmed_is_told_as_such() -> None:
    assert "; no node has confirmed yet that it can delete them" in told(a={"idle_s": 780.0})


@pytest.mark.parametrize(
    "odd", [{"idle_s": -1e14, "leads": 1.0}, {"idle_s": 9.0, "leads": 1.0, "used_s": -1e14}]
)
def test_a_hostile_answer_moves_the_time_no_further_than_the_setting(odd: dict[str, float]) -> None:
    assert told(a=odd).startswith("30 minutes are left")


def test_the_minutes_are_those_of_the_scale_sets_tag(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    state = remembered(None, None)
    state["deployment"]["resources"][1]["inputs"]["tags"]["ranklift-idle-stop-minutes"] = "30"
    (stack.project / "state").write_text(json.dumps(state))
    asked = list[float | None]()

    def noted(_stack: Stack, _inventory: object, _ready: object, minutes: float | None) -> list[str]:
        asked.append(minutes)
        return []

    monkeypatch.setattr(status, "idle_stop_lines", noted)
    assert ended() == 0
    made_before(stack, 1, None)
    assert ended() == 0
    assert asked == [30.0, None]
