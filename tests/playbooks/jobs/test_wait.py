"""Waiting for jobs, when the user has waited enough."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.client import submit
from playbooks.jobs import wait
from playbooks.jobs.location import Place
from playbooks.project import Stack

FIRST, SECOND = "train-20260301-090507-0f3a", "digits-20260301-110001-b1c2"
NODE = Node("node000000", 0, "", "", 1, 8, "running")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Those of signals stay changed after a signal, at which a command ends."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_ctrl_c_ends_the_waiting_and_reports_that_the_jobs_do_not_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "saved", lambda _: Inventory("dev", "size", "place", "me", (NODE,)))
    monkeypatch.setattr(wait, "find_job", lambda *_: Place(NODE, "abc"))
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: MagicMock())
    monkeypatch.setattr(submit, "wait_for_end", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Exit) as caught:
        wait.wait_for_jobs(Stack("dev", tmp_path, {}), [FIRST, SECOND], None, json=False)
    assert caught.value.code == 130
    assert capsys.readouterr().err == f"\nstopped waiting; jobs are not affected: {FIRST}, {SECOND}\n"
