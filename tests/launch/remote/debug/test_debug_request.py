"""A request to a supervisor, and the answers that it takes."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from launch.remote.base import job_dir, processes, timing
from launch.remote.base.files import replace_file
from launch.remote.debug.debug_request import ANSWER, NotDebugged, read_request, request_debug
from tests.launch.remote.sample_records import sample_plan, sample_state

JOB = "t-20260301-090507-0f3a"


@pytest.fixture
def folder() -> Iterator[job_dir.Folder]:
    """The records of a running job."""
    made = job_dir.Folder(JOB)
    made.create(sample_plan(JOB))
    made.write_state(sample_state(JOB, supervisor=processes.identity(os.getpid())))
    yield made
    shutil.rmtree(made.path)


@contextmanager
def supervisor(folder: job_dir.Folder, answer_to: Callable[[str], str], seconds: float) -> Iterator[None]:
    """A supervisor that answers the request that it sees with a look of so many seconds that ends now."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.01):
            found = read_request(folder)
            if found is not None:
                answer = {"request": answer_to(found[0]), "time": time.time(), "seconds": seconds}
                replace_file(folder.file(ANSWER), json.dumps(answer).encode(), outlives_machine=False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_its_own_answer_is_taken(folder: job_dir.Folder) -> None:
    with supervisor(folder, lambda request: request, seconds=9.0):
        assert request_debug(JOB, "py-spy")["seconds"] == 9.0


def test_an_answer_to_a_later_request_that_replaced_it_is_taken(folder: job_dir.Folder) -> None:
    with supervisor(folder, lambda _: "another", seconds=0.0):
        assert request_debug(JOB, "py-spy")["request"] == "another"


def test_a_look_that_began_before_the_request_is_not_taken(
    folder: job_dir.Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "DEBUG_STEP_S", 0.2)
    with (
        supervisor(folder, lambda _: "another", seconds=60.0),
        pytest.raises(NotDebugged, match=r"did not answer within 0\.2 s"),
    ):
        request_debug(JOB, "py-spy")
