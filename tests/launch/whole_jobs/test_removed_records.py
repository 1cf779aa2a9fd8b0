"""A job whose records were removed from its head while it ran."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from launch.client import submit
from launch.client.cancel import end_job
from launch.client.query import list_some
from launch.errors import NoSuchJob
from launch.job.spec import Kind
from tests.launch.standin import Nodes, left_of, shell, until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

KINDS = pytest.mark.parametrize("kind", ["mpi", "pytorch"])


def jobs_of_head(nodes: Nodes) -> Path:
    return nodes.folder / "node000000/.ranklift/jobs"


def remove_records(nodes: Nodes) -> None:
    """As ``rm -rf`` does it, also while files are written there."""
    while jobs_of_head(nodes).exists():
        shutil.rmtree(jobs_of_head(nodes), ignore_errors=True)


@KINDS
@pytest.mark.parametrize("restarts", [0, 1])
def test_its_supervisor_ends_its_ranks_on_every_node(nodes: Nodes, kind: Kind, restarts: int) -> None:
    made = nodes.plan(shell("touch mine; sleep 60", kind, max_restarts=restarts))
    job = submit.submit(made, nodes.head)
    marks = [nodes.folder / node.name / ".ranklift/jobs" / job / "work/mine" for node in nodes.nodes]
    until(lambda: all(mark.exists() for mark in marks))
    remove_records(nodes)
    until(lambda: not left_of(job))
    supervisors = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _is_of(path, nodes)]
    until(lambda: not any(_is_of(path, nodes) for path in supervisors))
    assert not (jobs_of_head(nodes) / job / "job.json").exists()
    again, _ = nodes.run(shell("true", kind))  # its slots and its port are free
    assert again.state == "SUCCEEDED"


def _is_of(cmdline: Path, nodes: Nodes) -> bool:
    try:
        environment = (cmdline.parent / "environ").read_bytes().split(b"\0")
        return f"STANDIN={nodes.folder}".encode() in environment and b"submit" in cmdline.read_bytes()
    except OSError:
        return False


def test_one_that_waits_ends_too(nodes: Nodes) -> None:
    first = submit.submit(nodes.plan(shell("sleep 60")), nodes.head)
    second = submit.submit(nodes.plan(shell("sleep 60")), nodes.head)
    until(lambda: left_of(first))
    shutil.rmtree(jobs_of_head(nodes) / second)
    queue = nodes.folder / "node000000/.ranklift/queue.json"
    until(lambda: second not in queue.read_text())
    assert first in queue.read_text()
    nodes.cancel(first)


def test_whoever_follows_or_asks_reads_which_job_has_no_records(nodes: Nodes) -> None:
    made = nodes.plan(shell("sleep 60"))

    def remove() -> None:
        until(lambda: left_of(made.id))
        remove_records(nodes)

    thread = threading.Thread(target=remove)
    thread.start()
    where = rf"\({jobs_of_head(nodes)}/{made.id}\)"
    words = rf"^job = '{made.id}': no job {made.id} on this head: it never existed, or its records were "
    with pytest.raises(NoSuchJob, match=rf"{words}removed {where}; see `fab jobs`; `fab cancel {made.id}` "):
        submit.submit_and_follow(made, nodes.head, lambda _: None)
    thread.join()
    with pytest.raises(NoSuchJob, match=words):
        end_job(made.id, nodes.head, remote="hash")
    assert list_some(nodes.head, remote="hash").jobs == ()
