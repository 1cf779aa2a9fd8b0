"""Time limits of a job's path: their values, and that those which depend on another one move with it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from launch.client import submit
from launch.code import push
from launch.remote.agent import autostop
from launch.remote.base import timing
from launch.remote.mpi.base import SSH_OPTIONS

ROOT = Path(__file__).parents[4]
SOURCE = Path(timing.__file__).read_text()

COUPLINGS: dict[str, tuple[float, dict[str, str]]] = {
    "NODE_SILENT_S": (
        40.0,
        {
            "BEAT_S": "several signs of life fit into the limit",
            "DEBUG_UNHEARD_S": "a look waits for a sign of life before it takes a node for cut off",
            "GRANT_S": "a runner that waits for its node's agent is not taken for lost",
            "TETHER_S": "the supervisor, which can report the reason, gives up before the runner",
            "SSH_ALIVE_S": "ssh gives up on a silent node no earlier than the supervisor",
            "SSH_SILENT_S": "the same, as one number",
            "OPERATOR_SILENT_S": "the operator is as patient as the cluster",
            "OPERATOR_SSH": "so is the ssh_config",
            "FOLLOW_BEAT_S": "several signs of life fit into the operator's limit",
            "HEAD_GONE_S": "a head is given up after its ranks have ended by themselves",
            "PUSH_SSH": "a push's ssh waits as long as every other",
            "PUSH_SILENT_S": "a push gives up after its ssh, whose words are the reason",
            "PUSH_STALL_S": "a silent child is given up before its connection",
            "PEER_SILENT_S": "a part is waited for as long as the head waits for the node that has it",
            "COLLECT_SILENT_S": "a collect gives up after its ssh",
            "AGENT_ANSWER_S": "an agent gives up after its ssh",
        },
    ),
    "SSH_CONNECT_S": (
        30,
        {
            "UNFIT_TOGETHER_S": "a node that ssh does not reach joins the one error",
            "NODES_ANSWER_S": "nodes are waited for until ssh has given up",
            "MPI_ANSWER_S": "a node may need as long to connect",
            "SUPERVISOR_END_S": "the last look at silent nodes is part of a job's end",
            "PUSH_SSH": "a push connects as everybody does",
        },
    ),
    "DEBUG_SPAN_S": (
        5.0,
        {
            "DEBUG_CHILD_S": "a node ends its last look, and reads what takes longer",
            "DEBUG_ANSWER_S": "reports of nodes that take all their time still count",
            "DEBUG_STEP_S": "the head answers after its last node, or without it",
        },
    ),
    "DEBUG_RECORD_S": (
        20.0,
        {
            "DEBUG_CHILD_S": "a node waits for its ranks' files after it has looked at them",
            "DEBUG_ANSWER_S": "reports of nodes that take all their time still count",
            "DEBUG_STEP_S": "the head answers after its last node, or without it",
        },
    ),
    "PROBE_STILL_S": (90.0, {"PROBE_S": "a probe that moves gets several times as long"}),
    "RUNNER_END_S": (9.0, {"SUPERVISOR_END_S": "part of a job's end"}),
    "MPIRUN_END_S": (9.0, {"SUPERVISOR_END_S": "part of a job's end, twice"}),
    "CANCEL_ANSWER_S": (50.0, {"CANCEL_STEP_S": "a request with its connection"}),
    "OPERATOR_CONNECT_S": (40, {"OPERATOR_SSH": "the ssh_config connects as the tasks do"}),
    "WATCH_BEAT_S": (
        5.0,
        {
            "WATCH_SILENT_S": "some signs of life may be late before the screen shows a silence",
            "WATCH_AGAIN_S": "a silence is shown before a new connection ends it",
        },
    ),
    "SAMPLE_AGE_S": (
        2.0,
        {
            "SAMPLE_S": "a sample is as old as the interval before the next one comes",
            "SAMPLE_WRITE_S": "and waits for the next version of its file",
            "PROBE_SAMPLE_S": "what is not sampled is not known to stand still",
        },
    ),
    "AGENT_CONNECT_S": (15, {"AGENT_ANSWER_S": "agents are waited for until ssh has given up"}),
}
"""By limit: another value, and each one that has to move with it, with the reason."""


def values(source: str = SOURCE) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "timing"}
    exec(compile(source, "timing.py", "exec"), names)
    return {name: value for name, value in names.items() if name.isupper()}


def with_another(name: str, value: float) -> dict[str, Any]:
    source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", SOURCE, flags=re.MULTILINE)
    assert count == 1, name
    return values(source)


@pytest.mark.parametrize("name", COUPLINGS)
def test_a_limit_moves_those_that_depend_on_it_and_no_others(name: str) -> None:
    value, dependent = COUPLINGS[name]
    before, after = values(), with_another(name, value)
    moved = {one for one in before if before[one] != after[one]}
    assert moved == {name, *dependent}
    assert all(after[one] > before[one] for one in dependent if isinstance(before[one], float | int))


@pytest.mark.parametrize("silent", [3.0, 12.0, 13.0, 40.0, 300.0])
def test_the_limits_keep_their_order(silent: float) -> None:
    found = with_another("NODE_SILENT_S", silent)
    assert found["BEAT_S"] < found["DEBUG_UNHEARD_S"] < found["NODE_SILENT_S"]
    assert 2 * found["BEAT_S"] < found["NODE_SILENT_S"] < found["SSH_SILENT_S"]
    assert found["BEAT_S"] + found["GRANT_S"] < found["NODE_SILENT_S"]
    assert found["NODE_SILENT_S"] < found["TETHER_S"] < found["HEAD_GONE_S"]
    assert found["SSH_SILENT_S"] < found["PUSH_SILENT_S"] < found["PUSH_STALL_S"]
    assert found["SSH_SILENT_S"] < min(found["COLLECT_SILENT_S"], found["AGENT_ANSWER_S"])
    assert found["FOLLOW_BEAT_S"] < found["OPERATOR_SILENT_S"] >= found["SSH_SILENT_S"]
    assert f"ServerAliveInterval={found['SSH_ALIVE_S']}" in found["PUSH_SSH"]
    assert isinstance(found["SSH_ALIVE_S"], int)


def test_the_limits_are_those_that_were_measured() -> None:
    """Benchmarks, chaos rows and the guide count on them."""
    assert (timing.BEAT_S, timing.NODE_SILENT_S, timing.TETHER_S) == (4.0, 12.0, 30.0)
    assert (timing.SSH_ALIVE_S, timing.SSH_SILENT_S, timing.OPERATOR_SILENT_S) == (5, 15.0, 15.0)
    assert (timing.PUSH_SILENT_S, timing.PUSH_STALL_S, timing.COLLECT_SILENT_S) == (20.0, 60.0, 60.0)
    assert (timing.SUPERVISOR_END_S, timing.HEAD_GONE_S, timing.CANCEL_STEP_S) == (30.0, 120.0, 45.0)
    assert (timing.NODES_ANSWER_S, timing.UNFIT_TOGETHER_S, timing.MPI_ANSWER_S) == (12.0, 12.0, 20.0)


def test_a_sample_that_is_written_as_late_as_may_be_is_young_enough() -> None:
    assert timing.SAMPLE_S + timing.SAMPLE_WRITE_S <= 0.85 * timing.SAMPLE_AGE_S


def test_every_ssh_client_has_the_same_options() -> None:
    assert SSH_OPTIONS == "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5"
    assert list(timing.PUSH_SSH[2:8]) == SSH_OPTIONS.split()
    assert "ConnectTimeout=3" in timing.ssh_options(timing.SSH_CONNECT_LOST_S)
    defaults = inspect.signature(push.push).parameters
    assert defaults["ssh"].default == timing.PUSH_SSH
    assert defaults["silence"].default == timing.PUSH_SILENT_S
    assert inspect.signature(submit.wait_for_end).parameters["patience"].default == timing.HEAD_GONE_S


def test_the_agent_has_the_same_limits_as_a_copy() -> None:
    assert timing.ssh_options(timing.AGENT_CONNECT_S) == autostop.SSH_OPTIONS
    assert timing.AGENT_ANSWER_S == autostop.LIMIT_S


def test_ssh_limits_stand_nowhere_else() -> None:
    """An option that is written out would not move."""
    written = re.compile(r"(ConnectTimeout|ServerAlive\w+)[= ]\d")
    for folder in ("launch", "infra", "playbooks"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != Path(autostop.__file__):
                assert written.search(path.read_text()) is None, path
