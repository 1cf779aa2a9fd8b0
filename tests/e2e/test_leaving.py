"""Leaving a job and coming back to it; ending it from two terminals, in the queue, without its supervisor."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.e2e.workplace import LIMIT_S, Workplace

pytestmark = pytest.mark.timeout(1200)

SLEEP = """\
import os, sys, time
print("begins", flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]) if os.environ["RANK"] == "1" else 0)
"""
ORPHANS = """\
trap "" TERM
(setsid sh -c 'trap "" TERM; while :; do sleep 1; done' >/dev/null 2>&1 &)
echo begins
while :; do sleep 1; done
"""
NODES = ("--nodes", "0-1", "--source", "leaving")
OF_JOB = (
    "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ 2>/dev/null | "
    "grep -qx RANKLIFT_JOB_ID={} && echo ${{p#/proc/}}; done; true"
)
KILL_ITS_MINDERS = (
    "found=$(for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | "
    "grep -Eq '__main__.py (node|submit)' && echo ${p#/proc/}; done); "
    "kill -STOP $found; kill -9 $found"
)
"""Stopped first: a guardian that sees its runner killed ends what that leaves."""


@pytest.fixture(scope="module")
def code(cluster: Workplace) -> Workplace:
    folder = cluster.own / "leaving"
    folder.mkdir()
    (folder / "sleep.py").write_text(SLEEP)
    (folder / "orphans.sh").write_text(ORPHANS)
    return cluster


@pytest.fixture
def running(code: Workplace) -> Iterator[str]:
    """A job that holds all slots of both nodes until it is cancelled."""
    job = code.fab("launch.torch", "sleep.py 3600 0", *NODES, "--detach").out.strip()
    yield job
    code.fab("cancel", job, "--grace", "0")


def processes(workplace: Workplace, job: str) -> list[str]:
    """Of that job, on both nodes, as /proc has them."""
    answers = workplace.fab("exec", OF_JOB.format(job), "--nodes", "0-1", "--json").json()
    return [pid for answer in answers.values() for pid in answer["stdout"].split()]


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What was shown up to the line in which the pattern is."""
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if re.search(pattern, line):
            return shown
    raise AssertionError(f"never said {pattern}:\n{shown}")


def state(workplace: Workplace, job: str) -> str:
    return str(workplace.fab("job", job, "--json").json()["state"]["state"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_a_job_in_the_queue_that_can_be_cancelled_without_being_started(
    code: Workplace, running: str, number: signal.Signals
) -> None:
    with code.begin("launch.torch", "sleep.py 1 0", *NODES) as process:
        shown = read_until(process, "QUEUED")
        os.kill(process.pid, number)
        assert process.stdout is not None
        shown += process.stdout.read()
    assert process.returncode == 128 + number, shown
    (job,) = set(re.findall(r"^job (\S+) continues$", shown, re.MULTILINE))
    assert f"  cancel: fab cancel {job} --stack rehearsal\n" in shown
    (row,) = (row for row in code.fab("jobs", "--json").json() if row["job"] == job)
    assert (row["state"], row["place"], row["waits_for"]) == ("QUEUED", 1, [running])
    assert code.fab("cancel", job).out == f"job {job} CANCELLED: it was waiting, nothing was started\n"
    assert code.fab("cancel", job).out == f"job {job} had ended before: CANCELLED\n"
    assert code.fab("job", job, "--json").json()["ends"] == []
    assert state(code, running) == "RUNNING"


def test_wait_is_silent_and_ends_as_the_jobs_do(code: Workplace) -> None:
    jobs = [
        code.fab("launch.torch", f"sleep.py 1 {status}", *NODES, "--detach").out.strip() for status in (0, 7)
    ]
    good = code.fab("wait", jobs[0])
    assert (good.out, good.err) == ("", "")
    bad = code.fab("wait", *jobs, "--json", status=7)
    assert [one["state"] for one in bad.json()] == ["SUCCEEDED", "FAILED"]
    assert f"error: job {jobs[1]} FAILED: rank 1 on node000001 ended with exit status 7\n" in bad.err
    result = code.fab("job", jobs[1]).out
    assert re.search(r"^ranks +0.*; 1 on node000001 ended with 7$", result, re.MULTILINE), result
    assert "first failure: rank 1 on node000001, exit status 7\n  begins\n" in result


def test_two_terminals_cancel_at_once_and_each_is_told_the_end(code: Workplace, running: str) -> None:
    late = code.fab("wait", running, "--timeout", "1s", status=124)
    assert f"job {running} (RUNNING) did not end within 1 s" in late.err
    with code.begin("cancel", running) as one, code.begin("cancel", running) as other:
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), outputs
    assert f"job {running} CANCELLED: all its processes ended on 2 nodes\n" in outputs
    assert processes(code, running) == []
    assert code.fab("wait", running, status=130).out == ""


def test_what_a_job_without_supervisor_and_runners_left_is_ended_by_its_id(code: Workplace) -> None:
    with code.begin("launch.torch", "sh orphans.sh", *NODES) as process:
        shown = read_until(process, "begins")
        (job,) = set(re.findall(r"^job (\S+) STARTING$", shown, re.MULTILINE))
        code.fab("exec", KILL_ITS_MINDERS, "--nodes", "0-1")
    assert len(processes(code, job)) >= 2
    assert state(code, job) == "LOST"
    begun = time.monotonic()
    ended = code.fab("cancel", job, "--grace", "1s").out
    assert time.monotonic() - begun >= 1
    assert ended.startswith(f"job {job} had ended before: LOST\n  node"), ended
    assert "ended\n" in ended
    assert processes(code, job) == []
    assert state(code, job) == "LOST"
