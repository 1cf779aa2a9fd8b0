"""`fab replace` takes the nodes that a check or a look finds sick, and reports their hosts to Azure first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node, StackOutputs
from launch.errors import InputError, NodeUnreachable, RetryError
from playbooks.nodes import host_report, sick
from playbooks.nodes.host_report import HostReport, NotReported
from playbooks.nodes.sick import Sick, Verdict
from playbooks.project import Stack
from playbooks.stack import replace as replacing
from playbooks.stack import replacement
from tests.playbooks.stack.test_replace import Cluster

SLOW = ("41 % of its peers' bandwidth in 6 of 6 pairs",)
SENT = HostReport("/subscriptions/s/providers/Microsoft.Impact/workloadImpacts/i", "IBPortDown", "HOST1")


class Examined(Cluster):
    """A cluster of which ``slow`` nodes are sick by a check, and ``unseen`` ones cannot be looked at."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.slow: tuple[int, ...] = (0, 1)
        self.unseen: tuple[str, ...] = ()
        self.answer: bool | None = None
        self.refusal: NotReported | None = None
        monkeypatch.setattr(sick, "examine", self.examine)
        monkeypatch.setattr(sick, "read_checked", self.checked)
        monkeypatch.setattr(host_report, "report_host", self.report)
        monkeypatch.setattr(host_report, "compare_hosts", lambda *words: f"{words[3]} not on {words[2]}")

    def examine(
        self, _: Stack, __: Inventory, nodes: Sequence[Node], verdicts: dict[str, Verdict]
    ) -> tuple[list[Sick], dict[str, Exception]]:
        found = [Sick(node, SLOW) for node in nodes if node.name in verdicts]
        names = [node.name for node in nodes if node.name in self.unseen]
        return found, {name: NodeUnreachable(name, "no route to host") for name in names}

    def checked(self, *_: object) -> dict[str, Verdict]:
        if "check" in self.ends:
            raise self.ends["check"]
        return {f"node00000{n}": Verdict(n, "sick", SLOW, slow="sick") for n in self.slow}

    def ask(self, question: str) -> bool | None:
        self.questions.append(question)
        return self.answer

    def report(self, _: Stack, __: StackOutputs, ___: Inventory, found: Sick) -> HostReport:
        self.done.append(f"report {found.node.instance_id}: {found}")
        if self.refusal:
            raise self.refusal
        return SENT

    def run(self, node: str = "", **options: Any) -> None:
        replacing.replace(Context(), [node] if node else [], stack="dev", **options)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examined:
    return Examined(tmp_path, monkeypatch)


class TestSick:
    def test_each_sick_node_is_replaced_once_the_user_agrees(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.slow, cluster.answer = (1,), True
        cluster.run(sick=True)
        assert cluster.done == ["delete 1", "update", "make beside 2", "wait"]
        assert cluster.questions == ["Replace node000001?"]
        ran = capsys.readouterr()
        assert ran.out == "node000001 replaced by node000003\n"
        assert f"node000001: {SLOW[0]}\n" in ran.err

    @pytest.mark.parametrize("slow", [(1,), ()])
    def test_a_node_that_nobody_could_look_at_is_named_and_is_no_success(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str], slow: tuple[int, ...]
    ) -> None:
        cluster.slow, cluster.unseen = slow, ("node000002",)
        with pytest.raises(Exit) as ended:
            cluster.run(sick=True, yes=True)
        ran = capsys.readouterr()
        assert (ended.value.code, ran.out) == (1, "node000001 replaced by node000003\n" if slow else "")
        assert "nothing is known of node000002, which is not replaced: " in ran.err
        assert ("and a look finds no error at the nodes that answer" in ran.err) is not bool(slow)

    def test_what_was_replaced_before_an_error_is_in_the_result(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace_one = replacement.replace_one

        def fail_at_the_second(stack: Stack, node: str, way: Any) -> Any:
            if node == "node000001":
                raise RetryError("node000001 is not replaced: it has train-1")
            return replace_one(stack, node, way)

        monkeypatch.setattr(replacing, "replace_one", fail_at_the_second)
        with pytest.raises(Exit):
            cluster.run(sick=True, yes=True, json=True)
        assert [one["node"] for one in json.loads(capsys.readouterr().out)] == ["node000000"]

    def test_all_are_replaced_one_after_the_other(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.run(sick=True, yes=True, json=True)
        assert [done for done in cluster.done if done.startswith("delete")] == ["delete 0", "delete 1"]
        assert cluster.questions == []
        assert [one["node"] for one in json.loads(capsys.readouterr().out)] == ["node000000", "node000001"]

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (False, "error: node[000000-000001] are not replaced: nothing was changed\n"),
            (
                None,
                "error: node[000000-000001] are not replaced: without a terminal nobody can be asked; "
                "--yes replaces them\n",
            ),
        ],
    )
    def test_nothing_is_replaced_unasked(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str], answer: bool | None, words: str
    ) -> None:
        cluster.answer = answer
        with pytest.raises(Exit) as caught:
            cluster.run(sick=True)
        assert (caught.value.code, cluster.done) == (1, [])
        assert words in capsys.readouterr().err

    def test_what_would_be_lost_with_them_is_in_the_question(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.uncollected, cluster.answer = ("train-1", "train-2"), True
        cluster.run(sick=True)
        assert cluster.questions == ["Replace node[000000-000001] (results of 2 jobs were not collected)?"], (
            "once for all of them"
        )
        assert [done for done in cluster.done if done.startswith("delete")] == ["delete 0", "delete 1"]
        assert "not collected, as far as the heads know: train-1, train-2; " in capsys.readouterr().err

    def test_what_came_since_the_question_is_not_deleted_with_them(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.later, cluster.answer = ("train-3",), True
        with pytest.raises(Exit):
            cluster.run(sick=True)
        assert [done for done in cluster.done if done.startswith("delete")] == ["delete 0"]
        assert "node000001 is not replaced: more would be lost than was agreed" in capsys.readouterr().err

    def test_where_no_node_is_sick_nothing_is_replaced(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.slow = ()
        cluster.run(sick=True, json=True)
        ran = capsys.readouterr()
        assert json.loads(ran.out) == []
        assert "nothing is replaced: no check was made, and a look finds no error\n" in ran.err

    def test_an_old_check_is_refused_before_anything_is_looked_at(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.ends["check"] = InputError("the last check", "f", "is 25 hours old", "run `fab check` again")
        with pytest.raises(Exit):
            cluster.run(sick=True, yes=True)
        assert cluster.done == []
        assert "is 25 hours old; run `fab check` again" in capsys.readouterr().err


class TestReport:
    def test_the_host_is_reported_before_anything_changes_and_compared_afterwards(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.run("1", report=True)
        assert cluster.done == [f"report 1: {SLOW[0]}", "delete 1", "update", "make beside 2", "wait"]
        ran = capsys.readouterr()
        assert ran.out.splitlines() == [
            "node000001 replaced by node000003",
            "['node000003'] not on HOST1",
            f"report: {SENT.id}",
        ]

    def test_json_has_the_report(self, cluster: Examined, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.run("1", report=True, json=True)
        found = json.loads(capsys.readouterr().out)
        assert found["report"] == {"id": SENT.id, "category": "IBPortDown", "host": "HOST1"}
        assert found["host"] == "['node000003'] not on HOST1"

    @pytest.mark.parametrize("answer", [False, None])
    def test_without_a_report_nothing_is_replaced(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str], answer: bool | None
    ) -> None:
        cluster.refusal, cluster.answer = NotReported("MissingSubscriptionRegistration"), answer
        with pytest.raises(Exit):
            cluster.run("1", report=True)
        assert cluster.done == [f"report 1: {SLOW[0]}"]
        assert cluster.questions == ["replace node000001 without a report?"]
        errors = capsys.readouterr().err
        assert "not reported: MissingSubscriptionRegistration\n" in errors
        assert "node000001 is not replaced: its host is not reported" in errors
        assert ("--yes replaces it without a report" in errors) == (answer is None)

    @pytest.mark.parametrize(("answer", "yes"), [(True, False), (None, True)])
    def test_who_agrees_has_it_replaced_without_a_report(
        self, cluster: Examined, capsys: pytest.CaptureFixture[str], answer: bool | None, yes: bool
    ) -> None:
        cluster.refusal, cluster.answer = NotReported("no host"), answer
        cluster.run("1", report=True, yes=yes)
        assert cluster.done[1:] == ["delete 1", "update", "make beside 2", "wait"]
        assert capsys.readouterr().out == "node000001 replaced by node000003\n"

    def test_an_old_check_is_left_out(self, cluster: Examined, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.ends["check"] = InputError("the last check", "f", "is 25 hours old", "run `fab check` again")
        cluster.run("1", report=True)
        assert cluster.done[0] == "report 1: "
        assert "its verdicts do not count: the last check = 'f': is 25 hours old" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("node", "options", "words"),
    [
        ("1", {"sick": True}, "--sick: chooses the nodes by itself, and 1 is named; give one of both"),
        ("", {}, "node: is missing; name one, as in 3 or node000003, or give --sick"),
        ("1", {"report": True, "reimage": True}, "--report: is about the host, which --reimage keeps"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    cluster: Examined, capsys: pytest.CaptureFixture[str], node: str, options: dict[str, bool], words: str
) -> None:
    with pytest.raises(Exit):
        cluster.run(node, **options)
    assert words in capsys.readouterr().err
    assert cluster.done == []


def test_a_dry_run_names_the_nodes_of_the_check_and_asks_nobody(
    cluster: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.uncollected = ("train-1",)
    cluster.run(sick=True, report=True, dry_run=True)
    shown = capsys.readouterr().out
    assert "not collected, as far as the heads know: train-1; " in shown
    assert "ask first; without a terminal refuse, unless --yes is given\n" in shown
    assert f"node000000 ({SLOW[0]}): report its host to Azure, remove it" in shown
    assert "nodes with errors by a look" in shown
    assert (cluster.done, cluster.questions) == ([], [])
