"""Run Pulumi: what matters of its output, a time limit, and failures classified by Azure's error codes.

It gets no terminal: it would read the keys that are meant for the next question or command line, and leave
lines of others without their beginning. What it would ask there, a passphrase, it refuses with the variable
that gives it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from invoke.exceptions import Exit

from infra.arm.pulumi_state import resource_name
from infra.arm.update_errors import Kind, Progress, Trouble, advice, kind_of, patience
from infra.gate import KEY, Gate
from launch.errors import RankliftError
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.pulumi.captured import Captured
from playbooks.pulumi.locks import LockNote, in_use_from
from playbooks.pulumi.update_lines import UpdateLines
from playbooks.pulumi_query import pulumi_program

__all__ = ["NEVER", "Interrupted", "TookTooLong", "UpdateFailed", "pulumi", "retry_while_busy"]

NEVER = float("inf")
REPORT_S = 60.0
"""Interval of reports on what an update still waits for."""
SHUTDOWN_S = 30.0
"""Limit of Pulumi's orderly shutdown after an interrupt."""
_POLL_S = 0.2
_FIRST_PAUSE_S = 2.0
_PAUSE_S = 30.0
"""Between two tries: the first pause, doubled up to this."""
REPLICATION_S = 300.0
"""How long Azure may take until a role or identity that it has made is known everywhere; the limit that
hashicorp/terraform-provider-azurerm pull request 1647 chose."""
_LOGGED = ("up", "destroy", "refresh")


_REASONS: Mapping[Kind, str] = {
    "throttled": "throttles",
    "replicating": "does not find yet what was just made",
    "again": "is still busy",
}
"""What Azure does while it is worth asking again."""


class UpdateFailed(RankliftError):
    """An update of Pulumi failed; ``troubles`` are the failures by resource."""

    def __init__(self, stack: Stack, troubles: Sequence[Trouble]) -> None:
        self.stack, self.troubles = stack.name, tuple(troubles)
        lines = [str(trouble) for trouble in troubles]
        hints = (advice(trouble, stack.update_command, stack.removal_command) for trouble in troubles)
        lines += dict.fromkeys(filter(None, hints))
        super().__init__(f"stack {stack.name}: " + "\n".join(lines))


class Interrupted(Exit):
    """Ctrl-C ended Pulumi; ``has_begun`` is whether the update had begun to change anything."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__(code=130)
        self.has_begun = has_begun


class TookTooLong(UpdateFailed):
    """Azure did not finish in time; ``under_way`` describes what it was doing."""

    def __init__(self, stack: Stack, limit: float, under_way: Sequence[str]) -> None:
        super().__init__(stack, ())
        doing = "; ".join(under_way) or "nothing that Pulumi reports"
        self.args = (
            f"stack {stack.name}: not done within {limit:.0f} s: {doing}\n"
            f"Azure may continue, and Pulumi's state has it: `{stack.update_command}` continues from there, "
            f"with a longer --timeout if it needs one; `{stack.removal_command}` removes it",
        )


def pulumi(
    stack: Stack,
    arguments: Sequence[str],
    *,
    limit: float | None = None,
    before: Callable[[], object] | None = None,
    again: str | None = None,
) -> None:
    """Run one Pulumi command, for ``limit`` seconds at most.

    Prints what it changes and all its diagnostics, or all of its output where the stack shows that; the
    stack's log gets all of it.

    Of ``up``, ``before`` is called once the update holds the lock, and before it changes anything; what that
    raises ends the update, and is raised here.

    Ctrl-C raises :class:`Interrupted` once Pulumi has ended, which gets it too and shuts down in order.
    Killing it would leave its lock, and resources missing in its state. The command that continues from
    there, where the update had begun, is printed: ``again``, or ``fab up``.

    Raises :class:`UpdateFailed` when something in Azure failed, and :class:`~playbooks.pulumi.locks.InUse`
    when another command has the stack; when Pulumi itself or the program failed, the command ends with
    Pulumi's exit status.
    """
    output.command(["pulumi", *arguments])
    is_logged = arguments[0] in _LOGGED
    shows = stack.shows_pulumi or not is_logged
    with stack.scratch() as folder, ExitStack() as open_until_the_end:
        log = folder / "events"
        logged = ["--event-log", str(log)] if is_logged else []
        # Pulumi has the option for its Automation API, and accepts it only with this variable.
        environment = {**stack.environment, "PULUMI_DEBUG_COMMANDS": "1"} if logged else stack.environment
        command = [pulumi_program(stack.environment), *arguments, *logged]
        gate = None if before is None else Gate(folder / "gate", before)
        if gate is not None:
            open_until_the_end.enter_context(gate.kept())
            environment = {**environment, KEY: str(gate.folder)}
        printed = open_until_the_end.enter_context(Captured(stack, arguments, shows=shows))
        with subprocess.Popen(
            command,
            cwd=stack.project,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=printed.out,
            stderr=printed.errors,
        ) as process:
            printed.close_ends()
            note = LockNote(stack, process.pid)
            watch = _Watch(log, limit, gate, note, shows=shows)
            exit_status = watch.wait(process)
        note.remove()
    if gate is not None and isinstance(gate.error, KeyboardInterrupt):
        watch.interrupted = True
    elif gate is not None and gate.error is not None:
        raise gate.error
    if watch.interrupted:
        has_begun = watch.progress.has_begun or (gate is not None and gate.has_worked)
        raise _interrupted(stack, watch.left, again, has_begun=has_begun)
    if exit_status != 0 and printed.refusal:
        raise in_use_from(stack.name, printed.refusal.decode("utf-8", "replace"), stack.pulumi_command)
    if exit_status != 0 or watch.is_stopping:
        if not (printed.has_printed or watch.has_printed_error):
            printed.print_all()
        output.progress(f"all that Pulumi printed is in {printed.path}")
    if watch.is_stopping and limit is not None:
        raise TookTooLong(stack, limit, watch.left)
    if exit_status != 0:
        if exit_status < 0:
            raise _killed(stack, signal.Signals(-exit_status), watch.under_way())
        failed = watch.progress.failed
        if not any(trouble.code or kind_of(trouble) != "other" for trouble in failed):
            raise Exit(code=exit_status)  # Pulumi has said why
        raise UpdateFailed(stack, failed)


def _interrupted(stack: Stack, left: Sequence[str], again: str | None, *, has_begun: bool) -> Interrupted:
    """Report what Azure may continue, and the command that continues; return the command's end."""
    for line in left:
        output.progress(f"{line}, and may continue")
    if has_begun:
        other = "" if again else f", `{stack.removal_command}` removes it"
        then = f"`{again or stack.update_command}` continues from there{other}"
        output.progress(f"interrupted; Pulumi's state has what it had begun: {then}")
    else:
        output.progress("interrupted before anything was changed")
    return Interrupted(has_begun=has_begun)


def _killed(stack: Stack, by: signal.Signals, under_way: Sequence[str]) -> Exit:
    """Report the signal that ended Pulumi, and what Azure may continue; return the command's end."""
    memory = "; this machine probably ran out of memory: free some first" if by == signal.SIGKILL else ""
    lines = [
        f"stack {stack.name}: pulumi was killed by {by.name}{memory}",
        *(f"{line}, and may continue" for line in under_way),
        f"`{stack.update_command}` repairs its state and continues, `{stack.removal_command}` removes all",
    ]
    output.error(RankliftError("\n".join(lines)))
    return Exit(code=128 + by)


def retry_while_busy(update: Callable[[], None], deadline: float) -> None:
    """Repeat ``update`` while it fails only because Azure is busy or throttles, until ``deadline``; for
    :data:`REPLICATION_S` while it does not find a role or identity that it has just made.

    Azure is busy for minutes after a teardown: the old resource of that name is still being deleted.
    """
    pause = _FIRST_PAUSE_S
    found_by: float | None = None
    before: UpdateFailed | None = None
    while True:
        try:
            update()
        except TookTooLong as error:
            if before is not None:
                error.args = (f"{error}\nthe previous try failed: {before}",)
            raise
        except UpdateFailed as error:
            before = error
            named = [trouble for trouble in error.troubles if trouble.code]
            kinds = {kind_of(trouble) for trouble in named}
            now = max([pause, *(patience(trouble) or 0 for trouble in named)])
            until = deadline
            if "replicating" in kinds:
                found_by = found_by or time.monotonic() + REPLICATION_S
                until = min(deadline, found_by)
            if not named or kinds - set(_REASONS) or time.monotonic() + now > until:
                raise
            reason = next(reason for kind, reason in _REASONS.items() if kind in kinds)
            output.progress(f"{named[0].resource}: Azure {reason} ({named[0].code}); retrying in {now:g} s")
            time.sleep(now)
            pause = min(2 * pause, _PAUSE_S)
        else:
            return


class _Watch:
    """Waits for one Pulumi, with its time limit and event log; prints what matters unless all is shown."""

    def __init__(
        self, log: Path, limit: float | None, gate: Gate | None, note: LockNote, *, shows: bool
    ) -> None:
        self._gate, self._note = gate, note
        self._lines = None if shows else UpdateLines()
        self._log, self._position, self._rest = log, 0, b""
        self._began = time.monotonic()
        self._deadline = NEVER if limit is None else self._began + limit
        self._report_at = self._began + REPORT_S
        self.progress = Progress()
        self.interrupted = self.is_stopping = False
        self.left: list[str] = []
        """What was under way when the time limit passed, or at Ctrl-C."""

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                try:
                    exit_status = process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    self._note.update()
                    self._read()
                    if self._gate is not None:
                        if self.progress.cancelled is not None:
                            self._refuse("interrupted")
                        self._gate.attend()
                    self._enforce_limit(process)
                    continue
            except KeyboardInterrupt:
                if not self.interrupted:
                    self._read()
                    self.left = self.under_way()
                self.interrupted = True
                self._refuse("interrupted")
                continue
            self._read(from_start=True)
            if self.progress.cancelled is not None and not (self.interrupted or self.is_stopping):
                # The signal came to Pulumi alone.
                self.interrupted, self.left = True, _under_way(self.progress.cancelled)
            return exit_status

    def _enforce_limit(self, process: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if now > self._report_at:
            self._report_at = now + REPORT_S
            for line in self.under_way():
                output.progress(line)
        if now > self._deadline:
            if not self.is_stopping:
                self.left = self.under_way()
            # The first interrupt asks Pulumi to shut down in order, the second to end at once.
            self._refuse("its time limit has passed")
            process.send_signal(signal.SIGINT)
            self.is_stopping, self._deadline = True, now + SHUTDOWN_S

    def _refuse(self, reason: str) -> None:
        # The program may reach the gate before it ends: nothing may be removed for it any more.
        if self._gate is not None:
            self._gate.refuse(reason)

    def under_way(self) -> list[str]:
        """Return what Azure works on, as far as Pulumi reports."""
        return _under_way(self.progress.under_way)

    def _read(self, *, from_start: bool = False) -> None:
        """Process new events of the log; with ``from_start`` all of them, for when Pulumi has ended."""
        try:
            with self._log.open("rb") as stream:
                # After its preview Pulumi truncates the file.
                if from_start or stream.seek(0, os.SEEK_END) < self._position:
                    self._position, self._rest, self.progress = 0, b"", Progress()
                stream.seek(self._position)
                data = stream.read()
        except OSError:
            return
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            with suppress(ValueError):
                events.append(json.loads(line))
        for event in events:
            self.progress.take(event)
        if self._lines is not None:
            for kind, text in self._lines.take(events):
                if kind == "error":
                    output.error(RankliftError(text))
                else:
                    output.progress(f"warning: {text}" if kind == "warning" else text)

    @property
    def has_printed_error(self) -> bool:
        """Whether an error among its events was printed."""
        return self._lines is not None and self._lines.has_error


def _under_way(operations: Mapping[str, tuple[str, float]]) -> list[str]:
    now = time.time()
    return [
        f"{resource_name(urn)}: Azure has been working on it ({op}) for {max(0.0, now - since):.0f} s"
        for urn, (op, since) in operations.items()
    ]
