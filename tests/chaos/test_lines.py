"""The merged log of many ranks: every line once, each rank's in order."""

from __future__ import annotations

import re
import time

import pytest

from tests.chaos.conftest import NODES, Figures
from tests.chaos.engine import Engine

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

EACH, LINES = 4, 2000
LIMIT_S = 120.0
LINE = re.compile(r"\[(\d+) (\w+)\] rank (\d+) line (\d+) (\.*)")


def test_256_ranks_with_2000_lines_each_lose_none(engine: Engine, figures: Figures) -> None:
    names = list(engine.living)
    began = time.monotonic()
    words = ("launch.torch", f"lines.py {LINES}", "--source", "ranks", "--nproc-per-node", str(EACH))
    ran = engine.workplace.fab(*words, "--name", "lines")
    took = time.monotonic() - began
    (job,) = set(re.findall(r"^job (\S+) STARTING$", ran.err, re.MULTILINE))
    again = engine.workplace.fab("logs", job)
    figures.append(
        (
            f"{NODES} x {EACH} ranks, {LINES} lines each",
            f"{NODES * EACH * LINES} lines",
            f"{len(ran.out.splitlines())}",
            f"{took:.1f} s",
            f"{LIMIT_S:g} s",
            *[""] * 2,
        )
    )
    for shown in (ran.out, again.out):
        next_line = [0] * (NODES * EACH)
        for line in shown.splitlines():
            found = LINE.fullmatch(line)
            assert found is not None, line
            rank, number = int(found[3]), int(found[4])
            assert (int(found[1]), found[2]) == (rank, names[rank // EACH]), line
            assert (number, len(found[5])) == (next_line[rank], number % 40), line
            next_line[rank] += 1
        assert next_line == [LINES] * (NODES * EACH)
    assert took <= LIMIT_S
