"""scaling.json: written, read, continued, refused."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from launch.errors import InputError
from launch.scaling.metric_numbers import NoThroughput, SourceLine
from launch.scaling.point_transport import Transport
from launch.scaling.scaling_page import page
from launch.scaling.scaling_plan import Run
from launch.scaling.scaling_study import FailedRun, continued, read_study, study_record
from launch.scaling.scaling_table import csv_text, result_record, sources
from launch.scaling.scaling_verdict import analyse
from tests.launch.scaling.studies import PLAN, SUBJECT, study

MEASURED = study({1: [100.0, 101.0], 2: [190.0, 191.0]}).with_failure(FailedRun(Run(0, 4), "t-4", "lost"))


def test_what_is_written_is_read_again() -> None:
    assert read_study(json.dumps(study_record(MEASURED))) == MEASURED
    assert read_study(json.dumps(result_record(MEASURED, analyse(MEASURED)))) == MEASURED


def changed(path: str, value: Any) -> str:
    record = json.loads(json.dumps(study_record(MEASURED)))
    *keys, last = path.split(".")
    part = record
    for key in keys:
        part = part[int(key) if key.isdigit() else key]
    part[last] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"version": 1}', "[" * 100_000),
        changed("version", 1),
        changed("runs.0.figures.sources", [{"figure": "5", "line": "", "count": 1}]),
        changed("runs.0.figures.is_total", 1),
        changed("plan.counts", "1,2"),
        changed("plan.repeats", "3"),
        changed("plan.warm_up", -1),
        changed("subject.rehearsed", "no"),
        changed("subject.nodes", None),
        changed("runs", 3),
        changed("runs.0.job", 3),
        changed("runs.0.run.nodes", 0),
        changed("runs.0.run.repeat", True),
        changed("runs.0.figures.by_rank", {"0": [-1.0]}),
        changed("runs.0.figures.by_rank", {"zero": [1.0]}),
        changed("runs.0.seconds", float("inf")),
        changed("failures.0.reason", None),
    ],
    ids=lambda text: text[:8],
)
def test_what_is_not_a_measurement_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"^scaling\.json"):
        read_study(text)


def test_a_run_that_succeeds_removes_its_earlier_failure() -> None:
    (one,) = study({4: [300.0]}).runs
    assert MEASURED.with_run(one).failures == ()
    assert MEASURED.done == {Run(0, 1), Run(1, 1), Run(0, 2), Run(1, 2)}


def test_more_repeats_and_another_reading_continue_a_measurement() -> None:
    plan = replace(PLAN, counts=(1, 2, 4), repeats=5, mode="strong", warm_up=3, basis="rank")
    subject = replace(SUBJECT, nodes=SUBJECT.nodes[:2], job_file="./job.yml")
    found = continued(MEASURED, plan, subject)
    assert (found.plan, found.runs) == (plan, MEASURED.runs)


@pytest.mark.parametrize(
    ("plan", "subject", "says"),
    [
        (replace(PLAN, pattern="speed ([0-9]+)"), SUBJECT, "metric"),
        (PLAN, replace(SUBJECT, fingerprint="0"), "job file, code or options"),
        (PLAN, replace(SUBJECT, stack="prod"), "stack"),
        (PLAN, replace(SUBJECT, size="Standard_ND96asr_v4"), "size"),
        (PLAN, replace(SUBJECT, nodes=("node000007",)), "nodes"),
    ],
)
def test_figures_of_another_job_are_not_continued(plan: Any, subject: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"--resume.*another {says}; take another --output"):
        continued(MEASURED, plan, subject)


def test_repeats_and_nodes_that_the_plan_no_longer_has_do_not_count() -> None:
    fewer = replace(MEASURED, plan=replace(MEASURED.plan, counts=(1, 4), repeats=1))
    assert fewer.samples() == {1: [100.0], 4: []}


def test_a_run_without_throughput_is_named() -> None:
    late = replace(MEASURED, plan=replace(MEASURED.plan, warm_up=1))
    with pytest.raises(NoThroughput, match=r"^job train-1-0, repeat 1 on 1 node: no rank printed more"):
        late.samples()


def test_an_earlier_version_is_named() -> None:
    with pytest.raises(InputError, match=r"^scaling\.json = 1: is not of version 2; take another --output"):
        read_study('{"version": 1}')


def test_lines_that_figures_were_read_from_are_named_once_for_all_runs() -> None:
    line = SourceLine(1000.0, "step 1 loss 0.5 samples/s 1000\x07", 4)
    other = SourceLine(2000.0, "step 9 loss 0.1 samples/s 2000", 8)
    first, second, *rest = MEASURED.runs
    runs = [
        replace(run, figures=replace(run.figures, sources=(source,)))
        for run, source in ((first, line), (second, other))
    ]
    made = replace(MEASURED, runs=(*runs, *rest))
    assert read_study(json.dumps(study_record(made))) == made
    assert sources(made) == ["1000 in 12 lines like: step 1 loss 0.5 samples/s 1000^G"]
    assert sources(made)[0] in page(made, analyse(made))


def test_csv_has_a_line_for_each_run() -> None:
    lines = csv_text(MEASURED, analyse(MEASURED)).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("nodes,ranks,repeat,job,figures,throughput,")
    assert lines[3] == (
        '2,16,1,train-2-0,1,190.0,190.5,0.947761,"InfiniBand, 1 HCA a node: as its ranks print",9.0'
    )


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_csv_is_a_formula(sign: str) -> None:
    made = study({1: [100.0]}, transports={1: Transport("none", "", f"{sign}HYPERLINK(1)")})
    (line,) = list(csv.DictReader(io.StringIO(csv_text(made, analyse(made)), newline="")))
    assert line["transport"] == f"'{sign}HYPERLINK(1)"


@pytest.mark.parametrize("number", ["-1", "+2.5", "-1.5e-3"])
def test_a_number_of_csv_stays_one(number: str) -> None:
    made = study({1: [100.0]}, transports={1: Transport("none", "", number)})
    (line,) = list(csv.DictReader(io.StringIO(csv_text(made, analyse(made)), newline="")))
    assert line["transport"] == number
