"""How many nodes a stack's configuration asks for, and how those that are too many go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from infra.inventory import Inventory, Node
from infra.scale_plan import Drift, Use
from launch.errors import RankliftError, RetryError
from playbooks.cli import output
from playbooks.node_price import saved_price
from playbooks.nodes import vm_ops
from playbooks.project import Stack
from playbooks.pulumi.pending import Replacement
from playbooks.pulumi.run import UpdateFailed
from playbooks.stack import converge
from playbooks.stack.converge import build, shrink, wanted_of
from playbooks.stack.losses import Losses


@pytest.mark.parametrize(
    ("text", "nodes"), [("2", 2), ('" 2 "', 2), ('"+3"', 3), ("x", None), ('"\uff12"', None)]
)
def test_what_the_program_takes_for_a_number_is_one_here_too(
    tmp_path: Path, text: str, nodes: int | None
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config:\n  ranklift:nodeCount: {text}\n")
    assert wanted_of(Stack("dev", tmp_path, {})) == nodes


def test_a_stack_without_a_configuration_asks_for_nothing(tmp_path: Path) -> None:
    assert wanted_of(Stack("dev", tmp_path, {})) is None


class Cluster:
    """Stack ``dev`` of idle nodes 0 to 3, but for ``jobs``; ``quicker`` come when nodes are held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: dict[str, tuple[str, ...]] = {}
        self.quicker: dict[str, tuple[str, ...]] = {}
        self.uncollected: dict[str, tuple[str, ...]] = {}
        self.left: dict[str, tuple[tuple[str, str], ...]] = {}
        self.silent: set[str] = set()
        self.failed: dict[str, str] = {}
        self.answer: bool | BaseException | None = None
        self.questions: list[str] = []
        self.held: tuple[str, ...] = ()
        self.done: list[str] = []
        self.nodes = tuple(Node(f"n{i}", i, "", "", 0, 8, "running") for i in range(4))
        monkeypatch.setattr(Stack, "outputs", lambda _: Mock())
        monkeypatch.setattr(Stack, "state", lambda _: {})
        monkeypatch.setattr(vm_ops, "refresh", lambda *_: Inventory("dev", "size", "place", "me", self.nodes))
        monkeypatch.setattr(converge, "uses", self.uses)
        monkeypatch.setattr(converge, "kept_free", self.kept_free)
        monkeypatch.setattr(vm_ops, "delete", self.delete)
        monkeypatch.setattr(output, "ask", self.ask)

    def uses(self, _: Stack, inventory: Inventory, holder: str) -> dict[str, Use]:
        jobs, files = self.jobs, self.uncollected
        return {
            node.name: Use(
                jobs.get(node.name, ()),
                uncollected=files.get(node.name, ()),
                left=self.left.get(node.name, ()),
                unknown="no route to host" if node.name in self.silent else "",
            )
            for node in inventory.nodes
        }

    def ask(self, question: str) -> bool | None:
        assert not self.held, "no command waits for an answer while it keeps jobs off nodes"
        self.questions.append(question)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @contextmanager
    def kept_free(
        self, _: Stack, __: Inventory, nodes: Sequence[Node], holder: str, ___: float
    ) -> Iterator[dict[str, str]]:
        assert holder.startswith("`fab scale 3` of ")
        self.held = tuple(node.name for node in nodes)
        self.done.append(f"hold {' '.join(self.held)}")
        self.jobs.update({name: self.quicker.pop(name) for name in self.held if name in self.quicker})
        try:
            yield self.failed
        finally:
            self.held = ()

    def delete(self, _: Stack, __: str, nodes: Sequence[Node], ___: float) -> None:
        assert self.held == tuple(node.name for node in nodes), "a job may come to them"
        self.done.append(f"delete {' '.join(self.held)}")

    def shrink(self, agreed: Mapping[str, Losses] | None = None, *, yes: bool = False) -> None:
        deadline = time.monotonic() + 60
        shrink(Stack("dev", Path(), {}), 3, deadline, "fab scale 3", agreed or {}, yes=yes)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_nodes_are_held_before_they_are_asked_and_until_they_are_gone(cluster: Cluster) -> None:
    cluster.shrink()
    assert cluster.done == ["hold n3", "delete n3"]


def test_no_more_is_lost_with_nodes_than_was_agreed_to(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.uncollected = {f"n{i}": ("train-1", "train-2") for i in range(4)}
    with pytest.raises(RetryError) as caught:
        cluster.shrink({"n3": Losses(uncollected=("train-1",))})
    assert str(caught.value) == (
        "n3 is not removed: more would be lost than was agreed to; repeat the command\n"
        "not collected, as far as the heads know: train-2; `fab collect train-2` copies a job's results"
    )
    assert cluster.done == ["hold n3"]
    cluster.shrink(yes=True)
    assert "not collected, as far as the heads know: train-1, train-2; " in capsys.readouterr().err
    cluster.shrink({"n3": Losses(uncollected=("train-2", "train-1"))})
    assert cluster.done[1:] == ["hold n3", "delete n3"] * 2


def test_what_was_agreed_to_of_one_node_is_not_of_another(cluster: Cluster) -> None:
    cluster.uncollected = {f"n{i}": ("train-1",) for i in range(4)}
    cluster.quicker = {"n3": ("train-2",)}
    with pytest.raises(RetryError, match="n2 is not removed: more would be lost than was agreed to"):
        cluster.shrink({"n3": Losses(uncollected=("train-1",))})
    assert cluster.done == ["hold n3", "hold n2"]


def test_where_a_job_was_quicker_another_idle_node_goes(cluster: Cluster) -> None:
    cluster.quicker = {"n3": ("train-1",)}
    cluster.shrink()
    assert cluster.done == ["hold n3", "hold n2", "delete n2"]


def test_where_jobs_were_quicker_everywhere_no_node_goes(cluster: Cluster) -> None:
    cluster.jobs = {"n0": ("a",), "n1": ("b",), "n2": ("c",)}
    cluster.quicker = {"n3": ("train-1",)}
    with pytest.raises(RetryError, match="n3: it has train-1"):
        cluster.shrink()
    assert cluster.done == ["hold n3"]


def test_a_node_that_jobs_cannot_be_kept_off_does_not_go(cluster: Cluster) -> None:
    cluster.failed = {"n3": "no route to host"}
    with pytest.raises(RetryError, match="nothing was changed: n3: no route to host"):
        cluster.shrink()
    assert cluster.done == ["hold n3"]


class TestConsent:
    """`fab up` and `fab scale` of a cluster with a node too many."""

    @pytest.fixture
    def build(self, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  ranklift:nodeCount: 3\n")
        monkeypatch.setattr(converge, "find_settled_drift", lambda *_: Drift(3, 4, 4))

        def pulumi(*_: object, before: Callable[[], None], **__: object) -> None:
            before()
            cluster.done.append("update")

        def build(*, yes: bool = False, limit_s: float = 60.0) -> None:
            there = Inventory("dev", "size", "place", "me", cluster.nodes)
            stack = Stack("dev", tmp_path, {})
            converge.build(stack, time.monotonic() + limit_s, there=there, wanted=3, yes=yes)

        monkeypatch.setattr(converge, "pulumi", pulumi)
        return build

    def test_the_losses_are_listed_and_asked_about_before_pulumi_begins(
        self, cluster: Cluster, build: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.uncollected = {f"n{i}": ("train-1", "train-2") for i in range(4)}
        cluster.left = {"n3": tuple((f"t-{n}", f"{n} files") for n in range(10))}
        cluster.answer = True
        build()
        assert cluster.questions == [
            "Remove n3 (results of 2 jobs were not collected, files of 10 jobs were left in working folders)?"
        ]
        assert cluster.done == ["hold n3", "delete n3", "update"]
        first, second, third, *_, last, removed = capsys.readouterr().err.splitlines()
        assert first == "n3: to be removed: idle, has uncollected files, and no idle node without is left"
        assert second.startswith("not collected, as far as the heads know: train-1, train-2; `fab collect ")
        assert third.startswith("job t-0 left in its working folders 0 files; `fab collect t-0 --work`")
        assert (last, removed) == ("2 more left files there (`fab job JOB`)", "removed n3; 3 nodes stay")

    @pytest.mark.parametrize(
        ("answer", "error", "words"),
        [
            (
                None,
                RankliftError,
                "n3 is not removed: results of 1 job were not collected; --yes removes it an",
            ),
            (False, RankliftError, "n3 is not removed: nothing was changed"),
            (KeyboardInterrupt("^C"), KeyboardInterrupt, "C"),
        ],
    )
    def test_without_consent_nothing_is_changed(
        self,
        cluster: Cluster,
        build: Callable[..., None],
        answer: bool | BaseException | None,
        error: type[BaseException],
        words: str,
    ) -> None:
        cluster.uncollected = {f"n{i}": ("train-1",) for i in range(4)}
        cluster.answer = answer
        with pytest.raises(error, match=words):
            build()
        assert cluster.done == []

    def test_an_answer_after_the_time_limit_changes_nothing(
        self, cluster: Cluster, build: Callable[..., None]
    ) -> None:
        cluster.uncollected, cluster.answer = {f"n{i}": ("train-1",) for i in range(4)}, True
        with pytest.raises(
            RetryError, match="--timeout had passed when the answer came; nothing was changed"
        ):
            build(limit_s=-1.0)
        assert (len(cluster.questions), cluster.done) == (1, [])

    def test_a_node_with_nothing_to_lose_goes_first_and_nobody_is_asked(
        self, cluster: Cluster, build: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.uncollected = {"n3": ("train-1",)}
        build()
        assert (cluster.questions, cluster.done) == ([], ["hold n2", "delete n2", "update"])
        why = "n2: to be removed: idle, no uncollected files as far as the heads know\n"
        assert capsys.readouterr().err == f"{why}removed n2; 3 nodes stay\n"

    def test_a_silent_node_may_be_the_head_of_jobs_with_results_on_those_that_go(
        self, cluster: Cluster, build: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.silent, cluster.answer = {"n0"}, True
        build()
        assert cluster.questions == ["Remove n3 (1 node did not answer)?"]
        unknown = "n0: its jobs and results are unknown: no route to host; its jobs may have results on n3\n"
        assert unknown in capsys.readouterr().err

    def test_a_job_that_ended_since_the_question_keeps_its_node(
        self, cluster: Cluster, build: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def agreed_once_a_job_has_ended(_: str) -> bool:
            cluster.uncollected = {f"n{i}": ("train-1", "train-2") for i in range(4)}
            return True

        cluster.uncollected = {f"n{i}": ("train-1",) for i in range(4)}
        monkeypatch.setattr(output, "ask", agreed_once_a_job_has_ended)
        with pytest.raises(RetryError, match="more would be lost than was agreed to; repeat the command"):
            build()
        assert cluster.done == ["hold n3"]

    def test_yes_is_consent_to_all_of_it_which_is_listed_nevertheless(
        self, cluster: Cluster, build: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.uncollected = {f"n{i}": ("train-1",) for i in range(4)}
        build(yes=True)
        assert (cluster.questions, cluster.done) == ([], ["hold n3", "delete n3", "update"])
        assert "not collected, as far as the heads know: train-1; " in capsys.readouterr().err


class Update:
    """`fab up` of stack ``dev``, up with ``nodes`` nodes; what it does is in ``done``."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stack = Stack("dev", tmp_path, {})
        self.stack.configuration.write_text("config:\n  ranklift:nodeCount: 2\n")
        self.nodes = tuple(Node(f"n{i}", i, "", "", 0, 8, "running") for i in range(2))
        self.cause: Replacement | None = None
        self.drift: Drift | None = Drift(2, 2, 2)
        self.refused: dict[str, RankliftError] = {}
        self.done: list[str] = []
        monkeypatch.setattr(Stack, "exists", lambda _: True)
        for name in ("recover", "check_plan", "check_image"):
            monkeypatch.setattr(converge, name, lambda _, name=name: self.step(name))
        monkeypatch.setattr(converge, "agree_to_delete_storage", self.agree_to_delete_storage)
        monkeypatch.setattr(converge, "find_settled_drift", lambda *_: self.drift)
        monkeypatch.setattr(
            converge, "nodes_before", lambda _: Inventory("dev", "size", "place", "me", self.nodes)
        )
        monkeypatch.setattr(converge, "find_replacement", self.find_replacement)
        monkeypatch.setattr(converge, "prepared_replacement", self.prepared_replacement)
        monkeypatch.setattr(converge, "scale_set_guid", lambda _: "first")
        monkeypatch.setattr(converge, "pulumi", lambda _, words, **__: self.step(" ".join(words)))

    def agree_to_delete_storage(self, _: Stack, *, yes: bool) -> None:
        if "storage" in self.refused and not yes:
            raise self.refused["storage"]

    def step(self, name: str) -> None:
        self.done.append(name)
        if name in self.refused:
            raise self.refused[name]

    def find_replacement(self, _: Stack, options: Sequence[str]) -> Replacement | None:
        self.step(" ".join(("preview", *options)))
        return self.cause

    @contextmanager
    def prepared_replacement(
        self, _: Stack, nodes: Inventory, cause: object, limit_s: float, *, yes: bool
    ) -> Iterator[None]:
        self.step(f"{'have' if yes else 'ask for'} consent to {cause} of {len(nodes.nodes)} nodes")
        yield
        self.step("let jobs come")

    def up(self, *, yes: bool = False) -> list[str]:
        self.done.clear()
        build(self.stack, time.monotonic() + 60, yes=yes)
        return self.done


@pytest.fixture
def update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Update:
    return Update(tmp_path, monkeypatch)


def test_an_up_that_replaces_all_nodes_has_consent_first_and_keeps_jobs_off_them(update: Update) -> None:
    update.cause = Replacement(("a new image",), ())
    assert update.up() == [
        *("recover", "check_plan", "preview", "check_image", "ask for consent to a new image of 2 nodes"),
        *("up --yes --skip-preview --stack dev", "let jobs come"),
    ]
    assert "have consent to a new image of 2 nodes" in update.up(yes=True)


@pytest.mark.parametrize("by", ["check_image", "ask for consent to a new image of 2 nodes"])
def test_without_consent_or_the_image_nothing_is_changed(update: Update, by: str) -> None:
    update.cause = Replacement(("a new image",), ())
    update.refused[by] = RankliftError("no")
    with pytest.raises(RankliftError, match="no"):
        update.up()
    assert update.done[-1] == by


def test_without_consent_to_the_end_of_its_storage_nothing_is_changed(update: Update) -> None:
    update.refused["storage"] = RankliftError("may hold data")
    with pytest.raises(RankliftError, match="may hold data"):
        update.up()
    assert update.done == ["recover", "check_plan"]
    assert "up --yes --skip-preview --stack dev" in update.up(yes=True)


def test_an_up_that_keeps_its_nodes_asks_nothing_and_has_one_preview(update: Update) -> None:
    assert update.up() == ["recover", "check_plan", "preview", "up --yes --skip-preview --stack dev"]
    update.drift = Drift(2, 2, 1)
    assert update.up()[2:] == ["preview --refresh", "up --yes --skip-preview --stack dev --refresh"]


@pytest.mark.parametrize(("now", "before"), [("first", 2), ("second", 0), (None, 0)])
def test_a_replacement_that_fails_has_no_node_of_the_replaced_scale_set(
    update: Update, monkeypatch: pytest.MonkeyPatch, now: str | None, before: int
) -> None:
    """In the new scale set Azure numbers nodes from 0 too, so that ids alone do not tell them apart."""
    update.cause = Replacement(("a new image",))
    update.refused["up --yes --skip-preview --stack dev"] = UpdateFailed(Stack("dev", Path(), {}), [])
    answers = iter(("first", now))
    monkeypatch.setattr(converge, "scale_set_guid", lambda _: next(answers))
    earlier: list[Inventory] = []
    monkeypatch.setattr(converge, "settle", lambda _, __, there, *___: earlier.append(there))
    with pytest.raises(UpdateFailed):
        update.up()
    assert [len(one.nodes) for one in earlier] == [before]


def test_where_no_node_exists_there_is_no_preview_but_pulumis_own(update: Update) -> None:
    update.nodes = ()
    assert update.up() == ["recover", "check_plan", "up --yes --stack dev"]


def test_an_up_that_succeeds_keeps_the_nodes_price(update: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Mock(size="size", location="place", node_per_hour=24.0, spot=False)
    monkeypatch.setattr(converge, "check_plan", lambda _: planned)
    update.refused["up --yes --skip-preview --stack dev"] = RankliftError("no")
    with pytest.raises(RankliftError, match="no"):
        update.up()
    inventory = Inventory("dev", "size", "place", "me", ())
    assert saved_price(update.stack, inventory) is None
    update.refused.clear()
    update.up()
    price = saved_price(update.stack, inventory)
    assert price is not None
    assert (price["per_hour"], price["kind"]) == (24.0, "regular")
