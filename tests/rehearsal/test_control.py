"""Start, stop, a second start, a kill: one rehearsal a project, and nothing left of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from launch.errors import InputError, MissingTool
from rehearsal import control
from rehearsal.requirements import check
from rehearsal.run_dir import Folder, Record, start_time


def wait_for_end(record: Record) -> None:
    deadline = time.monotonic() + 10
    while record.alive and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_rehearsal_from_start_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(InputError, match=r"fab rehearsal\.start"):
        Folder(tmp_path).environment()
    assert control.stop(tmp_path) == control.Stopped(ran=False)
    started = control.start(tmp_path, nodes_limit=3)
    try:
        assert started.cleaned == ()
        with pytest.raises(InputError, match=rf"already runs in .*\(process {started.record.pid}\)"):
            control.start(tmp_path)
        found = control.status(tmp_path)
        assert (found.running, found.record, found.networks) == (True, started.record, {})
        variables = Folder(tmp_path).environment()
        assert variables["PULUMI_DEBUG_PROVIDERS"] == f"azure-native:{started.record.provider_port}"
        assert variables["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == "true"
        assert variables["PULUMI_BACKEND_URL"].startswith(f"file://{tmp_path}/.ranklift/rehearsal/backend-")
        monkeypatch.setenv("no_proxy", "corp.example")
        for name in ("no_proxy", "NO_PROXY"):
            assert Folder(tmp_path).environment()[name] == "corp.example,localhost,127.0.0.1"
        url = f"{variables['RANKLIFT_ARM_ENDPOINT']}/subscriptions/{started.record.subscription_id}"
        token = json.loads(Path(variables["RANKLIFT_ARM_TOKEN_FILE"]).read_text())["token"]
        request = urllib.request.Request(
            f"{url}?api-version=2024-01-01", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["state"] == "Enabled"
        with pytest.raises(InputError, match="--stack = 'rehearsal': has no nodes"):
            control.inject_vm_fault(tmp_path, "rehearsal", ["node000000"], "death")
    finally:
        report = control.stop(tmp_path)
    assert (report.ran, report.processes, report.ports) == (True, 1, 2)
    assert list((tmp_path / ".ranklift").iterdir()) == []


def test_a_shell_of_an_earlier_rehearsal_finds_no_backend_whatever_pulumi_does(tmp_path: Path) -> None:
    """Nor is anything sent to the earlier one's port, where anyone may listen by now."""
    (tmp_path / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
    control.start(tmp_path)
    left = Folder(tmp_path).environment()
    control.stop(tmp_path)
    with socket.create_server(
        ("127.0.0.1", int(left["PULUMI_DEBUG_PROVIDERS"].partition(":")[2]))
    ) as stranger:
        control.start(tmp_path)
        try:
            for command in (["destroy", "--yes"], ["refresh", "--yes"], ["up", "--yes"], ["stack", "ls"]):
                done = subprocess.run(
                    ["pulumi", *command, "--non-interactive"], cwd=tmp_path, env={**os.environ, **left},
                    capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                )  # fmt: skip
                assert done.returncode != 0
                shown = done.stdout + done.stderr
                assert re.search(r"backend-named-by-fab-rehearsal\.env-\w+: no such file or directory", shown)
            stranger.settimeout(0.1)
            with pytest.raises(TimeoutError):
                stranger.accept()
        finally:
            control.stop(tmp_path)


def test_no_other_user_can_hold_the_lock_of_a_project(tmp_path: Path) -> None:
    folder = tmp_path / ".ranklift"
    folder.mkdir(mode=0o755)
    lock = Folder(tmp_path).lock()
    assert lock is not None
    os.close(lock)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_leftovers_of_a_killed_rehearsal_are_found_and_cleaned(tmp_path: Path) -> None:
    record = control.start(tmp_path).record
    stacks = Folder(tmp_path).backend / ".pulumi" / "stacks" / "ranklift"
    stacks.mkdir(parents=True)
    resources = [{"type": "pulumi:pulumi:Stack"}, {"type": "azure-native:network:VirtualNetwork"}]
    (stacks / "rehearsal-2.json").write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    (tmp_path / ".ranklift" / "rehearsal-2").mkdir()
    (tmp_path / ".ranklift" / "production").mkdir()
    os.kill(record.pid, signal.SIGKILL)
    wait_for_end(record)
    left = (
        f"the record of process {record.pid}, which has ended",
        "Pulumi stack rehearsal-2 with 1 resources",
    )
    assert control.status(tmp_path) == control.Status(False, leftovers=left)
    started = control.start(tmp_path)
    try:
        assert started.cleaned == left
    finally:
        control.stop(tmp_path)
    assert [path.name for path in (tmp_path / ".ranklift").iterdir()] == ["production"]


@pytest.mark.parametrize("killed", [False, True], ids=["runs", "killed"])
def test_no_part_of_pulumi_outlives_the_rehearsal_that_it_works_on(tmp_path: Path, killed: bool) -> None:
    # As Pulumi's plugins are: a script that sh runs, and what that starts.
    plugin = tmp_path / "pulumi-resource-pulumi-python"
    plugin.write_text("#!/bin/sh\nsleep 600 & echo $!\nwait\n")
    plugin.chmod(0o755)
    record = control.start(tmp_path).record
    environment = {**os.environ, **Folder(tmp_path).environment()}
    pids: list[int] = []
    try:
        with (
            subprocess.Popen([plugin], env=environment, stdout=subprocess.PIPE, text=True) as process,
            subprocess.Popen(["sleep", "600"], env=environment) as operators_own,
        ):
            try:
                assert process.stdout is not None
                pids = [process.pid, int(process.stdout.readline())]
                if killed:
                    os.kill(record.pid, signal.SIGKILL)
                    wait_for_end(record)
                stopped = control.stop(tmp_path)
                assert [pid for pid in pids if start_time(pid)] == []
                assert operators_own.poll() is None, "not all that has these variables is Pulumi"
                if not killed:
                    assert stopped.processes == 1 + len(pids)
            finally:
                for pid in filter(start_time, [*pids, operators_own.pid]):
                    os.kill(pid, signal.SIGKILL)
    finally:
        control.stop(tmp_path)


def test_a_rehearsal_ends_when_its_project_is_removed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    record = control.start(project).record
    try:
        shutil.rmtree(project)
        wait_for_end(record)
        assert not record.alive
    finally:
        if record.alive:
            os.kill(record.pid, signal.SIGKILL)


def test_a_start_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--nodes-limit = -1"):
        control.start(tmp_path, nodes_limit=-1)
    with pytest.raises(InputError, match=r"--node-python = '.*/none': is not a virtual environment"):
        control.start(tmp_path, node_python=tmp_path / "none")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool, match="apt-get install"):
        control.start(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_user_namespaces_is_refused_with_the_switch(tmp_path: Path) -> None:
    switch = tmp_path / "proc/sys/user/max_user_namespaces"
    switch.parent.mkdir(parents=True)
    switch.write_text("0\n")
    with pytest.raises(InputError, match=r"max_user_namespaces = '0'.*sudo sysctl user.max_user_namespaces"):
        check(tmp_path)


def test_a_machine_without_tunnels_is_refused_with_the_device(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/dev/net/tun.: cannot be opened .* No such file.*modprobe tun"):
        check(tmp_path)
