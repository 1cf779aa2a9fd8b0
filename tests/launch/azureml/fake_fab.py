"""A ``fab`` beside ``sys.executable`` that records how it was called and answers as it is told."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PYTHON = sys.executable
JOB = "experiment-name-20260301-090507-0f3a"
NODES = ("node000000", "node000001")

_PROGRAM = """\
#!{python}
import json, os, pathlib, shutil, sys, time
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
call = {{"words": list(words), "cwd": os.getcwd()}}
if words[0] == "--search-root":
    call["fabfile"] = pathlib.Path(words[1], "fabfile.py").read_text()
    call["words"] = words = words[2:]
if words[0] == "launch":
    call["job"] = pathlib.Path(words[1]).read_text()
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(call) + "\\n")
answer = json.loads((here / "answers.json").read_text())[words[0]]
if isinstance(answer, list):
    count = sum(json.loads(line)["words"][0] == words[0] for line in open(here / "calls.jsonl"))
    answer = answer[min(count, len(answer)) - 1]
sys.stderr.write(answer.get("err", "").replace("JOB.YML", "".join(words[1:2])))
sys.stdout.write(answer.get("out", ""))
if words[0] == "collect":
    shutil.copytree(here / "files", pathlib.Path(words[words.index("--into") + 1], words[1]))
sys.exit(answer.get("status", 0))
"""


def record(state: str, **changes: Any) -> dict[str, Any]:
    """One row of ``fab jobs --json``."""
    over = state in ("SUCCEEDED", "INCOMPLETE", "FAILED", "CANCELLED", "LOST")
    row: dict[str, Any] = {
        "job": JOB,
        "name": "experiment-name",
        "kind": "pytorch",
        "state": state,
        "reason": "",
        "exit_status": 0 if state == "SUCCEEDED" else None,
        "nodes": list(NODES),
        "ranks": 4,
        "port": 6105,
        "created": "2026-03-01T09:05:07+00:00",
        "started": None if state == "QUEUED" else "2026-03-01T09:05:08+00:00",
        "ended": "2026-03-01T09:06:00+00:00" if over else None,
        "failure": None,
        "experiment": "experiment_name",
        "tags": {},
    }
    return row | changes


FAILED = record(
    "FAILED",
    reason="rank 2 on node000001 ended with exit status 3",
    exit_status=3,
    failure={"rank": 2, "node": "node000001", "status": 3, "last_lines": ["loss is nan", "giving up"]},
)


@dataclass
class FakeFab:
    """The program, its answers by task, and its calls."""

    folder: Path
    answers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.folder / "fab"
        program.write_text(_PROGRAM.format(python=PYTHON))
        program.chmod(0o755)
        (self.folder / "files").mkdir()
        self.answer("launch", out=json.dumps({"job": JOB, "head": NODES[0]}))
        self.answer("logs", out="[0 node000000] epoch 1\n[3 node000001] epoch 1\n")
        self.answer("collect", out="{}")
        self.answer("cancel", out="{}")
        self.state("SUCCEEDED")

    def answer(self, task: str, **how: Any) -> None:
        """From now on: ``out``, ``err`` and ``status`` of a task."""
        self._set(task, how)

    def state(self, *states: str | dict[str, Any]) -> None:
        """What ``fab jobs`` says, one after the other; the last stays."""
        rows = [record(state) if isinstance(state, str) else state for state in states]
        self._set("jobs", [{"out": json.dumps([row])} for row in rows])

    def _set(self, task: str, how: Any) -> None:
        self.answers[task] = how
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def file(self, path: str, text: str) -> None:
        """One file of what ``fab collect`` brings."""
        (self.folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "files" / path).write_text(text)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """All calls until now."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def words(self, task: str) -> list[list[str]]:
        """The calls of one task, without the job file's place."""
        calls = [call["words"] for call in self.calls if call["words"][0] == task]
        return [["launch", *words[2:]] if task == "launch" else words for words in calls]


def install(folder: Path, patch: pytest.MonkeyPatch) -> FakeFab:
    """Puts the program where the classes look for it."""
    folder.mkdir()
    patch.setattr(sys, "executable", str(folder / "python"))
    return FakeFab(folder)
