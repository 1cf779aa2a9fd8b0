"""A job that is restarted, as its record and its report show it, and the report as a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.workplace import Workplace
from tests.see.browser import draw_page, open_page
from tests.see.running_jobs import until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

STEPS, CHECKPOINT, FAILS = 60, 20, 50
SCRIPT = f"""\
import os, sys, time
rank, again = int(os.environ["RANK"]), os.environ["RANKLIFT_RESTART_COUNT"] != "0"
for step in range({CHECKPOINT} * 2 + 1 if again else 1, {STEPS} + 1):
    time.sleep(0.2)
    print(f"step {{step}} loss: {{2.5 / step:.4f}} {{100 + rank:.1f}} samples/s", flush=True)
    if step % {CHECKPOINT} == 0:
        time.sleep(0.5)
        print("checkpoint saved in 0.50 s", flush=True)
    if step == {FAILS} and rank == 1 and not again:
        print("<script>document.title = 'mine'</script><img src=http://10.0.0.1/x>", flush=True)
        sys.exit(3)
"""
"""Fails once, ten steps after a checkpoint."""


@pytest.fixture(scope="module")
def job(cluster: Workplace) -> str:
    """The job, which has ended."""
    Path(cluster.own, "restarted.py").write_text(SCRIPT)
    words = ("--nodes", "0-1", "--nproc-per-node", "2", "--max-restarts", "1", "--detach")
    made = cluster.fab("launch.torch", "restarted.py", *words).out.strip()
    until(lambda: cluster.fab("job", made, "--json").json()["state"]["state"] == "SUCCEEDED", 90)
    return made


@pytest.fixture(scope="module")
def page(cluster: Workplace, job: str) -> Iterator[Path]:
    """The job's report."""
    made = Path(cluster.own, cluster.fab("report", job, "--overwrite").out.strip())
    yield made
    made.unlink()


@pytest.mark.for_every_change
def test_a_job_shows_its_phases_the_work_it_lost_and_its_goodput(
    cluster: Workplace, job: str, page: Path
) -> None:
    text = cluster.fab("job", job).out
    begun = text.index("\nphases\n")
    names = re.findall(r"^  (\S.*?)  +[\d:.]+(?: s)?", text[begun:], re.MULTILINE)
    assert names.count("ranks run") == names.count("end of the ranks") == 2
    assert "restart 1" in text[begun:]
    found = re.search(r"goodput   (\d+) %: .* in steps that were kept; (\d+) steps lost", text)
    assert found is not None, text
    share, lost = int(found[1]), int(found[2])
    assert 20 < share < 90
    assert abs(lost - (FAILS - 2 * CHECKPOINT)) <= 5  # what a sample a second sees of five steps a second
    shown = page.read_text()
    assert "InfiniBand" in shown
    assert "USD: 2 nodes (Standard_ND40rs_v2)" in shown
    assert "samples/s by node" in shown
    assert "&lt;script&gt;document.title" in shown


def test_a_collected_job_has_the_same_report_where_there_is_no_cluster(
    cluster: Workplace, job: str, page: Path, tmp_path: Path
) -> None:
    cluster.fab("collect", job, "--into", str(tmp_path / "results"))
    elsewhere = Workplace(tmp_path)  # another project, whose stack was never created
    named = elsewhere.fab("report", "--collected", str(tmp_path / "results" / job)).out.strip()
    collected, live = (re.findall(r"<tr>.*?</tr>", one.read_text()) for one in (elsewhere.own / named, page))
    assert len(live) > 20
    (where,) = (row for row in live if row not in collected)
    assert '<th scope="row">records</th>' in where
    text = (elsewhere.own / named).read_text()
    assert re.search(r"goodput[^%]*\d+ %", text, re.IGNORECASE)
    assert "samples/s by node" in text
    assert "unknown: no price list is asked for collected records" in text


class TestInABrowser:
    """Headless Chromium, in a network namespace of its own."""

    def test_a_report_asks_the_network_for_nothing_and_reports_no_error(
        self, page: Path, tmp_path: Path
    ) -> None:
        opened = open_page(page, tmp_path)
        assert opened.console == ()
        assert opened.requests == ()
        assert "<title>restarted-" in opened.document

    def test_a_picture_is_drawn_of_it(self, page: Path, tmp_path: Path) -> None:
        draw_page(page, tmp_path, "report", "1000,1556")

    def test_requests_and_errors_of_another_page_are_seen(self, tmp_path: Path) -> None:
        other = tmp_path / "other.html"
        other.write_text("<script>missing()</script><img src='http://10.0.0.1/x.png'>")
        opened = open_page(other, tmp_path)
        assert "missing is not defined" in opened.console[0]
        assert opened.requests == ("http://10.0.0.1/x.png",)
