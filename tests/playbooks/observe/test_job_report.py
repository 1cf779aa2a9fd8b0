"""``fab report`` and the end of ``fab job``, over a head that answers with fixed records."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.inventory import Inventory, Node
from infra.preflight import prices
from infra.preflight.prices import Prices
from launch.client.query import JobReport
from launch.client.samples import JobSamples
from launch.errors import GiveUpError
from launch.remote.sample.sample_records import Flag
from playbooks.jobs import show
from playbooks.jobs.location import Place
from playbooks.observe import job_facts, job_report
from playbooks.project import Stack
from tests.launch.report.sample_job import START, history, phase
from tests.launch.report.sample_job import report as sample_report

HEAD = Node("node000000", 0, "", "", 1, 8, "running")
JOB = "train-20260301-120000-0f3a"
FLAG: Flag = {"kind": "slow", "node": "node000002", "rank": -1, "text": "node000002 34 % slower"}
Task = Callable[..., str]


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Task:
    """Runs a task in a folder of its own; returns its stdout."""
    monkeypatch.chdir(tmp_path)
    inventory = Inventory("dev", "Standard_ND96asr_v4", "westeurope", "me", (HEAD,))
    for module in (show, job_report):
        monkeypatch.setattr(module, "open_from", lambda *_: Stack("dev", tmp_path, {}))
    monkeypatch.setattr(Stack, "saved", lambda _: inventory)
    monkeypatch.setattr(Stack, "settings", lambda _: {"ranklift:vmSize": "Standard_ND96asr_v4"})
    monkeypatch.setattr("playbooks.jobs.location.find_job", lambda *_: Place(HEAD, "abc"))
    monkeypatch.setattr(show, "find_job", lambda *_: Place(HEAD, "abc"))
    cluster = SimpleNamespace(host=lambda _: None)
    monkeypatch.setattr("playbooks.ssh.connection.Cluster", lambda *_: nullcontext(cluster))
    for name in ("launch.client.query", "playbooks.observe.job_facts"):
        monkeypatch.setattr(f"{name}.show_job", lambda *_, **__: sample_report())
    sampled = JobSamples(sample_report().state, None, history(), (FLAG,), START + 200)
    monkeypatch.setattr(job_facts, "job_samples", lambda *_: sampled)
    monkeypatch.setattr(prices, "vm_prices", lambda *_: Prices(regular=27.197))

    def run(name: str, **given: object) -> str:
        body = {"report": job_report.report, "job": show.job}[name].body
        body(Context(), JOB, **given)
        return capsys.readouterr().out

    return run


def refusal(task: Task, capsys: pytest.CaptureFixture[str], **given: object) -> str:
    with pytest.raises(Exit) as caught:
        task("report", **given)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_a_tag_is_added_and_shown(
    task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tag_job(job: str, _: object, tags: dict[str, str], *, remote: str) -> JobReport:
        state = replace(sample_report().state, tags=tags)
        return replace(sample_report(), state=state)

    monkeypatch.setattr("launch.client.query.tag_job", tag_job)
    given = ["stage=baseline", "note=a=b\x1b[2J", "empty="]
    text = task("job", tag=given)
    assert "\ntags      stage=baseline, note=a=b" in text
    assert "\x1b" not in text
    for wrong in ("stage", "=baseline"):
        with pytest.raises(Exit):
            task("job", tag=[wrong])
        assert f"--tag = '{wrong}': is not NAME=VALUE; " in capsys.readouterr().err


def test_the_report_is_a_file_named_after_the_job(task: Task, tmp_path: Path) -> None:
    assert task("report") == f"report-{JOB}.html\n"
    text = (tmp_path / f"report-{JOB}.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "at 27.20 USD an hour each, the regular list price" in text
    assert "<li>node000002 34 % slower</li>" in text


@pytest.mark.parametrize("name", ["report", "job"])
def test_records_that_a_rank_has_damaged_are_an_error_by_the_jobs_name(
    name: str, task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = phase("run", 0, 1)
    odd = replace(sample_report(), events=(replace(run, fields={**run.fields, "end": 1e308}),))
    for module in ("launch.client.query", "playbooks.observe.job_facts"):
        monkeypatch.setattr(f"{module}.show_job", lambda *_, **__: odd)
    with pytest.raises(Exit):
        task(name)
    assert f"job {JOB}: its records are damaged: OverflowError" in capsys.readouterr().err


def test_json_names_the_file(task: Task) -> None:
    assert json.loads(task("report", output="one.html", json=True)) == {"report": "one.html"}


def test_a_file_that_exists_is_kept_unless_it_may_be_replaced(
    task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.html").write_text("mine")
    words = "--output = 'mine.html': exists already; give another file, or --overwrite"
    assert words in refusal(task, capsys, output="mine.html")
    assert (tmp_path / "mine.html").read_text() == "mine"
    task("report", output="mine.html", overwrite=True)
    assert (tmp_path / "mine.html").read_text().startswith("<!DOCTYPE")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("leads_to", ["", "mine"])
def test_a_report_goes_through_no_link_that_is_there_under_its_own_name(
    task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str], leads_to: str, overwrite: bool
) -> None:
    outside = tmp_path / "outside"
    if leads_to:
        outside.write_text(leads_to)
    (tmp_path / f"report-{JOB}.html").symlink_to(outside)
    assert f"--output = 'report-{JOB}.html': is a link; " in refusal(task, capsys, overwrite=overwrite)
    assert outside.exists() == bool(leads_to)
    assert not leads_to or outside.read_text() == leads_to


@pytest.mark.parametrize("before", [None, 0o644, 0o666])
def test_its_user_alone_may_read_the_report(task: Task, tmp_path: Path, before: int | None) -> None:
    mine = tmp_path / "mine.html"
    if before is not None:
        mine.write_text("x" * 1_000_000)
        mine.chmod(before)
    task("report", output="mine.html", overwrite=before is not None)
    assert mine.stat().st_mode & 0o777 == 0o600
    assert mine.read_text().endswith("</html>")


def test_a_report_for_a_device_leaves_it_as_it_is(task: Task) -> None:
    before = Path("/dev/null").stat()
    task("report", output="/dev/null", overwrite=True)
    after = Path("/dev/null").stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize(
    ("output", "words"),
    [(".", "is a folder; give the name of a file"), ("no/such.html", "has no folder; make no first")],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_head_is_asked(
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
    words: str,
) -> None:
    monkeypatch.setattr(job_facts, "show_job", lambda *_, **__: pytest.fail("was asked"))
    assert words in refusal(task, capsys, output=output)


def test_a_price_that_is_not_found_leaves_the_cost_unknown_with_the_reason(
    task: Task, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prices, "vm_prices", lambda *_: Prices())
    task("report", output="one.html")
    words = "Cost: unknown: the price list has no regular price of Standard_ND96asr_v4 there"
    assert words in (tmp_path / "one.html").read_text()


def test_a_job_is_shown_with_its_phases_goodput_and_advice(task: Task) -> None:
    text = task("job")
    assert "\nphases\n  environment made        62.0 s\n" in text
    assert "\ngoodput   48 %: 130.8 s of 275.0 s in steps that were kept" in text
    assert "\nadvice    its environment took 62.0 s of 275.0 s" in text


def never(*_: object) -> JobSamples:
    raise GiveUpError("node000000: its node code is older than this command")


def test_a_job_of_older_node_code_is_shown_without_phases_and_not_asked_for_samples(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_facts, "job_samples", lambda *_: pytest.fail("was asked"))
    monkeypatch.setattr("launch.client.query.show_job", lambda *_, **__: sample_report(events=()))
    assert "phases" not in task("job")


def test_a_job_without_samples_has_phases_and_an_unknown_goodput(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = (phase("queue", 0, 4), phase("run", 4, 9))
    monkeypatch.setattr("launch.client.query.show_job", lambda *_, **__: sample_report(events=events))
    monkeypatch.setattr(job_facts, "job_samples", never)
    assert "\ngoodput   unknown: nothing was sampled\n" in task("job")


def test_a_collected_folder_and_a_job_exclude_each_other(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--collected = 'results': cannot be combined with a job; give one of the two"
    assert words in refusal(task, capsys, collected="results")


def test_a_collected_folder_needs_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job_report, "open_from", lambda *_: pytest.fail("a stack was opened"))
    with pytest.raises(Exit) as caught:
        job_report.report.body(Context(), "newest", collected=str(tmp_path))
    assert caught.value.code == 2
