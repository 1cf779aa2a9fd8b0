"""Ctrl-C while Pulumi runs: what Azure may continue is named, and the command that goes on from there."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from playbooks.pulumi.run import Interrupted, pulumi
from tests.playbooks.pulumi.test_run import BEGUN, METADATA, failed, stack

STARTED_S = 0.4
"""A program runs before ``Popen`` returns; an interrupt in between would end the tests."""
CANCELLING = {
    "stdoutEvent": {
        "message": "^C received; cancelling. If you would like to terminate immediately, press ^C"
    }
}


def test_ctrl_c_names_what_is_under_way_in_azure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        time.sleep(STARTED_S)
        os.kill(os.getpid(), signal.SIGINT)

    ended = {"resOpFailedEvent": {"metadata": METADATA}}
    then = (
        f"echo '{json.dumps(ended)}' > {tmp_path}/ended; log=$(ls {tmp_path}/.ranklift/.command-*/events); "
        f"touch {tmp_path}/begun; sleep 1; cat {tmp_path}/ended >> $log; exit 1"
    )
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(Interrupted) as caught:
        pulumi(stack(tmp_path, BEGUN, then=then), ["up", "--yes"])
    interrupting.join()
    assert (caught.value.code, caught.value.has_begun) == (130, True)
    under_way, then_what = capfd.readouterr().err.splitlines()[-2:]
    assert under_way.startswith("VirtualMachineScaleSet nodes: Azure has been working on it (create) for ")
    assert under_way.endswith(" s, and may continue")
    assert then_what.startswith(
        "interrupted; Pulumi's state has what it had begun: `fab up --stack dev` continu"
    )


@pytest.mark.parametrize("op", ["create", "same", "read"])
def test_ctrl_c_before_anything_was_begun_claims_nothing_of_azure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], op: str
) -> None:
    """While Pulumi previews, and while it still compares what it has."""
    event = {"metadata": {**METADATA, "op": op}, "planning": op == "create"}
    then = f"sleep {STARTED_S}; kill -INT {os.getpid()}; sleep 1; exit 1"
    with pytest.raises(Interrupted) as caught:
        pulumi(stack(tmp_path, {"timestamp": 0, "resourcePreEvent": event}, then=then), ["up", "--yes"])
    assert (caught.value.code, caught.value.has_begun) == (130, False)
    assert capfd.readouterr().err == "$ pulumi up --yes\ninterrupted before anything was changed\n"


def test_an_interrupt_that_comes_to_pulumi_alone_ends_alike(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A signal may come to Pulumi alone."""
    ended = {"resOpFailedEvent": {"metadata": METADATA}}
    with pytest.raises(Interrupted) as caught:
        pulumi(
            stack(tmp_path, BEGUN, CANCELLING, ended, failed("", "cancelled"), then="exit 1"), ["up", "--yes"]
        )
    assert (caught.value.code, caught.value.has_begun) == (130, True)
    *_, under_way, then = capfd.readouterr().err.splitlines()
    assert under_way.startswith("VirtualMachineScaleSet nodes: Azure has been working on it (create) for ")
    assert then.startswith(
        "interrupted; Pulumi's state has what it had begun: `fab up --stack dev` continues"
    )


def test_ctrl_c_that_pulumi_reads_during_its_preview_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Interrupted) as caught:
        pulumi(stack(tmp_path, CANCELLING, then="exit 1"), ["up", "--yes"])
    assert (caught.value.code, caught.value.has_begun) == (130, False)
    assert capfd.readouterr().err.endswith("\ninterrupted before anything was changed\n")


def test_after_ctrl_c_that_pulumi_reads_nothing_is_removed_for_a_program_that_arrives_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program goes on while Pulumi waits for it to end."""
    removed: list[str] = []
    arrive = f"touch $RANKLIFT_GATE/came; until cp $RANKLIFT_GATE/answer {tmp_path}; do sleep 0.05; done"
    with pytest.raises(Interrupted) as caught:
        pulumi(
            stack(tmp_path, CANCELLING, then=f"sleep 0.5; {{ {arrive}; }} 2>/dev/null; exit 1"),
            ["up", "--yes"],
            before=lambda: removed.append("a node"),
        )
    assert (caught.value.code, caught.value.has_begun, removed) == (130, False, [])
    assert (tmp_path / "answer").read_text() == "nothing was updated: interrupted"
    assert capfd.readouterr().err.endswith("\ninterrupted before anything was changed\n")


def test_ctrl_c_names_the_command_that_continues_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    then = f"sleep {STARTED_S}; kill -INT {os.getpid()}; sleep 1; exit 1"
    with pytest.raises(Interrupted):
        pulumi(stack(tmp_path, BEGUN, then=then), ["up", "--yes"], again="fab scale 5 --stack dev")
    last = capfd.readouterr().err.splitlines()[-1]
    had = "interrupted; Pulumi's state has what it had begun"
    assert last == f"{had}: `fab scale 5 --stack dev` continues from there"
