"""A node's watch as a process: what it runs, what it logs, what it takes."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.remote.agent import daemon as watch
from launch.remote.agent import idleness
from launch.remote.agent.daemon import Log, Watch
from tests.launch.remote.agent.installed import install_agent
from tests.launch.remote.metadata_service import MetadataService, event, log, notice


class TestTheLead:
    """A command in the place of ``watch.py lead``, which keeps what it is told."""

    SAYS = (
        'printf "%s\\n" "$1" >> "$0"; '
        'echo \'{"next_s": 7, "say": {"act": "did it"}, "memory": {"a": 1}, "able": true}\''
    )

    @pytest.fixture
    def record(self, home: Path) -> Path:
        return home / "record"

    def watch(self, service: MetadataService, home: Path, script: str) -> Watch:
        return Watch(str(home), service.url, ("/bin/sh", "-c", script, str(home / "record")))

    def turns(self, one: Watch, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            one.turn()
            time.sleep(0.02)

    def turns_until_logged(self, one: Watch, home: Path, text: str) -> None:
        until = time.monotonic() + 20
        while text not in log(home):
            assert time.monotonic() < until, log(home)
            self.turns(one, 0.1)

    def test_the_agent_writes_only_to_its_own_folder_where_systemd_gives_it_one(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own, state = home / "run", home / "state"
        state.mkdir()
        (state / "leads.999999999").write_text("")  # what the agent would sweep
        (home / ".ranklift/agent").rmdir()
        (home / ".ranklift/agent").symlink_to(state)
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(own))
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        service.events = [event("nodes_1")]
        self.turns(self.watch(service, home, self.SAYS), 2.0)
        assert [path.name for path in state.iterdir()] == ["leads.999999999"]
        assert {"active", "leads", "notice.json", "watch.log"} <= {path.name for path in own.iterdir()}

    def test_without_tags_it_is_not_run(self, service: MetadataService, home: Path, record: Path) -> None:
        self.turns(self.watch(service, home, self.SAYS), 0.3)
        assert not record.exists()

    def test_it_is_told_what_it_needs_and_says_when_next(
        self, service: MetadataService, home: Path, record: Path
    ) -> None:
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        self.turns_until_logged(self.watch(service, home, self.SAYS), home, "did it\n")
        (line,) = record.read_text().splitlines()
        request = json.loads(line)
        assert request["compute"]["name"] == "nodes_1"
        assert request["spans"] == {"ranklift-idle-stop-minutes": 0.6}
        assert (request["imds"], request["memory"]) == (service.url, {})
        assert 0 <= request["idle_s"] < 20

    @pytest.mark.parametrize(
        "says", ["exit 1", "echo no", "echo '{}'", "echo '[]'", 'echo "{\\"next_s\\": \\"x\\"}"']
    )
    def test_one_that_says_nothing_sensible_is_named(
        self, service: MetadataService, home: Path, says: str
    ) -> None:
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        one = self.watch(service, home, says)
        self.turns_until_logged(one, home, "watch.py lead printed")
        assert one.turn() == watch.POLL_S

    def test_one_that_does_not_end_is_ended(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "LOOK_LIMIT_S", 0.2)
        service.tags = {"ranklift-idle-stop-minutes": "0.01"}
        one = self.watch(service, home, "exec sleep 60")
        self.turns(one, 1.0)
        assert "watch.py lead printed b''" in log(home)

    def test_a_changed_tag_counts_at_once(
        self, service: MetadataService, home: Path, record: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "INSTANCE_S", 0.1)
        service.tags = {"ranklift-ttl-hours": "24"}
        one = self.watch(service, home, self.SAYS)
        self.turns(one, 0.3)
        assert not record.exists()
        service.tags = {"ranklift-ttl-hours": "0.0001"}
        self.turns(one, 0.8)
        assert record.exists()


class TestSayingThatItLeads:
    """What other nodes are answered: ``watch.py idle`` there reads the file ``leads``."""

    @staticmethod
    def led(service: MetadataService, home: Path, able: str) -> Watch:
        service.tags = {"ranklift-ttl-hours": "1"}
        says = f'echo \'{{"next_s": 600, "say": {{}}, "memory": {{}}, {able}}}\''
        one = Watch(str(home), service.url, ("/bin/sh", "-c", says))
        one.turn()
        one._look_at = 0.0
        for _ in range(60):
            one.tend()
            time.sleep(0.02)
        return one

    def test_it_does_while_it_runs_and_looks_go_well(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = str(home / ".ranklift")
        assert not idleness.leads(folder)
        one = self.led(service, home, '"able": true')
        assert idleness.leads(folder)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + idleness.FRESH_S + 1)
        assert not idleness.leads(folder)  # it has stopped
        one.tend()
        assert idleness.leads(folder)

    @pytest.mark.parametrize("able", ['"able": false', '"able": 1', '"x": 1'])
    def test_it_does_not_after_a_look_that_did_not(
        self, service: MetadataService, home: Path, able: str
    ) -> None:
        folder = home / ".ranklift"
        (folder / "agent/leads").write_text(f"{time.monotonic() + 30}")
        self.led(service, home, able)
        assert not (folder / "agent/leads").exists()

    def test_one_that_a_watch_before_left_counts_no_more(self, service: MetadataService, home: Path) -> None:
        (home / ".ranklift/agent/leads").write_text(f"{time.monotonic() + 30}")
        Watch(str(home), service.url).turn()
        assert not idleness.leads(str(home / ".ranklift"))

    def test_a_pause_of_the_metadata_service_stops_neither_it_nor_the_look_at_jobs(
        self, service: MetadataService, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service.instead["/metadata"] = (429, {"Retry-After": "300"}, b"")
        one, slept = Watch(str(home), service.url), list[float]()
        tended = list[int]()
        monkeypatch.setattr(one, "tend", lambda: tended.append(1))

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if sum(slept) >= 300:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(KeyboardInterrupt):
            one.run()
        assert max(slept) <= watch.POLL_S
        assert len(service.asked) == 1
        assert len(tended) >= 149


class TestItsLog:
    def test_it_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "_LOG_BYTES", 1000)
        record = Log(str(tmp_path))
        for number in range(200):
            record.write(f"line {number}")
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert len(sizes) == 2
        assert max(sizes) < 1100
        lines = (tmp_path / "watch.log.1").read_text() + (tmp_path / "watch.log").read_text()
        assert "line 199\n" in lines

    def test_the_same_words_about_a_thing_are_told_once_until_it_is_over(self, tmp_path: Path) -> None:
        record = Log(str(tmp_path))
        for words in ("a", "a", "b", "", "b"):
            record.say("thing", words)
        record.say("other", "a")
        assert [line.split()[1] for line in (tmp_path / "watch.log").read_text().splitlines()] == list("abba")

    def test_a_line_is_one_line(self, tmp_path: Path) -> None:
        Log(str(tmp_path)).write("one\ntwo")
        assert (tmp_path / "watch.log").read_text().count("\n") == 1


class TestAsItRunsOnANode:
    """From a folder of its own, with the modules beside it and nothing else of ours."""

    @pytest.fixture
    def there(self, tmp_path: Path) -> Path:
        return install_agent(tmp_path / "lib")

    def test_it_writes_and_clears_notices_within_its_means(
        self, service: MetadataService, home: Path, there: Path
    ) -> None:
        code = f"import runpy; runpy.run_path({str(there)!r})\nfrom launch.remote.agent.daemon import Watch\n"
        code += f"Watch({str(home)!r}, {service.url!r}).run()"
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
