"""What comes of the command that looks at a node."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from launch.remote.base import frames
from launch.remote.node.health_gate import NotLooked, check, read_look, refusals, without_infiniband
from launch.remote.node.prepare import Unfit
from tests.launch.remote.health.some_findings import DOWN, HOT

if TYPE_CHECKING:
    from launch.remote.base.health_records import Findings, Look

LIMITED = """\
import json, os, time
from launch.remote.node.loop import Loop
loop = Loop(os.pipe()[0], os.pipe()[1])
begun = time.monotonic()
status, output = loop._run_bounded({argv!r}, {limit!r})
print(json.dumps([status, output.decode(), time.monotonic() - begun, len(loop.ranks)]))
"""

STOPPED = """\
import os
from launch.remote.node.prepare import Unfit
from launch.remote.node.runner import Runner
runner = Runner(os.pipe()[0], os.pipe()[1])
try:
    print(runner._run_look(["sh", "-c", "kill -TERM $PPID; sleep 60"], 30.0))
except Unfit as error:
    print(*error.reasons)
"""


def run_bounded(argv: list[str], limit: float) -> list[object]:
    """A command as a runner runs it: status, output, seconds, processes that the runner still has."""
    program = LIMITED.format(argv=argv, limit=limit)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    found: list[object] = json.loads(done.stdout)
    return found


def test_findings_are_those_that_the_command_prints() -> None:
    look: Look = {"findings": [DOWN], "gpus": 8, "ports": []}
    answer = b"\0" + frames.pack(look) + b"\0"
    assert read_look(0, answer) == look


def test_what_libraries_print_beside_the_findings_is_no_fault_of_the_node() -> None:
    """The runner reads stdout and stderr of the command as one."""
    look: Look = {"findings": [], "gpus": 8, "ports": ["mlx5_ib0:1"]}
    loader = b"ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded: ignored.\n"
    assert read_look(0, loader + b"\0" + frames.pack(look) + b"\0" + loader) == look


@pytest.mark.parametrize(
    ("status", "output", "words"),
    [
        (None, b"", "late: no findings within 45 s, as on a node that is busy"),
        (3, b"", "no findings, and exit status 3; the node's python3 or a start-up file may fail"),
        (1, b"Traceback\nValueError: x\n", "no findings, and exit status 1: ValueError: x"),
        (-11, b"", "no findings, and exit status -11; the node's python3 or a start-up file may fail"),
        (0, b"not bencoded", "no findings, and exit status 0: not bencoded"),
        (1, b"x" * 100_000, "no findings, and exit status 1: " + "x" * 1000),
    ],
)
def test_a_look_that_fails_or_is_late_finds_no_fault_of_the_node(
    status: int | None, output: bytes, words: str
) -> None:
    with pytest.raises(NotLooked) as failed:
        read_look(status, output)
    assert str(failed.value) == words


@pytest.mark.parametrize("mode", ["strict", "warn"])
def test_ranks_are_refused_where_nothing_is_known_of_their_node(mode: str) -> None:
    sent: list[Findings] = []
    spec: Any = {"health": {"mode": mode, "promise": {}}, "user_env": {}}
    with pytest.raises(Unfit) if mode == "strict" else nullcontext() as refused:
        check(spec, lambda *_: (3, b""), lambda _, found: sent.append(found))
    assert [(one["rule"], one["level"]) for one in sent[0]["findings"]] == [("look", "unknown")]
    if refused is not None:
        assert "look at the node: no findings, and exit status 3; " in refused.value.reasons[0]


@pytest.mark.parametrize(
    "findings",
    ["text", [1], [{}], [{**DOWN, "level": "fine"}], [{**DOWN, "measured": 7}], [{"rule": "ib-state"}]],
    ids=repr,
)
def test_findings_of_another_form_are_none(findings: object) -> None:
    """They would let a node pass, or end what reads them."""
    answer = b"\0" + frames.pack({"findings": findings, "gpus": 8, "ports": []}) + b"\0"
    with pytest.raises(NotLooked):
        read_look(0, answer)


def test_errors_refuse_a_node_and_warnings_do_not() -> None:
    assert refusals([HOT]) == []
    assert refusals([DOWN, HOT]) == [
        "mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE (healthagent); `fab replace` the node",
        "`--health warn` starts the job anyway",
    ]


def test_infiniband_is_no_error_for_a_job_that_does_without() -> None:
    assert without_infiniband([DOWN], {"NCCL_IB_DISABLE": "0"}) == [DOWN]
    assert without_infiniband([DOWN, HOT], {"NCCL_IB_DISABLE": "1"}) == [{**DOWN, "level": "warning"}, HOT]


def test_a_command_that_hangs_is_killed_and_the_runner_goes_on() -> None:
    status, _, seconds, left = run_bounded(["sleep", "60"], 0.3)
    assert (status, left) == (None, 0)
    assert isinstance(seconds, float)
    assert seconds < 10


def test_a_command_that_ends_has_its_status_and_output() -> None:
    status, output, *_ = run_bounded(["sh", "-c", "echo found; exit 3"], 30.0)
    assert (status, output) == (3, "found\n")


def test_a_look_that_is_cut_off_with_its_job_finds_nothing() -> None:
    """Other nodes are busy, or somebody cancels the job: that is no error of this node."""
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, check=True)
    assert done.stdout == b"stopped\n"
