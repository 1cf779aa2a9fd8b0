"""What `fab scale` leaves in the configuration and says, whatever becomes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import Mock

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.arm.update_errors import Trouble
from infra.inventory import Inventory, Node
from infra.scale_plan import Drift, Use
from launch.errors import RankliftError, RetryError
from playbooks.nodes import health, vm_ops
from playbooks.project import Stack
from playbooks.pulumi import drift, pending, recover, run
from playbooks.pulumi.locks import InUse
from playbooks.pulumi.run import Interrupted, TookTooLong, UpdateFailed
from playbooks.stack import converge, preflight
from playbooks.stack import scale as scaling

SETTINGS = """\
config:
  ranklift:vmSize: Standard_ND40rs_v2
  ranklift:nodeCount: "3"
  ranklift:location: southcentralus
  ranklift:sshFrom: 203.0.113.7
"""
FORBIDDEN = UpdateFailed(
    Stack("dev", Path(), {}), [Trouble("VirtualMachineScaleSet nodes", "AuthorizationFailed", "No right.")]
)


def inventory(count: int, state: str = "running") -> Inventory:
    nodes = tuple(
        Node(f"n{i}", i, "", "", 0, 8, state if i == count - 1 else "running") for i in range(count)
    )
    return Inventory("dev", "size", "place", "me", nodes)


class Cluster:
    """Stack ``dev``, with ``azure`` nodes in Azure; making others ends as ``build`` does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
        self.configuration = folder / "Pulumi.dev.yaml"
        self.configuration.write_text(SETTINGS)
        monkeypatch.setenv("RANKLIFT_PROJECT", str(folder))
        self.expected: int | None = 3
        self.azure, self.state, self.remembered = 3, "running", 3
        self.gone: tuple[str, ...] = ()
        self.becomes: int | None = None
        self.fails: BaseException | None = None
        self.waits: BaseException | None = None
        self.unknown: RankliftError | None = None
        self.done: list[str] = []
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock(node_count=self.remembered))
        monkeypatch.setattr(vm_ops, "refresh", lambda *_: self.refreshed())
        monkeypatch.setattr(preflight, "check_plan", lambda *_: None)
        monkeypatch.setattr(recover, "recover", lambda *_: None)
        monkeypatch.setattr(pending, "refuse_replacement", lambda _: None)
        monkeypatch.setattr(health, "wait_for_nodes", self.wait)
        monkeypatch.setattr(converge, "build", self.build)
        monkeypatch.setattr(run, "pulumi", self.pulumi)
        monkeypatch.setattr(drift, "find_settled_drift", self.look)

    def wait(self, *_: object) -> Inventory:
        self.done.append("wait")
        if self.waits is not None:
            raise self.waits
        return inventory(self.azure)

    def refreshed(self) -> Inventory:
        if self.unknown is not None and self.done:
            raise self.unknown
        return inventory(self.azure, self.state)

    def look(self, _: Stack, wanted: int, __: float) -> Drift:
        return Drift(wanted, self.remembered, self.azure, self.gone)

    def build(self, _: Stack, __: float, ___: list[str], *, there: Inventory, wanted: int, yes: bool) -> None:
        assert self.expected is None or self.configured == self.expected, "another command may read it"
        self.done.append(f"make {wanted} of {len(there.nodes)}{', whatever is lost' if yes else ''}")
        self.azure = wanted if self.becomes is None else self.becomes
        if self.fails is not None:
            raise self.fails

    def pulumi(self, _: Stack, words: list[str]) -> None:
        assert words[:3] == ["config", "set", "ranklift:nodeCount"]
        self.configuration.write_text(SETTINGS.replace('"3"', f'"{words[3]}"'))

    @property
    def configured(self) -> int:
        found = re.search(r'nodeCount: "(\d+)"', self.configuration.read_text())
        assert found is not None
        return int(found[1])

    def scale(self, number: int, *, yes: bool = False) -> None:
        scaling.scale(Context(), str(number), stack="dev", yes=yes)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def failing(cluster: Cluster, number: int, error: BaseException, becomes: int) -> None:
    cluster.fails, cluster.becomes = error, becomes
    with pytest.raises(Exit):
        cluster.scale(number)


@pytest.mark.parametrize("wanted", [5, 2])
def test_the_configuration_says_the_new_number_once_it_is_so(cluster: Cluster, wanted: int) -> None:
    cluster.scale(wanted)
    assert cluster.done == [f"make {wanted} of 3", "wait"]
    assert cluster.configured == wanted


def test_yes_agrees_to_what_is_lost(cluster: Cluster) -> None:
    cluster.scale(2, yes=True)
    assert cluster.done == ["make 2 of 3, whatever is lost", "wait"]


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (RankliftError("not removed"), 1)])
def test_where_nobody_agrees_to_what_is_lost_the_number_stays(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    cluster.fails, cluster.becomes = error, 3
    with pytest.raises(Exit) as caught:
        cluster.scale(2)
    assert (caught.value.code, cluster.configured) == (code, 3)
    assert "stack dev: configured for 3 nodes as before, Azure has 3\n" in capsys.readouterr().err


def test_as_many_as_there_are_is_said_at_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.scale(3)
    assert cluster.done == []
    assert capsys.readouterr() == (
        "stack dev: has 3 nodes, as configured\n",
        "",
    )
    cluster.state = "stopped"
    cluster.scale(3)
    assert capsys.readouterr().err == "n2 is stopped: `fab replace 2 --stack dev` replaces it\n"


@pytest.mark.parametrize(
    ("azure", "remembered", "state", "gone"),
    [
        (2, 3, "running", ()),
        (3, 2, "running", ()),
        (3, 3, "deleting", ()),
        (3, 3, "running", ("Subnet nodes",)),
    ],
)
def test_but_where_anything_differs_it_is_mended(
    cluster: Cluster, azure: int, remembered: int, state: str, gone: tuple[str, ...]
) -> None:
    cluster.azure, cluster.remembered, cluster.state, cluster.gone = azure, remembered, state, gone
    cluster.scale(3)
    assert cluster.done == [f"make 3 of {azure}", "wait"]


@pytest.mark.parametrize("wanted", [5, 2])
@pytest.mark.parametrize("error", [FORBIDDEN, RetryError("Azure does not answer"), Exit(code=1)])
def test_where_nothing_was_made_or_removed_it_stays_as_it_was(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], error: BaseException, wanted: int
) -> None:
    failing(cluster, wanted, error, 3)
    assert cluster.configured == 3
    assert "stack dev: configured for 3 nodes as before, Azure has 3\n" in capsys.readouterr().err


@pytest.mark.parametrize("wanted", [5, 2])
def test_what_another_command_makes_is_no_reason_to_change_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], wanted: int
) -> None:
    failing(cluster, wanted, InUse("dev", ()), 4)
    assert cluster.configured == 3
    assert "Azure has" not in capsys.readouterr().err


def test_where_some_came_it_says_what_is_wanted_and_what_there_is(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(cluster, 6, FORBIDDEN, 4)
    assert cluster.configured == 6
    assert (
        "configured for 6 nodes, Azure has 4: `fab scale 6` adds the others, `fab scale 4` keeps 4\n"
    ) in capsys.readouterr().err


def test_where_nodes_went_it_says_how_many_stayed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(cluster, 2, FORBIDDEN, 2)
    assert cluster.configured == 2
    assert "configured for 2 nodes, Azure has 2\n" in capsys.readouterr().err


def test_what_azure_may_go_on_with_is_what_is_wanted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(cluster, 5, TookTooLong(Stack("dev", Path(), {}), 30, ()), 3)
    assert cluster.configured == 5
    assert (
        "configured for 5 nodes, and Azure may continue: so does `fab scale 5 --stack dev`"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("has_begun", "count"), [(True, "5 nodes"), (False, "3 nodes as before")])
def test_after_ctrl_c_it_says_the_number_that_is_configured(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], has_begun: bool, count: str
) -> None:
    failing(cluster, 5, Interrupted(has_begun=has_begun), 3)
    assert cluster.configured == int(count[0])
    assert capsys.readouterr().err == f"stack dev: configured for {count}\n"


def test_a_configuration_without_a_number_is_called_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.configuration.write_text(SETTINGS.replace('"3"', "many"))
    cluster.fails = Interrupted(has_begun=False)
    cluster.expected = None
    with pytest.raises(Exit):
        cluster.scale(5)
    assert "stack dev: configured for no valid number of nodes as before\n" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "'N'", "'1.5'"])
def test_a_wrong_number_is_refused_by_the_arguments_name(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(Exit) as caught:
        scaling.scale(Context(), text.strip("'"), stack="dev")
    assert (caught.value.code, cluster.done) == (2, [])
    assert capsys.readouterr().err.startswith(f"error: number = {text}: ")


def test_what_azure_does_not_tell_is_called_unknown(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.unknown = RetryError("it does not answer")
    failing(cluster, 5, FORBIDDEN, 4)
    assert cluster.configured == 3
    assert "configured for 3 nodes as before; the number in Azure is unknown" in capsys.readouterr().err


@pytest.mark.parametrize("wanted", [3, 5])
def test_the_nodes_are_json_alone(cluster: Cluster, capsys: pytest.CaptureFixture[str], wanted: int) -> None:
    scaling.scale(Context(), str(wanted), stack="dev", json=True)
    ran = capsys.readouterr()
    assert [node["name"] for node in json.loads(ran.out)["nodes"]] == [f"n{i}" for i in range(wanted)]
    assert ("has 3 nodes, as configured" in ran.err) == (wanted == 3)


@pytest.mark.usefixtures("cluster")
def test_a_dry_run_as_json_is_a_list_of_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "saved", lambda _: inventory(3))
    scaling.scale(Context(), "5", stack="dev", json=True, dry_run=True)
    assert json.loads(capsys.readouterr().out) == [
        "pulumi config set ranklift:nodeCount 5 --stack dev",
        "pulumi up --yes --skip-preview --stack dev",
        "fab wait --stack dev",
    ]


@pytest.mark.parametrize("yes", [False, True])
def test_a_dry_run_for_fewer_nodes_shows_which_go_why_and_what_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], yes: bool
) -> None:
    used = {f"n{i}": Use(uncollected=("train-1",) if i else (), records=i) for i in range(3)}
    monkeypatch.setattr(Stack, "saved", lambda _: inventory(3))
    monkeypatch.setattr(converge, "uses", lambda *_: used)
    scaling.scale(Context(), "1", stack="dev", yes=yes, dry_run=True, json=True)
    asks = [] if yes else ["ask first; without a terminal refuse, unless --yes is given"]
    assert json.loads(capsys.readouterr().out) == [
        "n0: to be removed: idle, no uncollected files as far as the heads know",
        "n2: to be removed: idle, has uncollected files, and no idle node without is left",
        "n2 loses its records of 2 jobs that have ended",
        "not collected, as far as the heads know: train-1; `fab collect train-1` copies a job's results",
        *asks,
        "pulumi config set ranklift:nodeCount 1 --stack dev",
        "pulumi up --yes --skip-preview --stack dev",
        "fab wait --stack dev",
    ]
    assert (cluster.done, cluster.configured) == ([], 3)


def test_ctrl_c_while_nodes_are_waited_for_says_what_waits_on(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.waits = KeyboardInterrupt()
    with pytest.raises(Exit) as caught:
        cluster.scale(5)
    assert (caught.value.code, cluster.configured) == (130, 5)
    ran = "nodes may not be ready yet: `fab wait --stack dev` waits for them\ninterrupted\n"
    assert capsys.readouterr().err == ran
