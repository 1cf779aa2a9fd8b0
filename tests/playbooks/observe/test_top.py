"""``fab top`` in a real terminal, with a real sshd as the job's head; its records are the test's."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client.events import Failure
from tests.playbooks.emulated_terminal import EmulatedTerminal
from tests.playbooks.observe.made_samples import job_state, samples
from tests.playbooks.observe.standin_head import StandInHead
from tests.playbooks.typed import FAB, fab, write_project

JOB = job_state(4).job
OTHER = job_state(2, job="tune-20260301-090800-c0de", per_node=1)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHead]:
    with StandInHead(tmp_path_factory.mktemp("top")).up() as head:
        yield head


@pytest.fixture
def head(project: StandInHead) -> Iterator[StandInHead]:
    """A head with one running job of four nodes."""
    project.write(samples(4))
    yield project
    project.end_watchers(JOB)
    project.clear()


def top(head: StandInHead, *words: str, columns: int = 80, lines: int = 24) -> EmulatedTerminal:
    return EmulatedTerminal([FAB, "top", *words], head.folder, head.environment, columns, lines)


def test_the_newest_job_is_shown_and_q_leaves_the_terminal_as_it_was(head: StandInHead) -> None:
    with top(head) as terminal:
        screen = terminal.wait_for("node000003 no data")
        assert f"{JOB}  RUNNING" in screen
        assert "117G/448G" in screen
        assert terminal.shown.in_alternate
        terminal.type("q")
        assert terminal.wait() == 0
        assert (terminal.shown.in_alternate, terminal.shown.cursor_hidden) == (False, False)
        assert (terminal.settings, terminal.shown.unknown) == (terminal.mode, [])
        assert terminal.text.strip() == ""


def test_keys_and_resizes(head: StandInHead) -> None:
    head.write(samples(4), ahead=600)  # no sample is late, however slow this machine is
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        for keys, seen in (
            ("r", "1-19 of 36"),
            ("\x1b[6~", "18-36 of 36"),
            ("\x1b[1~", "1-19 of 36"),
            ("jj\x1bOA", "2-20 of 36"),
            ("rs", "sort: cpu"),
            ("f", "no node has a flag"),
            ("f?", "this help, and back"),
            ("\x1b", "node000000 ok"),
        ):
            terminal.type(keys)
            terminal.wait_for(seen)
        terminal.resize(120, 60)
        terminal.wait_for("power W")
        terminal.resize(40, 24)
        terminal.wait_for(lambda text: "s sort: cpu" in text and "power W" not in text)
        assert terminal.shown.unknown == []


def test_newer_samples_are_shown_within_a_second_or_so(head: StandInHead) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("step 1800 to 1804")
        newer = samples(4)
        assert newer.live is not None
        for rank in newer.live["ranks"].values():
            rank["metrics"]["step"] = 1900.0
        head.write(newer)
        terminal.wait_for("step 1900 ", 3)


def test_the_last_screen_stays_while_the_connection_is_broken_and_it_connects_again(
    head: StandInHead,
) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        head.cut(JOB)
        broken = terminal.wait_for("no answer for 1 s from node000000, connects again", 5)
        assert "node000003 no data" in broken
        terminal.wait_for(lambda text: "no answer" not in text, 10)
        head.write(samples(4, state=replace(job_state(4), restarts=3)))
        terminal.wait_for("3 restarts")


def test_a_watcher_that_is_stopped_is_replaced(head: StandInHead) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        (stopped,) = head.watchers(JOB)
        os.kill(stopped, signal.SIGSTOP)
        try:
            terminal.wait_for("no answer for 4 s", 8)
            terminal.wait_for(lambda text: "no answer" not in text, 20)
        finally:
            os.kill(stopped, signal.SIGKILL)


def test_a_head_that_comes_back_is_watched_again(head: StandInHead) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        with head.down():
            terminal.wait_for("no answer for 5 s", 10)
            terminal.type("r")
            terminal.wait_for("of 36")  # keys still work
        head.write(samples(4))
        terminal.wait_for(lambda text: "no answer" not in text, 20)
        terminal.type("q")
        assert terminal.wait() == 0


def test_the_end_of_a_job_stays_on_the_screen_until_q(head: StandInHead) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        failure = Failure(3, "node000000", 9, ("boom",))
        head.write(
            samples(4, state=job_state(4, "FAILED", reason="rank 3 failed", exit_status=9, failure=failure))
        )
        ended = terminal.wait_for("ended FAILED, exit status 9: rank 3 failed", 5)
        assert "first failure: rank 3 on node000000; its last lines:\n  boom" in ended
        terminal.read(4)
        assert "no answer" not in terminal.text
        terminal.type("q")
        assert terminal.wait() == 0


def test_several_jobs_are_chosen_by_number_and_tab(head: StandInHead) -> None:
    head.write(samples(2, 1, state=OTHER))
    with top(head) as terminal:
        terminal.wait_for(f"2 {OTHER.job} RUNNING")
        terminal.wait_for(f"{OTHER.job}  RUNNING")
        terminal.type("1")
        terminal.wait_for(f"{JOB}  RUNNING")
        terminal.type("\t")
        terminal.wait_for(f"{OTHER.job}  RUNNING")
        terminal.type("9")
        terminal.read(0.5)
        assert f"{OTHER.job}  RUNNING" in terminal.text


def test_ctrl_c_and_signals_end_it_with_the_terminal_restored(head: StandInHead) -> None:
    for number, keys in ((signal.SIGINT, "\x03"), (signal.SIGTERM, ""), (signal.SIGHUP, "")):
        with top(head, JOB) as terminal:
            terminal.wait_for("node000003 no data")
            if keys:
                terminal.type(keys)
            else:
                os.kill(terminal.process.pid, number)
            assert terminal.wait() == 128 + number
            assert (terminal.shown.in_alternate, terminal.settings) == (False, terminal.mode)
            assert "jobs are not affected" in terminal.text


def test_once_prints_text_and_json_a_record_without_a_terminal(head: StandInHead) -> None:
    ran = fab(head.folder, "top", "--once")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"{JOB}  RUNNING" in ran.stdout
    assert len(ran.stdout.splitlines()) == 3 + 2 + 4 + 32
    assert "\x1b" not in ran.stdout
    head.write(samples(4))  # those before have aged by a command's time
    record = json.loads(fab(head.folder, "top", JOB, "--json").stdout)
    assert record["state"]["job"] == JOB
    assert record["live"]["ranks"]["17"]["node"] == "node000002"
    assert [one["kind"] for one in record["flags"]] == ["stale"]


def test_without_a_terminal_it_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    write_project(tmp_path, "dev", fabfile=True)
    ran = fab(tmp_path, "top")
    assert ran.returncode == 2
    assert "terminal: there is none; use --once for text, or --json for a record" in ran.stderr


def test_a_job_that_does_not_exist_is_an_error(head: StandInHead) -> None:
    ran = fab(head.folder, "top", "gone-20260301-090507-ffff", "--once")
    assert ran.returncode == 2
    assert "gone-20260301-090507-ffff" in ran.stderr


def test_records_that_vanish_end_it_with_an_error_after_the_screen(head: StandInHead) -> None:
    with top(head, JOB) as terminal:
        terminal.wait_for("node000003 no data")
        head.clear()
        assert terminal.wait() == 2
        assert not terminal.shown.in_alternate
        assert f"no job {JOB} on this head" in " ".join(terminal.text.split())
