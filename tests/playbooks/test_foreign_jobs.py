"""A head that lists a job of another head is not believed."""

from __future__ import annotations

import json
from pathlib import Path

from playbooks.foreign_jobs import foreign, own_jobs, strangers
from playbooks.project import Stack
from tests.playbooks.jobs.test_tables import state

VICTIM, ENDED, OTHER = state("t-1", "RUNNING"), state("t-1", "SUCCEEDED"), state("t-2", "QUEUED")
TRUE, LIAR = "node000001", "node000000"


def noted(folder: Path, job: str, head: str) -> Stack:
    stack = Stack("dev", folder, {})
    stack.jobs.mkdir(parents=True, exist_ok=True)
    (stack.jobs / f"{job}.json").write_text(json.dumps({"head": head}))
    return stack


def test_the_head_noted_here_is_the_jobs(tmp_path: Path) -> None:
    stack = noted(tmp_path, "t-1", TRUE)
    reason = f"it lists job t-1, whose head is {TRUE} as far as is known here"
    assert strangers(stack, {LIAR: [VICTIM], TRUE: [VICTIM, OTHER]}) == {LIAR: reason}
    assert strangers(stack, {LIAR: [VICTIM]}) == {LIAR: reason}


def test_without_a_note_neither_of_two_heads_is_believed(tmp_path: Path) -> None:
    stack = Stack("dev", tmp_path, {})
    assert set(strangers(stack, {LIAR: [VICTIM], TRUE: [VICTIM]})) == {LIAR, TRUE}
    assert strangers(stack, {LIAR: [OTHER], TRUE: [VICTIM]}) == {}


def test_a_job_that_has_ended_is_nobodys_to_cancel(tmp_path: Path) -> None:
    assert strangers(noted(tmp_path, "t-1", TRUE), {LIAR: [ENDED], TRUE: [VICTIM]}) == {}


def test_a_note_that_is_none_counts_as_no_note(tmp_path: Path) -> None:
    stack = noted(tmp_path, "t-1", TRUE)
    (stack.jobs / "t-1.json").write_text("[]")
    assert strangers(stack, {LIAR: [VICTIM]}) == {}


def test_an_ended_job_of_another_head_is_foreign_as_well(tmp_path: Path) -> None:
    stack = noted(tmp_path, "t-1", TRUE)
    assert foreign(stack, {LIAR: ["t-1", "t-3"], TRUE: ["t-1", "t-2"]}) == {LIAR: {"t-1": TRUE}}


def test_a_heads_own_jobs_are_those_that_no_other_one_is_known_to_have(tmp_path: Path) -> None:
    listed = {LIAR: [ENDED, OTHER], TRUE: [ENDED]}
    assert own_jobs(noted(tmp_path, "t-1", TRUE), listed) == {LIAR: {"t-2"}, TRUE: {"t-1"}}
    assert own_jobs(Stack("dev", tmp_path / "empty", {}), listed) == {LIAR: {"t-2"}, TRUE: set()}
