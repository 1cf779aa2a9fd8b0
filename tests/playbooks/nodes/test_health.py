"""A node is ready for jobs when it answers, its cloud-init succeeded and its clock is right."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

import images
from infra.inventory import Inventory, Node
from launch.errors import ManyNodesError, NodeUnreachable
from launch.remote.base.health_records import Look
from playbooks.nodes import health, vm_ops
from playbooks.nodes.health import OWN_MODULES, Health, clocks_off, fate_of, remarks, unfit, wait_for_nodes
from playbooks.project import Stack
from tests.launch.remote.health.some_findings import DOWN, ECC, HOT, looked

DRAIN = "drained 2026-03-01T09:05:07Z by ann on desk"
FAILED = {"v1": {"datasource": "DataSourceAzure", "errors": ["('scripts_user', RuntimeError('1 failed'))"]}}

HARMLESS = {"v1": {"datasource": "DataSourceAzure", "errors": ["('ssh-import-id', OSError('no network'))"]}}
MODULES = {
    "ssh_deletekeys": "ssh",
    "ssh_keys": "ssh",
    "mounts": "mounts",
    "package_update": "package_update_upgrade_install",
    "packages": "package_update_upgrade_install",
    "write_files": "write_files",
    "runcmd": "runcmd",
    "power_state": "power_state_change",
    "users": "users_groups",
}
"""The module of cloud-init that reads each key."""


def test_no_module_that_the_nodes_document_uses_is_harmless() -> None:
    text = Path(images.__file__).with_name("cloud_config.yaml.j2").read_text()
    keys = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    assert keys == set(MODULES)
    assert {MODULES[key] for key in keys} <= OWN_MODULES


@pytest.mark.parametrize("error", ["Failed at merging in cloud config part", "('write-files', OSError())"])
def test_what_may_be_about_the_nodes_document_is_not_harmless(error: str) -> None:
    answer = f"1\n\n{json.dumps({'v1': {'errors': [error]}})}\n--\nend\n"
    assert Health.read(answer, 1.0, 1.0).failed == (error,)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("100.5\n", Health(0.0, 0.5)),
        ("97.5\n\nrunning\n", Health(-3.0, 0.5, setting_up=True)),
        (f"97.5\n{DRAIN}\nrunning\n", Health(-3.0, 0.5, setting_up=True, drain=DRAIN)),
        (f"100.5\n{DRAIN}\n", Health(0.0, 0.5, drain=DRAIN)),
        ('100.5\n\n{"v1": {"errors": []}}\n--\nCloud-init finished\n', Health(0.0, 0.5)),
        (
            f"100.5\n\n{json.dumps(FAILED, indent=1)}\n--\nE: no such package\nexit 100\n",
            Health(
                0.0,
                0.5,
                failed=("('scripts_user', RuntimeError('1 failed'))",),
                last_lines=("E: no such package", "exit 100"),
            ),
        ),
        (
            f"100.5\n\n{json.dumps(HARMLESS)}\n--\nCloud-init finished\n",
            Health(0.0, 0.5, harmless=("('ssh-import-id', OSError('no network'))",)),
        ),
        ("100.5\n\n{cut off\n--\n", Health(0.0, 0.5)),
        ("date: not found\n", Health()),
        ("", Health()),
    ],
)
def test_a_sign_is_read_from_what_a_node_says(text: str, sign: Health) -> None:
    assert Health.read(text, 100.0, 101.0) == sign


def test_the_reason_is_among_the_last_lines_whatever_cloud_init_says_after_it(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(FAILED))
    shown = [
        "Setting up",
        "this image is too old",
        "cc_scripts_user.py[WARNING]: Failed to run module scripts_user",
    ]
    shown += [
        "util.py[WARNING]: Running module scripts_user failed",
        *["ci-info: | Keytype | Fingerprint |"] * 9,
    ]
    (tmp_path / "cloud-init-output.log").write_text("\n".join([*shown, "Cloud-init v. 24.1 finished"]) + "\n")
    line = re.sub("/run/cloud-init/|/var/log/", f"{tmp_path}/", health._QUERY)
    printed = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    lines = Health.read(printed, 0.0, 0.0).last_lines
    assert "this image is too old" in lines
    assert lines[-1] == "Cloud-init v. 24.1 finished"


@pytest.mark.parametrize(
    ("clocks", "off"),
    [
        ([0.0, 4.9], {}),
        ([0.0, 5.1], {"n1": 5.1}),
        ([0.0, -5.1], {"n1": -5.1}),
        ([0.0, 0.0, 37.0], {"n2": 37.0}),
        ([100.0, 100.0, 100.1], {}),  # then it is this machine's
        ([100.0, 100.0], {"n0": 100.0, "n1": 100.0}),
        ([], {}),
    ],
)
def test_clocks_that_differ_by_more_than_five_seconds_are_off(
    clocks: list[float], off: dict[str, float]
) -> None:
    assert clocks_off({f"n{number}": Health(clock) for number, clock in enumerate(clocks)}) == off


def test_a_question_that_took_long_proves_nothing() -> None:
    assert clocks_off({"n0": Health(), "n1": Health(clock=8.0, blur=4.0)}) == {}


def test_what_is_wrong_is_said_with_what_to_do() -> None:
    answers: dict[str, Health | Exception] = {
        "node000000": Health(),
        "node000001": Health(failed=("boom",), last_lines=("E: disk full",)),
        "node000002": Health(clock=-60.0),
        "node000003": NodeUnreachable("node000003", "no route"),
        "node000004": Health(),
    }
    found = unfit(answers, {name: number for number, name in enumerate(answers)})
    assert {name: str(error) for name, error in found.items()} == {
        "node000001": "node000001: cloud-init failed; its errors and the last lines of its output:\n"
        "  boom\n  E: disk full\ncorrect the cause, then `fab replace 1 --reimage`",
        "node000002": "node000002: its clock is 60 s behind: certificates and the rendezvous of ranks fail; "
        '`fab exec "sudo chronyc makestep" --nodes 2` sets it, or replace the node',
    }


def test_errors_that_do_not_matter_are_shown_once_and_make_no_node_unfit() -> None:
    answers: dict[str, Health | Exception] = {f"node{n:06}": Health(harmless=("boom",)) for n in range(3)}
    assert unfit(answers, dict.fromkeys(answers, 0)) == {}
    assert remarks(answers) == [
        "node[000000-000002]: cloud-init reports an error that jobs do not depend on: boom"
    ]


class Cluster:
    """Three nodes: 0 answers, 1 says ``answer``, 2 does not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Health | Exception) -> None:
        self.stack = Stack("dev", folder, {})
        self.answers: dict[str, Health | Exception] = {
            "n0": Health(),
            "n1": answer,
            "n2": NodeUnreachable("n2", "no answer"),
        }
        states = ("running", "running", "stopped")
        nodes = tuple(Node(f"n{i}", i, "", "", 0, 8, state) for i, state in enumerate(states))
        inventory = Inventory("dev", "size", "place", "me", nodes)
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock(node_count=3, dns_servers=()))
        monkeypatch.setattr(vm_ops, "refresh", lambda *_: inventory)
        monkeypatch.setattr(health, "probe", lambda *_: self.answers)
        monkeypatch.setattr(health, "PAUSE_S", 0.01)
        monkeypatch.setattr(health, "LOOK_AGAIN_S", 0.01)
        monkeypatch.setattr(health, "look", self.look)
        self.looks: list[dict[str, Look | Exception]] = []
        """What looks find, one after the other; then, nothing."""

    def look(self, _: object, __: object, nodes: Sequence[Node]) -> dict[str, Look | Exception]:
        found = self.looks.pop(0) if self.looks else {}
        return {node.name: found.get(node.name, looked()) for node in nodes}


class TestWaiting:
    def test_silent_nodes_are_named_while_they_are_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(health, "NAME_S", 0.05)
        cluster = Cluster(monkeypatch, tmp_path, NodeUnreachable("n1", "no answer"))
        with pytest.raises(ManyNodesError) as caught:
            wait_for_nodes(cluster.stack, 0.5)
        assert capsys.readouterr().err == (
            "1 of 3 nodes answer\n"
            "waiting for n1: no answer\n"
            "waiting for n2: Azure reports it as stopped\n"
            "if this persists: `fab replace 1 --stack dev` replaces such a node (--reimage: on the same "
            "machine); the others keep working\n"
        )
        assert str(caught.value) == (
            "waiting failed on 2 of 3 nodes\nn1: no answer\nn2: Azure reports it as stopped\n"
            "`fab replace 1 --stack dev` replaces such a node (--reimage: on the same machine); the others "
            "keep working\n`fab wait --stack dev` continues to wait"
        )

    def test_a_node_that_is_off_is_not_waited_for_once_the_others_answer(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(health, "NAME_S", 0.05)
        cluster = Cluster(monkeypatch, tmp_path, Health())
        began = time.monotonic()
        with pytest.raises(ManyNodesError) as caught:
            wait_for_nodes(cluster.stack, 100.0)
        assert time.monotonic() - began < 50
        assert str(caught.value) == (
            "waiting failed on 1 of 3 nodes\nn2: Azure reports it as stopped\n"
            "`fab replace 2 --stack dev` replaces it (--reimage: on the same machine); the others "
            "keep working"
        )

    def test_and_again_from_time_to_time(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(health, "NAME_S", 0.05)
        monkeypatch.setattr(health, "AGAIN_S", 0.1)
        cluster = Cluster(monkeypatch, tmp_path, Health(setting_up=True))
        with pytest.raises(ManyNodesError):
            wait_for_nodes(cluster.stack, 1.0)
        assert capsys.readouterr().err.count("waiting for n1: its cloud-init still runs\n") > 2

    def test_nodes_that_answer_at_once_are_named_nowhere(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster = Cluster(monkeypatch, tmp_path, Health())
        cluster.answers["n2"] = Health()
        assert len(wait_for_nodes(cluster.stack, 0.5).nodes) == 3
        assert capsys.readouterr().err == "3 of 3 nodes answer\n"


class TestWaitingForDevices:
    @pytest.fixture
    def cluster(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
        """Three nodes that answer."""
        made = Cluster(monkeypatch, tmp_path, Health())
        made.answers["n2"] = Health()
        return made

    def test_a_link_that_comes_up_later_is_waited_for(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.looks = [{"n1": looked(DOWN)}, {}]
        wait_for_nodes(cluster.stack, 5.0)
        assert capsys.readouterr().err == (
            "3 of 3 nodes answer\n"
            "waiting for n1: n1: mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE (healthagent); `fab replace 1`\n"
        )

    def test_one_that_stays_down_is_named_with_the_remedy(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(health, "LINKS_S", 0.1)
        cluster.looks = [{"n1": looked(DOWN)}] * 1000
        with pytest.raises(ManyNodesError) as caught:
            wait_for_nodes(cluster.stack, 5.0)
        down = "n1: mlx5_ib0:1: 1: DOWN; expected: 4: ACTIVE (healthagent); `fab replace 1`"
        assert str(caught.value) == f"the look at the devices failed on 1 of 3 nodes\n{down}"

    def test_an_error_that_does_not_pass_is_not_waited_for(self, cluster: Cluster) -> None:
        cluster.looks = [{"n1": looked(ECC)}, {}]
        with pytest.raises(ManyNodesError, match="failed on 1 of 3 nodes"):
            wait_for_nodes(cluster.stack, 5.0)

    def test_a_replacement_does_not_fail_for_another_sick_node(self, cluster: Cluster) -> None:
        """It may be the next one to be replaced."""
        cluster.looks = [{"n0": looked(ECC), "n2": looked(ECC)}]
        assert len(wait_for_nodes(cluster.stack, 5.0, kept={"n0", "n2"}).nodes) == 3
        cluster.looks = [{"n1": looked(ECC)}]
        with pytest.raises(ManyNodesError, match="failed on 1 of 1 nodes"):
            wait_for_nodes(cluster.stack, 5.0, kept={"n0", "n2"})

    def test_warnings_are_shown_and_the_nodes_are_ready(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.looks = [{"n0": looked(HOT), "n1": looked(HOT)}]
        wait_for_nodes(cluster.stack, 5.0)
        shown = capsys.readouterr().err
        assert shown.endswith("n0,n1: warning: GPU 1: 95 C; expected: at most 93 C (healthagent); wait\n")


class TestWhatAzureIsAboutToDo:
    def test_a_nodes_notice_is_told_with_its_clock(self) -> None:
        notice = json.dumps(
            {
                **{"id": "1", "type": "Preempt", "node": "n0", "not_before": 1474309787},
                **{"deadline": 7, "at_once": False},
            }
        )
        sign = Health.read(f"1474309757.5 {notice}\n", 1474309757.0, 1474309758.0)
        assert (sign.clock, sign.fate) == (0.0, "will be taken by Azure at 18:29:47 UTC (Preempt)")
        assert fate_of(sign) == sign.fate

    @pytest.mark.parametrize("notice", ["", "{", "[]", "{}", '{"type": "Preempt", "not_before": "soon"}'])
    def test_what_is_no_notice_says_nothing(self, notice: str) -> None:
        assert Health.read(f"7.0 {notice}\n", 7.0, 7.0) == Health()

    def test_nor_does_a_node_that_does_not_answer(self) -> None:
        assert fate_of(OSError()) == ""
