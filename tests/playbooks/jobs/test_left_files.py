"""What a job left in its working folders is named wherever its end is shown, and by ``fab collect``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from launch.client.events import JobState
from launch.errors import NodeUnreachable
from launch.host import Host
from playbooks.jobs import collect as collecting
from playbooks.jobs import handle, logs, show
from playbooks.jobs.location import Place
from playbooks.jobs.printer import report_left
from playbooks.project import Stack
from tests.launch.standin import LocalHost, Nodes, end_everything, shell

WRITES = "mkdir checkpoints; echo weights > checkpoints/last.ckpt; echo x > outputs/model.pt"


class Desk:
    """Two nodes as their connections give them; a node in ``silent`` does not answer."""

    def __init__(self, folder: Path) -> None:
        self.nodes = Nodes(folder, [1, 1])
        listed = (Node(node.name, n, "", "", 0, 1, "running") for n, node in enumerate(self.nodes.nodes))
        self.inventory = Inventory("dev", "size", "place", "me", tuple(listed))
        self.silent: set[str] = set()

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def _open(self, node: Node) -> Iterator[Host]:
        if node.name in self.silent:
            raise NodeUnreachable(node.name, "no route to host")
        home = self.nodes.folder / node.name
        yield LocalHost(node.name, home, {**self.nodes.env, "HOME": str(home)})

    def host(self, node: Node) -> Any:
        return _Both(self._open(node), self.nodes.head)

    def ended(self, script: str) -> JobState:
        return self.nodes.run(shell(script))[0]


class _Both:
    """A connection that can be used with and without ``with``, as the real one."""

    def __init__(self, opened: Any, host: Host) -> None:
        self._opened, self._host = opened, host

    def __enter__(self) -> Host:
        return cast("Host", self._opened.__enter__())

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path)
    for module in (show, logs, collecting):
        monkeypatch.setattr(module, "open_from", lambda *_: Stack("dev", tmp_path, {}))
        monkeypatch.setattr(module, "find_job", lambda *_: Place(made.inventory.nodes[0], "hash"))
    monkeypatch.setattr(Stack, "saved", lambda _: made.inventory)
    monkeypatch.setattr(handle, "choose_job", lambda *words, **_: words[2])
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: made)
    monkeypatch.chdir(tmp_path)
    yield made
    end_everything()


def words(job: str) -> str:
    return (
        f"job {job} left in its working folders 2 files, 16 B, on node[000000-000001]: checkpoints/last.ckpt "
        f"(8 B); `fab collect {job} --work` copies them"
    )


def test_a_followed_job_ends_with_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = desk.ended(WRITES)
    report_left(state, desk.inventory, cast("Any", desk), "hash")
    assert capsys.readouterr().err == words(state.job) + "\n"
    logs.logs.body(Context(), state.job, follow=True)
    assert words(state.job) in capsys.readouterr().err.splitlines()


def test_it_is_part_of_the_jobs_details(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = desk.ended(WRITES)
    show.job.body(Context(), state.job)
    assert capsys.readouterr().out.splitlines()[-1] == words(state.job)
    show.job.body(Context(), state.job, json=True)
    left = json.loads(capsys.readouterr().out)["left"]
    assert (left["files"], left["bytes"], left["largest"]) == (2, 16, [["checkpoints/last.ckpt", 8]])


@pytest.mark.parametrize(
    "script", ["true", "echo x > outputs/model.pt; mkdir __pycache__; touch __pycache__/a"]
)
def test_a_job_that_left_nothing_ends_without_a_word(
    desk: Desk, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    report_left(desk.ended(script), desk.inventory, cast("Any", desk), "hash")
    assert capsys.readouterr().err == ""


def test_what_cannot_be_known_is_not_left_out(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = desk.ended("true")
    desk.silent.add("node000001")
    report_left(replace(state, nodes=(*state.nodes, "node000009")), desk.inventory, cast("Any", desk), "hash")
    what = f"what {state.job} left in its working folder is unknown"
    assert capsys.readouterr().err.splitlines() == [
        f"node000001: {what}: no route to host",
        f"node000009: {what}: the node was removed",
    ]


def test_a_node_that_the_job_lost_is_not_waited_for(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = desk.ended("echo a > b; exit 3")
    lost = {"event": "lost-node", "node": "node000001", "reason": "no sign of life for 12 s", "time": 1.0}
    events = desk.nodes.folder / "node000000/.ranklift/jobs" / state.job / "events.jsonl"
    events.write_text(events.read_text() + json.dumps(lost) + "\n")
    asked: list[str] = []
    host = desk.host

    def connect(node: Node) -> Any:
        asked.append(node.name)
        return host(node)

    monkeypatch.setattr(desk, "host", connect)
    report_left(state, desk.inventory, cast("Any", desk), "hash")
    assert "node000001" not in asked
    said = capsys.readouterr().err
    assert f"what {state.job} left in its working folder is unknown: the job lost the node" in said
    assert f"job {state.job} left in its working folders 1 file, 2 B, on node000000" in said
    show.job.body(Context(), state.job, json=True)
    assert json.loads(capsys.readouterr().out)["left_unknown"] == {"node000001": "the job lost the node"}


def test_a_job_that_runs_is_not_looked_at(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = replace(desk.ended(WRITES), state="RUNNING")
    report_left(state, desk.inventory, cast("Any", desk), "hash")
    assert capsys.readouterr().err == ""


def test_a_collect_names_it_and_copies_it_with_work(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    job = desk.ended(WRITES).job
    collecting.collect.body(Context(), job)
    assert capsys.readouterr().err == words(job) + "\n"
    collecting.collect.body(Context(), job, work=True, match="*.pth")
    assert capsys.readouterr().err == "--match *.pth: no file fits that the job left in its working folders\n"
    notes = desk.nodes.folder / "node000000/.ranklift/collected"
    assert [path.name for path in notes.iterdir()] == [job]
    collecting.collect.body(Context(), job, work=True)
    assert capsys.readouterr().err == ""
    assert Path("results", job, "work/node000001/checkpoints/last.ckpt").read_text() == "weights\n"
    assert sorted(path.name for path in notes.iterdir()) == [job, f"{job}.work"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"match": "*.ckpt"}, "--match = '*.ckpt': chooses among files of working folders; give --work too"),
        ({"match": "/", "work": True}, "--match = '/': is no pattern; write it like 'checkpoints/*.ckpt'"),
    ],
)
def test_a_pattern_without_effect_is_refused(
    desk: Desk, capsys: pytest.CaptureFixture[str], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Exit):
        collecting.collect.body(Context(), "t-1", **options)
    assert capsys.readouterr().err == f"error: {problem}\n"


def collecting_words(job: str, what: str) -> str:
    return f"its {what} are on the nodes: `fab collect {job} --stack dev` copies them here\n"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo up", "logs"),
        ("echo x > outputs/model.pt", "outputs"),
        ("echo up; mkdir outputs/a; touch outputs/a/b", "logs and outputs"),
    ],
)
def test_a_job_that_succeeded_ends_with_the_command_that_collects_it(
    desk: Desk, capsys: pytest.CaptureFixture[str], script: str, what: str
) -> None:
    state = desk.ended(script)
    report_left(state, desk.inventory, cast("Any", desk), "hash", is_watched=True)
    assert capsys.readouterr().err == collecting_words(state.job, what)
    logs.logs.body(Context(), state.job, follow=True)
    assert capsys.readouterr().err.endswith(collecting_words(state.job, what))
    logs.logs.body(Context(), state.job)
    assert "collect" not in capsys.readouterr().err


@pytest.mark.parametrize("script", ["true", "echo up; exit 3"])
def test_a_job_without_logs_and_outputs_or_that_failed_ends_without_it(
    desk: Desk, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    report_left(desk.ended(script), desk.inventory, cast("Any", desk), "hash", is_watched=True)
    assert capsys.readouterr().err == ""


def test_a_job_that_was_collected_ends_without_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = desk.ended("echo up")
    collecting.collect.body(Context(), state.job)
    capsys.readouterr()
    report_left(state, desk.inventory, cast("Any", desk), "hash", is_watched=True)
    assert capsys.readouterr().err == ""


def test_a_silent_node_keeps_it_from_nobody(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    state = desk.ended("echo up")
    desk.silent.add("node000001")
    report_left(state, desk.inventory, cast("Any", desk), "hash", is_watched=True)
    assert capsys.readouterr().err.endswith("\n" + collecting_words(state.job, "logs"))
