"""A node's watch: what it decides, and what it does with answers of every kind."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.remote.agent import daemon
from launch.remote.agent.daemon import Watch, decide, patience
from launch.remote.agent.imds import Event
from launch.remote.base.records import Process
from tests.launch.remote.metadata_service import MetadataService, event, log, notice


def settle(one: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no job has needed the node for long enough."""
    monkeypatch.setattr(daemon, "SETTLE_S", 0.0)


class TestDecisions:
    """Pure: 1000 is the time by Azure's clock, 50 by the node's monotonic one."""

    @staticmethod
    def about(found: list[Event], standing: dict[str, Any] | None = None, idle: float = 9.0) -> list[Any]:
        return decide(standing, found, "node000001", 1000.0, 50.0, idle)

    def test_without_an_event_nothing_is_done(self) -> None:
        assert self.about([]) == []

    def test_an_event_becomes_a_notice(self) -> None:
        result = {"id": "A", "type": "Preempt", "node": "node000001", "not_before": 1030.0, "deadline": 80.0}
        assert self.about([Event("A", "Preempt", 1030.0, True, False)]) == [
            ("notice", {**result, "at_once": True})
        ]

    @pytest.mark.parametrize(
        ("kind", "by_user", "not_before", "at_once"),
        [
            ("Preempt", False, 1030.0, True),
            ("Terminate", True, 1300.0, True),
            ("Reboot", True, 1900.0, True),
            ("Reboot", False, 1900.0, False),
            ("Redeploy", False, 700000.0, False),
            ("Reboot", False, None, True),
        ],
    )
    def test_what_somebody_waits_for_or_is_near_ends_jobs_at_once(
        self, kind: str, by_user: bool, not_before: float | None, at_once: bool
    ) -> None:
        ((_, result),) = self.about([Event("A", kind, not_before, True, by_user)])
        assert result["at_once"] is at_once

    def test_the_first_of_several_counts(self) -> None:
        near, far = Event("A", "Reboot", 1500.0, True, False), Event("B", "Redeploy", 9000.0, True, False)
        assert self.about([far, near])[0][1]["id"] == "A"

    def test_one_that_stands_is_not_told_again_also_when_it_has_begun(self) -> None:
        ((_, result),) = self.about([Event("A", "Reboot", 1500.0, False, False)])
        for not_before in (1500.0, None):
            assert self.about([Event("A", "Reboot", not_before, False, False)], result) == []

    def test_another_time_is_told(self) -> None:
        ((_, result),) = self.about([Event("A", "Redeploy", 1500.0, True, False)])
        ((what, again),) = self.about([Event("A", "Redeploy", 1400.0, True, False)], result)
        assert (what, again["not_before"]) == ("notice", 1400.0)

    def test_one_that_is_over_or_called_off_is_cleared(self) -> None:
        assert self.about([], {"id": "A"}) == [("clear", None)]

    def test_what_a_watch_before_left_is_told_anew_or_cleared(self) -> None:
        assert self.about([Event("A", "Reboot", 1500.0, True, False)], {})[0][0] == "notice"
        assert self.about([], {}) == [("clear", None)]

    def test_while_not_all_is_understood_none_is_over_replaced_or_approved(self) -> None:
        found = [Event("A", "Terminate", 1300.0, True, False)]
        ((_, result),) = decide(None, found, "node000001", 1000.0, 50.0, 9.0, is_whole=False)
        others = [Event("B", "Reboot", 1100.0, True, False)]
        for events in ([], others, found):
            assert decide(result, events, "node000001", 1000.0, 50.0, 9.0, is_whole=False) == []
        assert decide({}, [], "node000001", 1000.0, 50.0, 9.0, is_whole=False) == []

    @pytest.mark.parametrize(
        ("kind", "alone", "idle", "not_before", "approved"),
        [
            ("Terminate", True, 9.0, 1300.0, True),
            ("Redeploy", True, 9.0, 700000.0, True),
            ("Terminate", True, 1.0, 1300.0, False),
            ("Terminate", False, 9.0, 1300.0, False),
            ("Terminate", True, 9.0, None, False),
            ("Preempt", True, 9.0, 1030.0, False),
        ],
        ids=["idle", "far", "busy", "several nodes", "begun", "eviction"],
    )
    def test_what_is_approved(
        self, kind: str, alone: bool, idle: float, not_before: float | None, approved: bool
    ) -> None:
        found = [Event("A", kind, not_before, alone, False)]
        ((_, result),) = self.about(found)
        assert self.about(found, result, idle) == ([("approve", "A")] if approved else [])


class TestPatience:
    def test_it_grows_while_nothing_is_answered(self) -> None:
        assert [patience(0, {}, failures, False) for failures in range(1, 8)] == [4, 8, 16, 32, 60, 60, 60]
        assert patience(0, {}, 999, False) == 60

    @pytest.mark.parametrize("status", [404, 410, 429, 500, 502, 503])
    def test_what_passes_is_asked_again_soon_for_an_eviction_comes_within_30_s(self, status: int) -> None:
        assert patience(status, {}, 9, True) == 5

    @pytest.mark.parametrize("status", [400, 401, 403])
    def test_a_refusal_is_not(self, status: int) -> None:
        assert patience(status, {}, 1, True) == 60

    def test_retry_after_counts_as_far_as_it_is_sane(self) -> None:
        result = ["7", "0", "86400", "Mon, 19 Sep 2016 18:29:47 GMT", ""]
        assert [patience(429, {"retry-after": one}, 1, True) for one in result] == [7, 2, 900, 4, 4]

    def test_azure_is_waited_for_as_long_as_it_says(self) -> None:
        assert [patience(429, {"retry-after": one}, 1, True) for one in ("61", "600")] == [61, 600]


class TestANotice:
    def test_it_comes_and_goes_with_the_event(self, service: MetadataService, home: Path) -> None:
        one = Watch(str(home), service.url)
        assert one.turn() == daemon.POLL_S
        assert notice(home) is None
        service.events = [event("nodes_1", "Preempt", 30), event("nodes_2")]
        one.turn()
        result = notice(home)
        assert result is not None
        assert (result["id"], result["type"], result["node"]) == (
            "Preempt-nodes_1",
            "Preempt",
            os.uname().nodename,
        )
        assert abs(result["not_before"] - time.time() - 30) < 2
        assert abs(result["deadline"] - time.monotonic() - 30) < 2
        stamp = (home / ".ranklift/agent/notice.json").stat().st_mtime_ns
        one.turn()
        assert (home / ".ranklift/agent/notice.json").stat().st_mtime_ns == stamp
        service.events = [event("nodes_2")]
        one.turn()
        assert notice(home) is None
        at = time.strftime("%H:%M:%S", time.gmtime(result["not_before"]))
        assert log(home) == (
            f"Azure will take this node at {at} UTC (Preempt, event Preempt-nodes_1)\n"
            "Azure withdrew its notice for this node\n"
        )

    def test_a_clock_that_is_off_changes_nothing(self, service: MetadataService, home: Path) -> None:
        service.headers["Date"] = "Mon, 19 Sep 2016 18:29:17 GMT"
        service.events = [event("nodes_1", NotBefore="Mon, 19 Sep 2016 18:29:47 GMT")]
        Watch(str(home), service.url).turn()
        result = notice(home)
        assert result is not None
        assert result["not_before"] == 1474309787
        assert abs(result["deadline"] - time.monotonic() - 30) < 1

    def test_one_that_an_earlier_watch_left_goes_when_its_event_has(
        self, service: MetadataService, home: Path
    ) -> None:
        (home / ".ranklift/agent/notice.json").write_text('{"id": "old"}')
        Watch(str(home), service.url).turn()
        assert notice(home) is None

    def test_it_stays_while_nothing_is_answered(self, service: MetadataService, home: Path) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1")]
        one.turn()
        service.instead["/metadata/scheduledevents"] = (503, {}, b"")
        one.turn()
        assert notice(home) is not None

    @pytest.mark.parametrize(
        "answer",
        [
            {}, None, b"", [], "x", {"Events": None}, {"Events": {}}, {"Events": [None]}, {"Events": [{}]},
            pytest.param({"Events": [event("nodes_1", NotBefore="")]}, id="no time"),
            pytest.param({"Events": [event("nodes_1", Resources=None)]}, id="no resources"),
        ],
        ids=str,
    )  # fmt: skip
    @pytest.mark.parametrize("is_new", [False, True], ids=["same watch", "watch started anew"])
    def test_it_stays_while_the_answer_is_not_understood(
        self, service: MetadataService, home: Path, answer: Any, is_new: bool
    ) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1")]
        one.turn()
        if is_new:
            one = Watch(str(home), service.url)
        service.instead["/metadata/scheduledevents"] = (200, {}, answer)
        one.turn()
        one.turn()
        assert notice(home) is not None
        service.instead.clear()
        service.events = []
        one.turn()
        assert notice(home) is None

    def test_a_full_disk_has_room_for_it(
        self, service: MetadataService, home: Path, full_disk: Callable[[], None]
    ) -> None:
        one = Watch(str(home), service.url)
        one.turn()
        full_disk()
        for _ in range(2):
            service.events = [event("nodes_1")]
            one.turn()
            assert notice(home) is not None
            service.events = []
            one.turn()
            assert notice(home) is None

    def test_what_a_killed_watch_left_is_removed(self, service: MetadataService, home: Path) -> None:
        folder = home / ".ranklift/agent"
        for name in (
            "notice.json.4194305",
            "active.4194305",
            "leads.4194305",
            "notice.json.1",
            "queue.json.9",
        ):
            (folder / name).touch()
        Watch(str(home), service.url)
        assert sorted(path.name for path in folder.iterdir()) == [
            "notice.json.1", "notice.json.reserve", "queue.json.9"
        ]  # fmt: skip

    def test_a_disk_without_room_is_said(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1")]
        monkeypatch.setattr(daemon, "replace", lambda *_: False)
        one.turn()
        assert "notice.json cannot be written" in log(home)
        monkeypatch.undo()
        one.turn()
        assert notice(home) is not None


class TestAnApproval:
    def test_it_comes_once_no_job_needs_the_node(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        settle(one, monkeypatch)
        service.events = [event("nodes_1", "Terminate", 300), event("nodes_2", "Terminate", 300)]
        with (home / ".ranklift/slots/1").open("r+") as slot:
            fcntl.flock(slot, fcntl.LOCK_EX)
            monkeypatch.setattr(daemon, "SETTLE_S", 0.1)
            for _ in range(3):
                one.turn()
            assert service.approved() == []
        time.sleep(0.1)
        for _ in range(3):
            one.turn()
        assert service.approved() == ["Terminate-nodes_1"]

    def test_the_notice_is_there_first(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        settle(one, monkeypatch)
        service.events = [event("nodes_1", "Reboot", 900)]
        one.turn()
        assert service.approved() == []
        assert notice(home) is not None
        one.turn()
        assert service.approved() == ["Reboot-nodes_1"]

    def test_a_job_whose_supervisor_is_here_holds_it_up_one_that_waits_does_not(
        self,
        service: MetadataService,
        home: Path,
        supervisor: Process,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        entry = {"job": "a", "process": supervisor, "slots": {"node000001": [0]}}
        queue = home / ".ranklift/queue.json"
        queue.write_text(json.dumps([entry]))
        one = Watch(str(home), service.url)
        monkeypatch.setattr(daemon, "SETTLE_S", 0.1)
        service.events = [event("nodes_1", "Terminate", 300)]
        one.turn()
        one.turn()
        assert service.approved() == []
        queue.write_text(json.dumps([{**entry, "slots": None}]))
        time.sleep(0.1)
        one.turn()
        assert service.approved() == ["Terminate-nodes_1"]


class TestAnswersThatAreNone:
    @pytest.mark.parametrize(
        ("reply", "wait"),
        [
            ((404, {}, b""), 5.0),
            ((410, {}, {"error": "Gone"}), 5.0),
            ((429, {"Retry-After": "9"}, b""), 9.0),
            ((500, {}, b"<html>"), 5.0),
            ((403, {}, b""), 60.0),
            ((200, {}, b"<html>"), 5.0),
        ],
        ids=["404", "410", "429", "500", "403", "no JSON"],
    )
    def test_are_said_once_and_asked_for_again(
        self, service: MetadataService, home: Path, reply: Any, wait: float
    ) -> None:
        one = Watch(str(home), service.url)
        one.turn()
        service.instead["/metadata/scheduledevents"] = reply
        waits = [one.turn() for _ in range(4)]
        assert waits[-1] == wait
        assert log(home).count("\n") == 1
        assert "GET /metadata/scheduledevents: " in log(home)
        service.instead.clear()
        service.events = [event("nodes_1")]
        assert one.turn() == daemon.POLL_S
        assert notice(home) is not None

    @pytest.mark.parametrize(
        "result", [None, [], {}, {"compute": 1}, {"compute": {"name": ""}}, {"compute": {"name": ["x"]}}]
    )
    def test_a_vm_without_a_name_has_no_events(
        self, service: MetadataService, home: Path, result: Any
    ) -> None:
        service.instead["/metadata/instance"] = (200, {}, result)
        service.events = [event("nodes_1"), event("")]
        assert Watch(str(home), service.url).turn() == daemon.UNHEARD_S
        assert notice(home) is None
        assert "the name of this VM" in log(home)

    @pytest.mark.parametrize(
        "result", [None, b"", [], {}, {"compute": None}, {"compute": {"name": ""}}], ids=str
    )
    def test_a_vm_whose_name_is_known_hears_of_events_all_the_same(
        self, service: MetadataService, home: Path, result: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        one.turn()
        monkeypatch.setattr(daemon, "INSTANCE_S", 0.0)
        service.instead["/metadata/instance"] = (200, {}, result)
        service.events = [event("nodes_1")]
        assert one.turn() == daemon.POLL_S
        assert notice(home) is not None
        assert "does not describe this VM" in log(home)

    def test_strange_events_are_said_once_and_hide_no_other(
        self, service: MetadataService, home: Path
    ) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1", NotBefore="soon"), event("nodes_1", "Reboot", 900)]
        one.turn()
        one.turn()
        assert log(home).count("NotBefore is 'soon'") == 1
        result = notice(home)
        assert result is not None
        assert result["type"] == "Reboot"

    def test_no_service_at_all_is_asked_more_and_more_rarely(self, home: Path) -> None:
        one = Watch(str(home), "http://127.0.0.1:9")
        assert [one.turn() for _ in range(6)] == [4, 8, 16, 32, 60, 60]
        assert log(home).count("\n") == 1

    def test_an_error_of_its_own_does_not_end_it(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        monkeypatch.setattr(daemon, "events", lambda *_: 1 / 0)
        assert one.turn() == daemon.HEARD_S
        assert "ZeroDivisionError" in log(home)
