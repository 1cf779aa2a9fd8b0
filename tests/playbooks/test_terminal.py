"""No command shows a terminal anything that it would obey, whoever on a node chose the text."""

from __future__ import annotations

import ast
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.azureml import notices
from launch.client.events import Failure, JobState, LogLine, StateChange
from launch.client.query import Happening, JobReport, RankEnd
from launch.errors import JobFailed, ManyNodesError, NodeUnreachable
from launch.host import Completed
from launch.results.download import CollectReport, NodeFiles
from playbooks.cli import output
from playbooks.cli.task import command
from playbooks.jobs import collect
from playbooks.jobs.printer import EventPrinter, end_as
from playbooks.jobs.tables import job_rows, job_text
from playbooks.nodes import exec
from tests.launch.test_printable import Terminal, commands_in
from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import FAB, ROOT, write_project

ATTACK = "\x1b\t[2J\x1b[>4;2m\x1b[?4m\x9b6n\x1b]0;t\x07\x7f\u202e\x1b[31mevil"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAILED = JobState(
    job=f"train-{ATTACK}",
    name=ATTACK,
    kind="pytorch",
    state="FAILED",
    reason=f"rank 0 {ATTACK}",
    exit_status=3,
    nodes=("node000000",),
    ranks=1,
    port=6105,
    created=NOON,
    started=NOON,
    ended=NOON,
    failure=Failure(0, "node000000", 3, (f"last {ATTACK}",)),
)
REPORT = JobReport(
    state=FAILED,
    command=("train.py", ATTACK),
    code="48aa0fc66d8e2bb9",
    timeout_s=None,
    grace_s=3.0,
    max_restarts=0,
    ranks={"node000000": (0,)},
    ends=(RankEnd(0, "node000000", 3, None, False, 0, NOON),),
    folder="job",
    events=(Happening(NOON, "state", {"state": "FAILED", "reason": ATTACK}),),
)


def line(stream: str = "stdout") -> LogLine:
    return LogLine(NOON, 0, "node000000", stream, ATTACK.encode(), False)  # type: ignore[arg-type]


def shown(*, merge: bool = False) -> None:
    show = EventPrinter(merge=merge)
    for event in (line(), line("stderr"), line("notice"), StateChange(replace(FAILED, state="RUNNING"))):
        show(event)
    show.finish()


def failing() -> None:
    @command("x", example="fab x")
    def task(context: Context) -> None:
        raise ManyNodesError("looking", {"node000000": NodeUnreachable("node000000", ATTACK)})

    with pytest.raises(Exit):
        task.body(Context())


def ended() -> None:
    with pytest.raises(JobFailed) as caught:
        end_as(FAILED)
    output.error(caught.value)


def collected() -> None:
    files = NodeFiles(1, 0, 1, renamed={ATTACK: ATTACK}, vanished=(ATTACK,), left_out={ATTACK: ATTACK})
    report = CollectReport(Path("results") / ATTACK, {"node000000": files})
    output.result(collect.format_report(report))
    for remark in [*collect.remarks(report), *collect._missing(report)]:
        output.progress(remark)


def executed(monkeypatch: pytest.MonkeyPatch, status: int, *, json: bool) -> None:
    inventory = Inventory(
        "dev", "size", "place", "me", (Node("node000000", 0, "10.0.0.4", "127.0.0.1", 1, 8, "running"),)
    )

    class Saved:
        def saved(self) -> Inventory:
            return inventory

    result = Completed(status, ATTACK.encode(), f"\xff{ATTACK}".encode("latin-1", "ignore") + b"\x9b2J")
    monkeypatch.setattr(exec, "open_from", lambda *_: Saved())
    monkeypatch.setattr(exec, "run_on", lambda *_: {"node000000": result})
    try:
        exec.execute(Context(), ATTACK, json=json)
    except Exit as error:
        assert error.code == status


def noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_written", set())  # a process writes each notice once
    notices.report([ATTACK])


PATHS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "logs": lambda _: shown(),
    "logs --merge": lambda _: shown(merge=True),
    "jobs": lambda _: output.table(*job_rows([FAILED])),
    "jobs --json": lambda _: output.as_json([FAILED]),
    "job": lambda _: output.result(job_text(REPORT)),
    "job --json": lambda _: output.as_json(REPORT),
    "the end of a job": lambda _: ended(),
    "an error of many nodes": lambda _: failing(),
    "collect": lambda _: collected(),
    "collect --json": lambda _: output.as_json(CollectReport(Path(ATTACK), {})),
    "status": lambda _: output.table(("name", "ssh"), [("node000000", f"no: {ATTACK}\nmore {ATTACK}")]),
    "exec": lambda patch: executed(patch, 0, json=False),
    "exec that fails": lambda patch: executed(patch, 3, json=False),
    "exec --json": lambda patch: executed(patch, 0, json=True),
    "a dry run": lambda _: output.command(["ssh", ATTACK]),
    "azureml, a line": lambda _: notices.write_line(ATTACK, sys.stdout),
    "azureml, a note": lambda _: notices.write_line(ATTACK, sys.stderr),
    "azureml, a notice": noticed,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_no_command_passes_orders_on(path: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "400")
    out, err = (Terminal(), Terminal()) if is_terminal else (io.StringIO(), io.StringIO())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    PATHS[path](monkeypatch)
    printed = out.getvalue() + err.getvalue()
    assert "evil" in printed
    if is_terminal:
        assert commands_in(printed) == []
    else:
        assert not {"\x1b", "\x9b"} & set(printed)


def test_a_cell_holds_the_colours_of_its_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    output.table(("job", "state"), [("\x1b[31ma\x1b[8m", "[red]b[/red] [link=http://x]c[/link]")])
    assert "\x1b[31m" not in out.getvalue()
    assert "\x1b[8m" not in out.getvalue()
    assert "[red]b[/red] [link=http://x]c[/link]" in out.getvalue()


def test_nothing_is_written_around_the_one_place_that_makes_it_safe() -> None:
    allowed = {
        "playbooks/cli/output.py",
        "playbooks/pulumi/captured.py",  # the operator's own Pulumi speaks there
    }
    found = set()
    for path in [*(ROOT / "playbooks").rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("write", "writelines", "buffer", "print"):
                text = ast.unparse(node)
                if text.startswith(("sys.stdout", "sys.stderr")):
                    found.add(str(path.relative_to(ROOT)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                found.add(str(path.relative_to(ROOT)))
    assert found <= allowed


def test_a_terminal_that_runs_fab_exec_is_not_commanded(tmp_path: Path) -> None:
    write_project(tmp_path, "dev", fabfile=True)
    script = r"printf 'ok \033[31mred\033[0m \033\t[2J\033[6n\233[2J\302\2332J\033]0;t\007evil\n'"
    with SshServer(tmp_path / "sshd") as server:
        save_stack(tmp_path / ".ranklift" / "dev", {0: server.port}, server.host_key, server.user_key)
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [FAB, "exec", f"{script}; {script} >&2"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as running:
            os.close(theirs)
            printed = b""
            try:
                while data := os.read(ours, 65536):
                    printed += data
            except OSError:
                pass  # the other end is closed
            os.close(ours)
        assert running.returncode == 0
    text = printed.decode().replace("\r\n", "\n")
    assert text.count("evil") == 2
    assert text.count("\x1b[31mred\x1b[0m") == 2
    assert commands_in(text) == []
