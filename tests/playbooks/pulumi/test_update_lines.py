"""What is printed of an update: its changes, every diagnostic in full, its counts, each once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from playbooks.pulumi.run import pulumi
from playbooks.pulumi.update_lines import UpdateLines
from tests.playbooks.pulumi.test_run import stack
from tests.playbooks.typed import ROOT

NODES = "urn:pulumi:dev::ranklift::a$azure-native:compute:VirtualMachineScaleSet::nodes"
NETWORK = "urn:pulumi:dev::ranklift::a$azure-native:network:VirtualNetwork::network"
SUMMARY: dict[str, object] = {
    "summaryEvent": {"durationSeconds": 9, "resourceChanges": {"same": 12, "create": 2, "replace": 1}}
}


def ended(op: str, urn: str, *, custom: bool = True, planning: bool = False) -> dict[str, object]:
    return {
        "resOutputsEvent": {
            "metadata": {"op": op, "urn": urn, "new": {"custom": custom}},
            "planning": planning,
        }
    }


def said(severity: str, message: str, urn: str = "") -> dict[str, object]:
    return {"diagnosticEvent": {"urn": urn, "severity": severity, "message": message}}


def lines(*events: dict[str, object]) -> list[tuple[str, str]]:
    return list(UpdateLines().take(events))


def test_changes_of_one_kind_are_one_line() -> None:
    assert lines(ended("create", NETWORK), ended("create", NODES), SUMMARY) == [
        ("change", "created VirtualNetwork network, VirtualMachineScaleSet nodes"),
        ("counts", "Pulumi: 2 created, 1 replaced, 12 unchanged, in 9 s"),
    ]


def test_a_replacement_is_one_change() -> None:
    steps = ("create-replacement", "replace", "delete-replaced")
    assert lines(*(ended(op, NODES) for op in steps)) == [("change", "replaced VirtualMachineScaleSet nodes")]


def test_what_is_nothing_in_azure_and_what_stays_is_left_out() -> None:
    provider = "urn:pulumi:dev::ranklift::pulumi:providers:azure-native::default"
    component = "urn:pulumi:dev::ranklift::ranklift:infra:TrainingCluster::dev"
    assert lines(
        *(ended("create", provider), ended("create", component, custom=False)),
        *(ended("same", NODES), ended("refresh", NODES), ended("create", NODES, planning=True)),
        said("debug", "registering resource"),
        {"summaryEvent": {"resourceChanges": {"create": 15}, "isPreview": True}},
    ) == []  # fmt: skip


def test_every_diagnostic_is_printed_in_full_and_once_though_the_preview_had_it() -> None:
    text = 'Status=409 Code="Conflict" Message="Not now."\n  caused by: something'
    shown = UpdateLines()
    preview = list(shown.take([said("warning", "<{%fg 3%}>retired soon<{%reset%}>\n", NODES)]))
    update = list(
        shown.take(
            [
                said("warning", "retired soon", NODES),
                said("info#err", "Traceback of a plugin\n"),
                said("error", text, NODES),
                said("error", "update failed"),
            ]
        )
    )
    assert preview == [("warning", "VirtualMachineScaleSet nodes: retired soon")]
    assert update == [
        ("info", "Traceback of a plugin"),
        ("error", f"VirtualMachineScaleSet nodes: {text}"),
        ("error", "update failed"),
    ]
    assert shown.has_error


def test_a_policy_that_is_violated_is_named() -> None:
    violation: dict[str, object] = {
        "policyEvent": {
            "resourceUrn": NODES,
            "message": "needs an owner",
            "policyName": "tags",
            "enforcementLevel": "mandatory",
        }
    }
    assert lines(violation) == [
        ("error", "VirtualMachineScaleSet nodes: policy tags (mandatory): needs an owner")
    ]


TABLE = "Updating (dev):\\n +  created (0.59s)\\nOutputs:\\n"


def test_pulumis_own_table_is_in_the_log_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = stack(tmp_path, ended("create", NODES), SUMMARY, then=f"printf '{TABLE}'; echo odd >&2")
    pulumi(made, ["up", "--yes"])
    pulumi(made, ["destroy", "--yes"])
    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err.splitlines()[:4]) == [
        "$ pulumi up --yes",
        "Pulumi: 2 created, 1 replaced, 12 unchanged, in 9 s",
        "created VirtualMachineScaleSet nodes",
        "odd",
    ]
    log = tmp_path / ".ranklift" / "dev" / "pulumi.log"
    assert log.stat().st_mode & 0o777 == 0o600
    text = log.read_text()
    assert text.count("Updating (dev):\n +  created (0.59s)\nOutputs:\n") == text.count("odd\n") == 2
    assert text.index(": pulumi up --yes\n") < text.index(": pulumi destroy --yes\n")


def test_where_it_is_asked_for_all_of_it_is_shown_as_pulumi_prints_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = stack(tmp_path, ended("create", NODES), SUMMARY, then=f"printf '{TABLE}'")
    pulumi(replace(made, shows_pulumi=True), ["up", "--yes"])
    assert capfd.readouterr() == (
        "Updating (dev):\n +  created (0.59s)\nOutputs:\n",
        "$ pulumi up --yes\n",
    )


def test_a_failure_that_only_stdout_explains_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit):
        pulumi(stack(tmp_path, then="echo the engine did not start; exit 7"), ["up", "--yes"])
    assert capfd.readouterr().out == "the engine did not start\n"


def test_a_log_that_has_grown_large_begins_anew_and_the_one_before_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / ".ranklift" / "dev"
    folder.mkdir(parents=True)
    (folder / "pulumi.log").write_text("x" * (5 << 20))
    pulumi(stack(tmp_path, then="echo new"), ["up", "--yes"])
    assert "x" not in (folder / "pulumi.log").read_text()
    assert (folder / "pulumi.log.1").stat().st_size == 5 << 20


SHOWS_A_TERMINAL = "if [ -t 0 ] || [ -t 1 ]; then stty raw <&0; head -c 2 >/dev/null; fi; echo drawn"
"""As Pulumi does: on a terminal it draws, and reads the keys."""
ASKS = (
    "import os, signal, sys; from pathlib import Path; from playbooks.project import Stack\n"
    "signal.alarm(60)  # a question that never gets its answer ends\n"
    "from playbooks.pulumi.run import pulumi\n"
    "pulumi(Stack('dev', Path(sys.argv[1]), dict(os.environ)), ['up', '--yes'])\n"
    "print('answer:', input())\n"
)


def test_keys_typed_meanwhile_are_the_next_questions_and_lines_begin_at_the_left(tmp_path: Path) -> None:
    made = stack(tmp_path, ended("create", NODES), SUMMARY, then=SHOWS_A_TERMINAL)
    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-c", ASKS, str(tmp_path)],
        env={**made.environment, "PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ):
        os.write(ours, b"y\n")
        after = termios.tcgetattr(theirs)
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while data := os.read(ours, 65536):
                shown += data
    os.close(ours)
    assert after == modes
    assert b"answer: y\r\n" in shown
    assert b"\r\ncreated VirtualMachineScaleSet nodes\r\n" in shown
