"""Pulumi is bounded in time, asked again while Azure is busy, and its failures are named by Azure's codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from infra.arm.update_errors import Trouble
from launch.errors import RetryError
from playbooks.project import Stack
from playbooks.pulumi import captured, run
from playbooks.pulumi.locks import InUse
from playbooks.pulumi.run import UpdateFailed, pulumi, retry_while_busy

URN = "urn:pulumi:dev::ranklift::a$azure-native:compute:VirtualMachineScaleSet::nodes"
METADATA = {"op": "create", "urn": URN, "type": "azure-native:compute:VirtualMachineScaleSet"}
BEGUN = {"timestamp": 0, "resourcePreEvent": {"metadata": METADATA}}


def failed(code: str, message: str = "Not now.") -> dict[str, object]:
    text = f'Code="{code}" Message="{message}"'
    return {"diagnosticEvent": {"urn": URN, "severity": "error", "message": text}}


def stack(folder: Path, *events: object, then: str) -> Stack:
    """Stack ``dev`` whose Pulumi logs these events, writes down that it was called, and does ``then``."""
    program = folder / "bin" / "pulumi"
    program.parent.mkdir()
    (folder / "events").write_text("".join(json.dumps(event) + "\n" for event in events))
    program.write_text(
        "#!/bin/bash\n"
        f'echo "$1" >> {folder}/calls\n'
        f'while [ $# -gt 1 ]; do if [ "$1" = --event-log ]; then cp {folder}/events "$2"; fi; shift; done\n'
        f"{then}\n"
    )
    program.chmod(0o755)
    return Stack("dev", folder, {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


def test_a_failure_in_azure_carries_code_words_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(UpdateFailed) as caught:
        pulumi(stack(tmp_path, BEGUN, failed("ExpiredAuthenticationToken"), then="exit 1"), ["up", "--yes"])
    assert caught.value.troubles == (
        Trouble("VirtualMachineScaleSet nodes", "ExpiredAuthenticationToken", "Not now."),
    )
    assert str(caught.value) == (
        "stack dev: VirtualMachineScaleSet nodes: ExpiredAuthenticationToken: Not now.\n"
        "the sign-in has expired: run `az login`, then repeat the command; it continues from there"
    )


def test_its_log_lies_in_the_project_where_a_killed_commands_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    pulumi(stack(tmp_path, then="exit 0"), ["up", "--yes"])
    assert [path.name for path in (tmp_path / ".ranklift").iterdir()] == ["dev"]


def test_what_pulumi_itself_says_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refusal = {
        "diagnosticEvent": {"urn": "", "severity": "error", "message": "ValueError: the program failed"}
    }
    with pytest.raises(Exit) as caught:
        pulumi(stack(tmp_path, refusal, then="exit 7"), ["up", "--yes"])
    assert caught.value.code == 7
    assert capfd.readouterr().err == (
        "$ pulumi up --yes\nerror: ValueError: the program failed\n"
        f"all that Pulumi printed is in {tmp_path}/.ranklift/dev/pulumi.log\n"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9, "pulumi was killed by SIGKILL; this machine probably ran out of memory: free some first\n"),
        (15, "pulumi was killed by SIGTERM\n"),
    ],
)
def test_a_pulumi_that_a_signal_ended_is_named_with_what_azure_may_continue(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int, words: str
) -> None:
    with pytest.raises(Exit) as caught:
        pulumi(stack(tmp_path, BEGUN, then=f"kill -{number} $$"), ["up", "--yes"])
    assert caught.value.code == 128 + number
    _, first, second, third = capfd.readouterr().err.partition("\n")[2].splitlines(keepends=True)
    assert first == f"error: stack dev: {words}"
    assert second.startswith("VirtualMachineScaleSet nodes: Azure has been working on it (create) for ")
    assert second.endswith(" s, and may continue\n")
    assert (
        third == "`fab up --stack dev` repairs its state and continues, `fab down --stack dev` removes all\n"
    )


LOCKED = (
    "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or "
    "delete the lock file with `pulumi cancel`.\n"
    "  file:///be/.pulumi/locks/organization/ranklift/dev/1.json: created by ann@{host} (pid {process}) at "
    "2126-11-22T00:30:00Z\n"
)


def refused(folder: Path, text: str, before: str = "") -> Stack:
    (folder / "said").write_text(text)
    return stack(folder, then=f"printf '{before}' >&2; cat {folder}/said >&2; exit 255")


def test_a_stack_that_another_command_has_is_told_without_pulumis_advice_to_cancel(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InUse) as caught:
        pulumi(
            refused(tmp_path, LOCKED.format(host=socket.gethostname(), process=os.getpid())), ["up", "--yes"]
        )
    assert str(caught.value) == (
        f"stack dev: another command is using it (process {os.getpid()} of ann on {socket.gethostname()}, "
        "since 2126-11-22 00:30:00 UTC): wait until it has ended, then repeat this one"
    )
    assert capfd.readouterr().err == "$ pulumi up --yes\n"


def test_of_another_machine_it_is_said_when_a_lock_may_be_taken_away(tmp_path: Path) -> None:
    with pytest.raises(InUse, match="only if elsewhere was switched off meanwhile: `pulumi cancel"):
        pulumi(refused(tmp_path, LOCKED.format(host="elsewhere", process=77)), ["destroy", "--yes"])


def test_pulumis_own_service_names_nobody(tmp_path: Path) -> None:
    refusal = "error: [409] Conflict: Another update is currently in progress.\nTo learn more, visit …\n"
    with pytest.raises(InUse, match=r"is using it \(Pulumi does not name its holder\): wait until it"):
        pulumi(refused(tmp_path, refusal), ["up", "--yes"])


def test_of_two_commands_that_make_a_stack_the_slower_is_refused_like_any_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refusal = "error: stack 'organization/ranklift/dev' already exists\n"
    with pytest.raises(InUse, match="stack dev: another command is using it"):
        pulumi(refused(tmp_path, refusal), ["stack", "init", "dev"])
    assert capfd.readouterr().err == "$ pulumi stack init dev\n"


def test_what_else_pulumi_says_is_passed_on_as_it_comes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = refused(tmp_path, "error: passphrase must be set with …\n", before="warning: old\\n")
    with pytest.raises(Exit):
        pulumi(made, ["up", "--yes"])
    assert capfd.readouterr().err.startswith("$ pulumi up --yes\nwarning: old\nerror: passphrase must be set")


def test_what_pulumi_has_started_and_left_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "_REST_S", 0.5)
    began = time.monotonic()
    pulumi(stack(tmp_path, then=f"sleep 20 & echo $! > {tmp_path}/left"), ["up", "--yes"])
    os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    assert time.monotonic() - began < 10


def test_an_operation_that_never_ends_is_left_in_good_order_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REPORT_S", 0.5)
    then = f"trap 'touch {tmp_path}/ended; exit 1' INT; while :; do sleep 0.1; done"
    began = time.monotonic()
    with pytest.raises(UpdateFailed) as caught:
        pulumi(stack(tmp_path, BEGUN, then=then), ["up", "--yes"], limit=2.0)
    assert time.monotonic() - began < 20
    assert (tmp_path / "ended").exists(), "it was not asked to end"
    assert (
        "dev: not done within 2 s: VirtualMachineScaleSet nodes: Azure has been working on it (create) for "
        in str(caught.value)
    )
    assert "`fab up --stack dev` continues from there" in str(caught.value)
    assert "VirtualMachineScaleSet nodes: Azure has been working on it" in capsys.readouterr().err


def test_one_that_does_not_end_when_told_to_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SHUTDOWN_S", 0.5)
    then = "n=0; trap 'n=$((n+1)); [ $n = 2 ] && exit 1' INT; while :; do sleep 0.1; done"
    with pytest.raises(UpdateFailed, match="not done within"):
        pulumi(stack(tmp_path, then=then), ["up", "--yes"], limit=0.5)


def test_while_azure_is_busy_the_same_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.1)
    then = f"[ $(wc -l < {tmp_path}/calls) = 3 ]"
    busy = stack(tmp_path, failed("ResourceGroupBeingDeleted"), then=then)
    retry_while_busy(lambda: pulumi(busy, ["up", "--yes"]), time.monotonic() + 30)
    assert calls(tmp_path) == 3
    assert "Azure is still busy (ResourceGroupBeingDeleted); retrying in 0.1 s" in capsys.readouterr().err


def test_throttling_is_called_so_and_waited_for_as_long_as_azure_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.1)
    refusal = failed("SubscriptionRequestsThrottled", "Please try again after '1' seconds.")
    throttled = stack(tmp_path, refusal, then=f"[ $(wc -l < {tmp_path}/calls) = 2 ]")
    retry_while_busy(lambda: pulumi(throttled, ["up", "--yes"]), time.monotonic() + 30)
    assert "Azure throttles (SubscriptionRequestsThrottled); retrying in 1 s" in capsys.readouterr().err


def test_throttling_for_longer_than_there_is_time_is_told_with_its_pause(tmp_path: Path) -> None:
    refusal = failed("SubscriptionRequestsThrottled", "Please try again after '90' seconds.")
    throttled = stack(tmp_path, refusal, then="exit 1")
    with pytest.raises(UpdateFailed, match=r"Azure throttles: .*; wait 90 s, .*: nothing is lost"):
        retry_while_busy(lambda: pulumi(throttled, ["up", "--yes"]), time.monotonic() + 30)
    assert calls(tmp_path) == 1


def test_when_time_is_over_the_reason_of_the_try_before_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.1)
    then = f"[ $(wc -l < {tmp_path}/calls) = 1 ] && exit 1; trap 'exit 1' INT; while :; do sleep 0.1; done"
    throttled = stack(tmp_path, failed("SubscriptionRequestsThrottled"), then=then)
    with pytest.raises(
        UpdateFailed, match=r"not done within 1 s: .*\n.*\nthe previous try failed: .*Throttled"
    ):
        retry_while_busy(lambda: pulumi(throttled, ["up", "--yes"], limit=1.0), time.monotonic() + 30)
    assert calls(tmp_path) == 2


def test_a_new_role_that_azure_does_not_find_yet_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.1)
    codes = map(failed, ("RoleDefinitionDoesNotExist", "PrincipalNotFound", "Conflict"))
    early = stack(tmp_path, *codes, then=f"[ $(wc -l < {tmp_path}/calls) = 3 ]")
    retry_while_busy(lambda: pulumi(early, ["up", "--yes"]), time.monotonic() + 30)
    assert calls(tmp_path) == 3
    shown = "Azure does not find yet what was just made (RoleDefinitionDoesNotExist); retrying in 0.1 s"
    assert shown in capsys.readouterr().err


def test_a_role_that_azure_never_finds_is_not_waited_for_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.1)
    monkeypatch.setattr(run, "REPLICATION_S", 0.5)
    lost = stack(tmp_path, failed("RoleDefinitionDoesNotExist"), then="exit 1")
    began = time.monotonic()
    with pytest.raises(UpdateFailed, match=r"RoleDefinitionDoesNotExist: Not now\.\n.*repeat the command"):
        retry_while_busy(lambda: pulumi(lost, ["up", "--yes"]), began + 600)
    assert 2 <= calls(tmp_path) <= 4
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("codes", "seconds"),
    [(["AuthorizationFailed"], 30), (["Conflict", "QuotaExceeded"], 30), (["Conflict"], 0)],
)
def test_anything_else_and_time_that_is_over_ends_it(
    tmp_path: Path, codes: list[str], seconds: float
) -> None:
    refused = stack(tmp_path, *map(failed, codes), then="exit 1")
    with pytest.raises(UpdateFailed, match=codes[0]):
        retry_while_busy(lambda: pulumi(refused, ["up", "--yes"]), time.monotonic() + seconds)
    assert calls(tmp_path) == 1


def test_events_are_asked_of_updates_alone(tmp_path: Path) -> None:
    """Other commands of Pulumi do not know the option."""
    pulumi(stack(tmp_path, then='[ "$1" != --event-log ]'), ["stack", "init", "dev"])


PROGRAM = f"{sys.executable} -c 'import os; from infra.gate import pass_gate; pass_gate(os.environ)'"
"""What waits there in the program's place."""


def test_what_goes_before_an_update_is_done_while_pulumi_has_the_stack(tmp_path: Path) -> None:
    then = f"touch {tmp_path}/locked; sleep 0.5; {PROGRAM} && touch {tmp_path}/updated"
    seen: list[bool] = []

    def before() -> None:
        seen.append((tmp_path / "locked").exists() and not (tmp_path / "updated").exists())

    pulumi(stack(tmp_path, then=then), ["up", "--yes"], before=before)
    assert seen == [True]
    assert (tmp_path / "updated").exists()


def test_where_that_fails_nothing_is_updated_and_it_says_why(tmp_path: Path) -> None:
    def before() -> None:
        raise RetryError("node000003: it has train-1")

    with pytest.raises(RetryError, match="node000003: it has train-1"):
        pulumi(stack(tmp_path, then=f"{PROGRAM} && touch {tmp_path}/updated"), ["up"], before=before)
    assert not (tmp_path / "updated").exists()


LATE = f"trap '' INT; touch locked; sleep 1.5; {PROGRAM} && touch updated"
"""A Pulumi whose program comes to the gate only after it was asked to end."""


def test_after_ctrl_c_nothing_is_done_for_a_program_that_comes_late(tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "locked").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    made = stack(tmp_path, then=LATE)
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(Exit) as caught:
        pulumi(made, ["up"], before=lambda: pytest.fail("nodes were removed"))
    interrupting.join()
    assert caught.value.code == 130
    assert not (tmp_path / "updated").exists()


def test_when_its_time_is_over_nothing_is_done_for_a_program_that_comes_late(tmp_path: Path) -> None:
    with pytest.raises(UpdateFailed, match="not done within 0 s"):
        pulumi(
            stack(tmp_path, then=LATE), ["up"], limit=0.2, before=lambda: pytest.fail("nodes were removed")
        )
    assert not (tmp_path / "updated").exists()


def test_a_stack_that_another_command_has_is_left_with_all_its_nodes(tmp_path: Path) -> None:
    held = refused(tmp_path, LOCKED.format(host=socket.gethostname(), process=os.getpid()))
    with pytest.raises(InUse):
        pulumi(held, ["up", "--yes"], before=lambda: pytest.fail("nodes were removed"))


def test_a_log_that_begins_again_after_the_preview_is_read_to_its_end(tmp_path: Path) -> None:
    again = f"sleep 0.5; cp {tmp_path}/events $log; exit 1"
    made = stack(tmp_path, failed("InUseSubnetCannotBeDeleted"), then=again)
    program = tmp_path / "bin" / "pulumi"
    preview = f'log="$2"; yes \'{json.dumps(BEGUN)}\' | head -n 9 > "$2"'
    program.write_text(program.read_text().replace(f'cp {tmp_path}/events "$2"', preview))
    with pytest.raises(UpdateFailed, match="InUseSubnetCannotBeDeleted"):
        pulumi(made, ["destroy", "--yes"])
