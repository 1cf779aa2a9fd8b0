"""A node's watch: what it decides, and what it does with answers of every kind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.remote import jobs, watch
from launch.remote.metadata import Event
from launch.remote.watch import Log, Watch, decide, patience
from tests.launch.remote.metadata_service import MetadataService, event

FILE = Path(watch.__file__)


@pytest.fixture
def service() -> Iterator[MetadataService]:
    found = MetadataService()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ranklift/slots").mkdir(parents=True)
    for name in ("guard", "0", "1"):
        (tmp_path / ".ranklift/slots" / name).touch()
    return tmp_path


def notice(home: Path) -> dict[str, Any] | None:
    path = home / ".ranklift/notice.json"
    return json.loads(path.read_text()) if path.exists() else None


def log(home: Path) -> str:
    """What is in watch.log, without times."""
    path = home / ".ranklift/watch.log"
    return re.sub(r"^\S+ ", "", path.read_text(), flags=re.M) if path.exists() else ""


def settle(one: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no job has needed the node for long enough."""
    monkeypatch.setattr(watch, "SETTLE_S", 0.0)


class TestDecisions:
    """Pure: 1000 is the time by Azure's clock, 50 by the node's monotonic one."""

    @staticmethod
    def about(found: list[Event], standing: dict[str, Any] | None = None, idle: float = 9.0) -> list[Any]:
        return decide(standing, found, "node000001", 1000.0, 50.0, idle)

    def test_without_an_event_nothing_is_done(self) -> None:
        assert self.about([]) == []

    def test_an_event_becomes_a_notice(self) -> None:
        told = {"id": "A", "type": "Preempt", "node": "node000001", "not_before": 1030.0, "deadline": 80.0}
        assert self.about([Event("A", "Preempt", 1030.0, True, False)]) == [
            ("notice", {**told, "at_once": True})
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
        ((_, told),) = self.about([Event("A", kind, not_before, True, by_user)])
        assert told["at_once"] is at_once

    def test_the_first_of_several_counts(self) -> None:
        near, far = Event("A", "Reboot", 1500.0, True, False), Event("B", "Redeploy", 9000.0, True, False)
        assert self.about([far, near])[0][1]["id"] == "A"

    def test_one_that_stands_is_not_told_again_also_when_it_has_begun(self) -> None:
        ((_, told),) = self.about([Event("A", "Reboot", 1500.0, False, False)])
        for not_before in (1500.0, None):
            assert self.about([Event("A", "Reboot", not_before, False, False)], told) == []

    def test_another_time_is_told(self) -> None:
        ((_, told),) = self.about([Event("A", "Redeploy", 1500.0, True, False)])
        ((what, again),) = self.about([Event("A", "Redeploy", 1400.0, True, False)], told)
        assert (what, again["not_before"]) == ("notice", 1400.0)

    def test_one_that_is_over_or_called_off_is_cleared(self) -> None:
        assert self.about([], {"id": "A"}) == [("clear", None)]

    def test_what_a_watch_before_left_is_told_anew_or_cleared(self) -> None:
        assert self.about([Event("A", "Reboot", 1500.0, True, False)], {})[0][0] == "notice"
        assert self.about([], {}) == [("clear", None)]

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
        ((_, told),) = self.about(found)
        assert self.about(found, told, idle) == ([("approve", "A")] if approved else [])


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
        told = ["7", "0", "86400", "Mon, 19 Sep 2016 18:29:47 GMT", ""]
        assert [patience(429, {"retry-after": one}, 1, True) for one in told] == [7, 2, 60, 4, 4]


class TestANotice:
    def test_it_comes_and_goes_with_the_event(self, service: MetadataService, home: Path) -> None:
        one = Watch(str(home), service.url)
        assert one.turn() == watch.POLL_S
        assert notice(home) is None
        service.events = [event("nodes_1", "Preempt", 30), event("nodes_2")]
        one.turn()
        told = notice(home)
        assert told is not None
        assert (told["id"], told["type"], told["node"]) == ("Preempt-nodes_1", "Preempt", os.uname().nodename)
        assert abs(told["not_before"] - time.time() - 30) < 2
        assert abs(told["deadline"] - time.monotonic() - 30) < 2
        stamp = (home / ".ranklift/notice.json").stat().st_mtime_ns
        one.turn()
        assert (home / ".ranklift/notice.json").stat().st_mtime_ns == stamp
        service.events = [event("nodes_2")]
        one.turn()
        assert notice(home) is None
        at = time.strftime("%H:%M:%S", time.gmtime(told["not_before"]))
        assert log(home) == (
            f"Azure takes this node at {at} UTC (Preempt, event Preempt-nodes_1)\n"
            "Azure does not take this node any more\n"
        )

    def test_a_clock_that_is_off_changes_nothing(self, service: MetadataService, home: Path) -> None:
        service.headers["Date"] = "Mon, 19 Sep 2016 18:29:17 GMT"
        service.events = [event("nodes_1", NotBefore="Mon, 19 Sep 2016 18:29:47 GMT")]
        Watch(str(home), service.url).turn()
        told = notice(home)
        assert told is not None
        assert told["not_before"] == 1474309787
        assert abs(told["deadline"] - time.monotonic() - 30) < 1

    def test_one_that_an_earlier_watch_left_goes_when_its_event_has(
        self, service: MetadataService, home: Path
    ) -> None:
        (home / ".ranklift/notice.json").write_text('{"id": "old"}')
        Watch(str(home), service.url).turn()
        assert notice(home) is None

    def test_it_stays_while_nothing_is_answered(self, service: MetadataService, home: Path) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1")]
        one.turn()
        service.instead["/metadata/scheduledevents"] = (503, {}, b"")
        one.turn()
        assert notice(home) is not None

    def test_a_disk_without_room_is_said(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1")]
        monkeypatch.setattr(watch, "replace", lambda *_: False)
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
            monkeypatch.setattr(watch, "SETTLE_S", 0.1)
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
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = {"job": "a", "process": jobs.identity(os.getpid()), "slots": {"node000001": [0]}}
        queue = home / ".ranklift/queue.json"
        queue.write_text(json.dumps([entry]))
        one = Watch(str(home), service.url)
        monkeypatch.setattr(watch, "SETTLE_S", 0.1)
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
        assert one.turn() == watch.POLL_S
        assert notice(home) is not None

    @pytest.mark.parametrize(
        "told", [None, [], {}, {"compute": 1}, {"compute": {"name": ""}}, {"compute": {"name": ["x"]}}]
    )
    def test_a_vm_without_a_name_has_no_events(self, service: MetadataService, home: Path, told: Any) -> None:
        service.instead["/metadata/instance"] = (200, {}, told)
        service.events = [event("nodes_1"), event("")]
        assert Watch(str(home), service.url).turn() == watch.UNHEARD_S
        assert notice(home) is None
        assert "the name of this VM" in log(home)

    def test_strange_events_are_said_once_and_hide_no_other(
        self, service: MetadataService, home: Path
    ) -> None:
        one = Watch(str(home), service.url)
        service.events = [event("nodes_1", NotBefore="soon"), event("nodes_1", "Reboot", 900)]
        one.turn()
        one.turn()
        assert log(home).count("NotBefore is 'soon'") == 1
        told = notice(home)
        assert told is not None
        assert told["type"] == "Reboot"

    def test_no_service_at_all_is_asked_more_and_more_rarely(self, home: Path) -> None:
        one = Watch(str(home), "http://127.0.0.1:9")
        assert [one.turn() for _ in range(6)] == [4, 8, 16, 32, 60, 60]
        assert log(home).count("\n") == 1

    def test_an_error_of_its_own_does_not_end_it(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Watch(str(home), service.url)
        monkeypatch.setattr(watch, "events", lambda *_: 1 / 0)
        assert one.turn() == watch.HEARD_S
        assert "ZeroDivisionError" in log(home)


class TestTheLead:
    """A command in the place of ``lead.py``, which keeps what it is told."""

    SAYS = 'printf "%s\\n" "$1" >> "$0"; echo \'{"next_s": 7, "say": {"act": "did it"}, "memory": {"a": 1}}\''

    @pytest.fixture
    def told(self, home: Path) -> Path:
        return home / "told"

    def watch(self, service: MetadataService, home: Path, script: str) -> Watch:
        return Watch(str(home), service.url, ("/bin/sh", "-c", script, str(home / "told")))

    def turns(self, one: Watch, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            one.turn()
            time.sleep(0.02)

    def test_without_tags_it_is_not_run(self, service: MetadataService, home: Path, told: Path) -> None:
        self.turns(self.watch(service, home, self.SAYS), 0.3)
        assert not told.exists()

    def test_it_is_told_what_it_needs_and_says_when_next(
        self, service: MetadataService, home: Path, told: Path
    ) -> None:
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        self.turns(self.watch(service, home, self.SAYS), 0.8)
        (line,) = told.read_text().splitlines()
        asked = json.loads(line)
        assert asked["compute"]["name"] == "nodes_1"
        assert asked["spans"] == {"ranklift-idle-stop-minutes": 0.6}
        assert (asked["imds"], asked["memory"]) == (service.url, {})
        assert 0 <= asked["idle_s"] < 1
        assert "did it\n" in log(home)

    @pytest.mark.parametrize(
        "says", ["exit 1", "echo no", "echo '{}'", "echo '[]'", 'echo "{\\"next_s\\": \\"x\\"}"']
    )
    def test_one_that_says_nothing_sensible_is_named(
        self, service: MetadataService, home: Path, says: str
    ) -> None:
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        one = self.watch(service, home, says)
        self.turns(one, 0.8)
        assert "lead.py gave" in log(home)
        assert one.turn() == watch.POLL_S

    def test_one_that_does_not_end_is_ended(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "LOOK_LIMIT_S", 0.2)
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        one = self.watch(service, home, "exec sleep 60")
        self.turns(one, 1.0)
        assert "lead.py gave b''" in log(home)

    def test_a_changed_tag_counts_at_once(
        self, service: MetadataService, home: Path, told: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "INSTANCE_S", 0.1)
        service.tags = {"ranklift-ttl-hours": "24"}
        one = self.watch(service, home, self.SAYS)
        self.turns(one, 0.3)
        assert not told.exists()
        service.tags = {"ranklift-ttl-hours": "0.0001"}
        self.turns(one, 0.8)
        assert told.exists()


class TestItsLog:
    def test_it_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "_LOG_BYTES", 1000)
        told = Log(str(tmp_path))
        for number in range(200):
            told.write(f"line {number}")
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert len(sizes) == 2
        assert max(sizes) < 1100
        lines = (tmp_path / "watch.log.1").read_text() + (tmp_path / "watch.log").read_text()
        assert "line 199\n" in lines

    def test_the_same_words_about_a_thing_are_told_once_until_it_is_over(self, tmp_path: Path) -> None:
        told = Log(str(tmp_path))
        for words in ("a", "a", "b", "", "b"):
            told.say("thing", words)
        told.say("other", "a")
        assert [line.split()[1] for line in (tmp_path / "watch.log").read_text().splitlines()] == list("abba")

    def test_a_line_is_one_line(self, tmp_path: Path) -> None:
        Log(str(tmp_path)).write("one\ntwo")
        assert (tmp_path / "watch.log").read_text().count("\n") == 1


class TestAsItRunsOnANode:
    """From a folder of its own, with the modules beside it and nothing else of ours."""

    FILES = ("watch.py", "metadata.py", "activity.py")

    @pytest.fixture
    def there(self, tmp_path: Path) -> Path:
        folder = tmp_path / "lib"
        folder.mkdir()
        for name in self.FILES:
            (folder / name).write_bytes((FILE.parent / name).read_bytes())
        return folder / "watch.py"

    def test_it_writes_and_clears_notices_within_its_means(
        self, service: MetadataService, home: Path, there: Path
    ) -> None:
        code = f"import runpy; found = runpy.run_path({str(there)!r}, run_name='watch')\n"
        code += f"found['Watch']({str(home)!r}, {service.url!r}).run()"
        running = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
        try:
            service.events = [event("nodes_1")]
            until = time.monotonic() + 10
            while notice(home) is None and time.monotonic() < until:
                time.sleep(0.05)
            assert notice(home) is not None
            rollup = Path(f"/proc/{running.pid}/smaps_rollup").read_text()
            kib = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
            assert kib["Private_Dirty:"] < 8 * 1024
        finally:
            running.kill()
            running.wait()

    def test_it_says_since_when_no_job_is_here(self, home: Path, there: Path) -> None:
        argv = [sys.executable, "-I", "-S", str(there), "idle"]

        def idle() -> float:
            done = subprocess.run(argv, env={"HOME": str(home)}, capture_output=True, check=True)
            return float(json.loads(done.stdout)["idle_s"])

        assert idle() == 0.0
        time.sleep(0.3)
        assert 0.3 <= idle() < 5
        with (home / ".ranklift/slots/0").open("r+") as slot:
            fcntl.flock(slot, fcntl.LOCK_EX)
            assert idle() == 0.0
