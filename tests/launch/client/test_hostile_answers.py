"""Answers that a job has edited on its head: the operator's commands name them, and nothing else is lost."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from infra.inventory import Node
from launch.client.cancel import sweep_node
from launch.client.environments import make_environment, query_environments
from launch.client.events import Reader
from launch.client.query import list_some, show_job
from launch.client.rpc import code_of
from launch.client.samples import job_samples
from launch.client.stage import stage_data
from launch.client.staged_data import query_data
from launch.client.submit import follow, submit_and_follow
from launch.data.data_stores import Storage, stage_request
from launch.errors import GiveUpError, ManyNodesError
from launch.host import Completed
from launch.job.plan import JobPlan
from launch.remote.base import frames
from launch.remote.environment.request import EnvironmentRequest
from launch.remote.reading import Malformed
from launch.remote.store.tree_node import MARK
from tests.launch.client.test_stage import SOURCE
from tests.launch.remote.sample_records import sample_plan, sample_state

NODES = [Node(f"node{n:06}", n, f"10.0.0.{n}", "127.0.0.1", 1, 1, "running") for n in range(2)]
REQUEST = cast(
    "EnvironmentRequest",
    {
        **{"kind": "python", "requirements": "six", "constraints": "", "python": "", "conda": ""},
        **{"channels": [], "find_links": [], "reference": "", "context": "", "dockerfile": "", "runtime": ""},
        **{"title": "six", "nodes": [], "registries": {}},
    },
)
RECORD: dict[str, object] = {
    "kind": "python",
    "id": "1e5f",
    "path": "~/.ranklift/environments/1e5f",
    "runtime": "bare",
    "title": "",
}
MADE = {
    **{"t": "made", "environment": RECORD, "variables": {}, "seconds": 1.0, "built": True},
    "nodes": {"node000000": None, "node000001": None},
}


class Head:
    """Answers everything with the same bytes, in pieces of 64 KiB."""

    name = "node000000"

    def __init__(self, stdout: bytes) -> None:
        self._stdout = stdout

    def run(self, _: Sequence[str], /, **_options: Any) -> Completed:
        return Completed(0, self._stdout, b"")

    def stream(
        self,
        _: Sequence[str],
        on_stdout: Callable[[bytes], object],
        /,
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        for at in range(0, len(self._stdout), 1 << 16):
            on_stdout(self._stdout[at : at + (1 << 16)])
        return Completed(0, b"", b"")


def answer(value: object) -> Head:
    return Head(frames.frame(frames.STATE, json.dumps(value).encode()))


def lines(*values: object) -> Head:
    return Head(b"".join(MARK + json.dumps(value).encode() + b"\n" for value in values))


def made(head: Head) -> Any:
    return make_environment(REQUEST, head, NODES, "abc", lambda _: None, lambda *_: None)


class TestListing:
    def test_one_damaged_record_hides_no_other_job(self) -> None:
        jobs = [sample_state("t-1"), sample_state("t-2", created=1e300), sample_state("t-3")]
        found = list_some(answer({"jobs": jobs, "left_out": 0}), remote="abc")
        assert [state.job for state in found.jobs] == ["t-1", "t-3"]
        assert found.damaged == ("the record of job t-2 is damaged: [1].created is 1e+300, not a Unix time",)

    def test_of_many_damaged_records_some_are_named(self) -> None:
        found = list_some(
            answer({"jobs": [{}] * 100_000 + [sample_state("t-1")], "left_out": 0}), remote="abc"
        )
        assert [state.job for state in found.jobs] == ["t-1"]
        assert len(found.damaged) == 20
        assert "more may be damaged, and are not named" in found.damaged[-1]

    def test_what_a_head_moved_aside_is_named(self) -> None:
        found = list_some(
            answer({"jobs": [], "left_out": 0, "aside": ["queue.json.damaged-0a"]}), remote="abc"
        )
        assert found.aside == ("queue.json.damaged-0a",)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(
                ("created", -1),
                ("created", math.inf),
                ("started", "now"),
                ("ended", 10**30),
                ("created", None),
            ),
            *(
                ("job", "../../x"),
                ("job", "/etc/passwd"),
                ("job", ["t"]),
                ("nodes", ["../x"]),
                ("nodes", "n"),
            ),
            *(("tags", {"a": 1}), ("failure", {"rank": 1}), ("exit_status", 10**9), ("state", "DONE")),
            *(("waits_for", ["a/b"]), ("ranks", -1), ("restarts", True), ("supervisor", {"pid": "1"})),
            *(("supervisor", {"pid": pid, "started": 1, "boot": "b"}) for pid in (-1, 0, 2**22 + 1)),
        ],
    )
    def test_any_field_out_of_its_bounds_is_named(self, field: str, value: object) -> None:
        jobs = [sample_state("t-1"), {**sample_state("t-2"), field: value}]
        found = list_some(answer({"jobs": jobs, "left_out": 0}), remote="abc")
        assert [state.job for state in found.jobs] == ["t-1"]
        (record,) = found.damaged
        assert f"[1].{field}" in record

    def test_a_damaged_record_is_an_error_where_its_job_is_meant(self) -> None:
        with pytest.raises(GiveUpError, match=r"node000000: .*state.created: is 1e.300, not a Unix time"):
            show_job("t-1", answer(report(state=sample_state(created=1e300))), remote="abc")


def job(nodes: object, ranks: object) -> bytes:
    return frames.frame(frames.JOB, json.dumps({"job": "t-1", "nodes": nodes, "ranks": ranks}).encode())


END = {
    **{"event": "exit", "rank": 0, "node": "node000000", "status": 0, "signal": None, "stopped": False},
    **{"attempt": 0, "time": 1.0},
}


def plan_excerpt() -> dict[str, object]:
    return {
        **{"command": ["a"], "data": [], "grace_s": 1.0, "health": "off", "max_restarts": 0, "snapshot": ""},
        **{"timeout_s": None, "environment": {**RECORD, "kind": "bare", "id": ""}},
    }


def report(**fields: object) -> dict[str, object]:
    whole = {
        "state": sample_state(),
        "plan": plan_excerpt(),
        "ranks": {},
        "ends": [],
        "events": [],
        "folder": "/x",
    }
    return {**whole, **fields}


class TestReport:
    def test_a_whole_report_is_read(self) -> None:
        event = {"event": "restart", "count": 1, "reason": "x", "time": 5.0}
        found = show_job("t-1", answer(report(events=[event])), remote="abc")
        assert [(one.event, dict(one.fields)) for one in found.events] == [
            ("restart", {"count": 1, "reason": "x"})
        ]

    @pytest.mark.parametrize(
        "fields",
        [
            {"events": [{"event": "restart", "count": 1, "reason": "x"}]},
            {"events": [{"event": "restart", "count": 1, "reason": "x", "time": 1e300}]},
            {"events": [{"event": "unheard-of", "time": 1.0}]},
            {"ends": [{"event": "exit", "rank": 0}]},
            {"ranks": {"../x": [1]}},
            {"ranks": {"node000000": [-2]}},
            {"plan": {**plan_excerpt(), "snapshot": "../x"}},
            {"plan": {**plan_excerpt(), "max_restarts": -1}},
            {"ends": [{**END, "node": "node\udcff"}]},
            {"ends": [{**END, "status": 10**9}]},
            {"ends": [{**END, "attempt": -1}]},
            {"events": [{"event": "lost-node", "node": "a b", "reason": "", "time": 1.0}]},
            {"events": [{"event": "restart", "count": -1, "reason": "x", "time": 1.0}]},
            {"state": sample_state(failure={"rank": -9, "node": None, "status": 1, "last_lines": []})},
            {"state": sample_state(failure={"rank": 1, "node": "\udc80", "status": 1, "last_lines": []})},
            {"plan": {}},
        ],
    )
    def test_a_record_that_is_wrong_is_named(self, fields: dict[str, object]) -> None:
        with pytest.raises(GiveUpError, match=rf"node000000: its answer .*\({next(iter(fields))[:5]}"):
            show_job("t-1", answer(report(**fields)), remote="abc")


class TestEnvironment:
    @pytest.mark.parametrize(
        "name", ["/tmp/owned", "../../.bashrc", "", "A", "0" * 65, "a\n", ".", 7], ids=repr
    )
    def test_an_id_that_could_be_a_path_is_refused(self, name: object) -> None:
        one = {"id": name, "title": "", "bytes": 1, "used": 1.0, "jobs": [], "is_held": False}
        with pytest.raises(GiveUpError, match=r"environments\[0\].id: is .*, not the id of a content"):
            query_environments(answer({"environments": [one]}), "abc")
        if name != "":
            with pytest.raises(GiveUpError, match=r"environment.id: is"):
                made(lines({**MADE, "environment": {**RECORD, "id": name}}))

    @pytest.mark.parametrize("change", [{"id": "hello"}, {"title": [1]}, {"used": -1.0}, {"bytes": 1e300}])
    def test_one_that_cannot_be_used_is_named_and_the_rest_is_listed(self, change: dict[str, Any]) -> None:
        one = {"id": "0a", "title": "t", "bytes": 1, "used": 1.0, "jobs": [], "is_held": False}
        data = {"id": "0a", "url": "", "bytes": 1, "files": 1, "used": 1.0, "is_whole": True, "jobs": []}
        data["shared"] = False
        dropped: list[Any] = []

        def drop(record: object, _: Malformed) -> None:
            dropped.append(record)

        found = query_environments(answer({"environments": [{**one, **change}, one]}), "abc", drop)
        assert found["environments"] == [one]
        if "title" not in change:
            listed = query_data(answer({"data": [data, {**data, **change}]}), "abc", drop=drop)
            assert listed["data"] == [data]
        assert dropped[0] == {**one, **change}

    def test_a_node_that_the_head_does_not_report_does_not_count_as_served(self) -> None:
        with pytest.raises(ManyNodesError, match="node000001: the head did not report its result"):
            made(lines({**MADE, "nodes": {"node000000": None}}))

    def test_only_snapshots_of_the_request_are_sent(self) -> None:
        with pytest.raises(GiveUpError, match="it wants abc, which the request does not name"):
            made(lines({"t": "lacks", "snapshots": ["abc"]}))


class TestLines:
    @pytest.mark.parametrize(
        "text", [b"{]", b"[]", b"[" * 100_000, b"1", b'{"t": []}', b"\xff", b'{"t": "x"}']
    )
    @pytest.mark.parametrize("call", ["environment", "stage"])
    def test_a_line_that_is_no_answer_is_named(self, text: bytes, call: str) -> None:
        with pytest.raises(GiveUpError, match=r"^node000000: its answer cannot be decoded"):
            if call == "stage":
                request = stage_request([SOURCE], Storage(None))
                stage_data(request, Head(MARK + text + b"\n"), NODES, "abc", lambda _: None)
            else:
                made(Head(MARK + text + b"\n"))

    def test_of_answers_without_end_the_last_one_alone_is_kept(self) -> None:
        head = lines(*[MADE] * 10_000)
        tracemalloc.start()
        try:
            made(head)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()

    def test_a_line_without_end_is_refused_at_16_mib(self) -> None:
        head = Head(MARK + b"x" * (17 << 20))
        with pytest.raises(GiveUpError, match="a line has more than 16 MiB"):
            made(head)

    def test_data_of_another_source_does_not_count_as_staged(self) -> None:
        held = {"name": "other", "id": "5", "path": "~/x", "bytes": 3, "files": 2, "etag": ""}
        staged = {
            **{"t": "staged", "data": [held], "seconds": 1.5, "from_storage": 3},
            "nodes": {"node000000": None, "node000001": None},
        }
        with pytest.raises(GiveUpError, match="it staged other data than iris"):
            stage_data(stage_request([SOURCE], Storage(None)), lines(staged), NODES, "abc", lambda _: None)


class TestStream:
    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"x",
            frames.RECORD.pack(1e300, 0, 0, 1, 1) + b"x",
            frames.RECORD.pack(math.nan, 0, 0, 1, 1) + b"x",
            frames.RECORD.pack(-1.0, 0, 0, 1, 1) + b"x",
            frames.RECORD.pack(1.0, 0, 0, 9, 1) + b"x",
        ],
    )
    def test_a_line_that_is_none_is_a_protocol_error(self, payload: bytes) -> None:
        with pytest.raises(frames.ProtocolError):
            Reader(lambda _: None).feed(frames.frame(frames.OUT, payload))

    @pytest.mark.parametrize(("rank", "node"), [(0, -1), (0, 7), (1, 0), (-2, 0), (2**31 - 1, 0)])
    def test_a_source_that_the_job_does_not_have_is_refused_with_the_heads_name(
        self, rank: int, node: int
    ) -> None:
        words = frames.RECORD.pack(1.0, rank, node, 1, 2) + b"x\n"
        head = Head(job(["node000000"], 1) + frames.frame(frames.OUT, words))
        reason = rf"^node000000: .*a line of rank {rank} on node {node} of a job of 1 rank on 1 node\)"
        with pytest.raises(GiveUpError, match=reason):
            follow("t-1", head, lambda _: None, remote="abc", wait=False)

    def test_no_line_comes_before_the_jobs_nodes(self) -> None:
        with pytest.raises(frames.ProtocolError, match="a job of 0 ranks on 0 nodes"):
            Reader(lambda _: None).feed(frames.frame(frames.OUT, frames.RECORD.pack(1.0, 0, 0, 1, 1) + b"x"))

    @pytest.mark.parametrize("nodes", [["node\udcff"], ["\ud800"], ["a b"], ["../x"], "n", [7]])
    def test_nodes_of_other_than_names_are_refused(self, nodes: object) -> None:
        with pytest.raises(GiveUpError, match=r"^node000000: its answer .*\(nodes"):
            follow("t-1", Head(job(nodes, 1)), lambda _: None, remote="abc", wait=False)

    @pytest.mark.parametrize("ranks", [-1, 10**9, 1.5, True])
    def test_no_job_has_that_many_ranks(self, ranks: object) -> None:
        with pytest.raises(Malformed, match=r"ranks: is .*, not a number of ranks"):
            Reader(lambda _: None).feed(job(["node000000"], ranks))

    @pytest.mark.parametrize(
        ("nodes", "ranks"), [(["node000000"], 10**6), (["node000000", "x"], 2), (["x"], 2)]
    )
    def test_a_job_that_was_submitted_has_the_nodes_and_ranks_of_its_plan(
        self, nodes: list[str], ranks: int
    ) -> None:
        one = SimpleNamespace(node=SimpleNamespace(name="node000000"), ranks=(0, 1))
        plan = cast("JobPlan", SimpleNamespace(id="t-1", remote="x/abc", nodes=[one], as_dict=dict))
        with pytest.raises(GiveUpError, match=r"^node000000: .* which is not what was submitted\)"):
            submit_and_follow(plan, Head(job(nodes, ranks)), lambda _: None)

    def test_a_job_that_is_followed_has_no_state_of_another(self) -> None:
        state = frames.frame(frames.STATE, json.dumps(sample_state("victim-1", state="RUNNING")).encode())
        with pytest.raises(GiveUpError, match=r"the state of job victim-1 in place of t-1's"):
            follow("t-1", Head(job(["node000000"], 1) + state), lambda _: None, remote="abc", wait=False)

    def test_a_job_has_its_nodes_once(self) -> None:
        reader = Reader(lambda _: None)
        reader.feed(job(["node000000"], 1))
        with pytest.raises(frames.ProtocolError, match="a second time"):
            reader.feed(job(["node000000", "node000001"], 10**6))

    def test_unfinished_lines_of_many_ranks_take_no_more_memory_than_is_set_for_all(self) -> None:
        events: list[Any] = []
        reader = Reader(events.append)
        reader.feed(job(["node000000"], 10**6))
        for rank in range(80):
            record = frames.RECORD.pack(1.0, rank, 0, 1, 1 << 20) + bytes(1 << 20)
            reader.feed(frames.frame(frames.OUT, record))
        assert len(events) in range(16, 20)
        assert {len(event.data) for event in events} == {1 << 20}

    @pytest.mark.parametrize("payload", [b"{]", b"[]", b"{}", b"[" * 100_000, b'{"job": "../x"}'])
    @pytest.mark.parametrize("kind", [frames.STATE])
    def test_a_state_that_is_none_is_malformed(self, kind: bytes, payload: bytes) -> None:
        with pytest.raises(Malformed):
            Reader(lambda _: None).feed(frames.frame(kind, payload))


@pytest.mark.parametrize("remote", [None, 7, ["x"], {"a": 1}])
def test_a_plan_whose_code_is_no_path_is_damaged(remote: object) -> None:
    data = json.dumps({**sample_plan(), "remote": remote}).encode()
    with pytest.raises(GiveUpError, match=r"^node000000: its job.json is damaged: remote: is"):
        code_of(data, "node000000")


def test_samples_with_a_number_that_is_none_are_refused() -> None:
    live = {"time": 1.0, "attempt": 0, "nodes": {}, "ranks": {"0": {"time": 1.0}}}
    found: dict[str, object] = {
        "state": sample_state(),
        "live": live,
        "history": None,
        "flags": [],
        "now": 1.0,
    }
    with pytest.raises(GiveUpError, match="node000000: its answer cannot be decoded"):
        job_samples("t-1", answer(found), "abc")


def test_of_what_a_node_names_as_processes_the_advice_has_numbers_alone() -> None:
    class Removed(Head):
        def run(self, argv: Sequence[str], /, **_options: Any) -> Completed:
            return Completed(0, b"" if "ls -t" in argv[-1] else self._stdout, b"")

    lines = (b"/proc/%s/environ\n" % pid for pid in (b"12", b"7;reboot", b"x", b"-1", b"0", b"1", b"9" * 99))
    head = Removed(b"".join(lines))
    with pytest.raises(GiveUpError, match=r"end it by `kill -9 12` there$"):
        sweep_node("t-1", head, remote=None, grace_s=1.0)
