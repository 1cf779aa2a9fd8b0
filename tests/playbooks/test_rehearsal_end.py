"""What `fab rehearsal.stop` reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoke.context import Context

from playbooks import rehearsal as tasks
from rehearsal import control
from rehearsal.control import Stopped

STOPPED = "rehearsal stopped; verified gone: "


@pytest.mark.parametrize(
    ("ended", "out", "err"),
    [
        (
            Stopped(True, processes=1, networks=0, ports=2),
            f"{STOPPED}1 process, 0 networks, 2 ports and its folder; no mounts left\n",
            "",
        ),
        (
            Stopped(True, processes=9, networks=1, ports=5, lost_stacks=("rehearsal (15 resources)",)),
            f"{STOPPED}9 processes, 1 network, 5 ports and its folder; no mounts left\n",
            "removed with the rehearsal: stack rehearsal (15 resources)\n",
        ),
        (
            Stopped(False, cleaned=("a mount",)),
            "no rehearsal runs here\n",
            "removed, left by a killed rehearsal: a mount\n",
        ),
    ],
)
def test_what_is_gone_was_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: Stopped,
    out: str,
    err: str,
) -> None:
    monkeypatch.setattr(tasks, "project_of", lambda _: tmp_path)
    monkeypatch.setattr(tasks, "remove_abandoned", lambda _: None)
    monkeypatch.setattr(control, "stop", lambda _: ended)
    tasks.stop(Context())
    assert capsys.readouterr() == (out, err)
