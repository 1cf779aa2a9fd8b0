"""What a job's GPUs use, from the driver's library on rehearsed nodes to screens, metrics and reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workplace import Workplace
from tests.see.running_jobs import running_job, until

pytestmark = [pytest.mark.see, pytest.mark.timeout(300)]

GIB = 2**30
LOADS = {0: 60, 5: 20}
"""Percent by GPU of the second node; its other six do nothing, as those of the other nodes."""


def node_cells(text: str, node: str) -> list[str]:
    """The cells of a node's line on a screen of `fab top`."""
    (line,) = (line for line in text.splitlines() if re.match(rf"[ !]{node} ", line))
    return line.split()


def test_figures_of_gpus_are_on_the_screen_in_the_metrics_and_in_the_report(healed: Workplace) -> None:
    for device, percent in LOADS.items():
        healed.fab(
            *("rehearsal.fault", "gpu-load", "--nodes", "1"),
            *("--device", str(device), "--count", str(percent)),
        )
    with running_job(healed, "--nproc-per-node", "1", "--no-probe") as job:
        shown = until(lambda: _with_gpus(healed.fab("top", job, "--once").out))
        for node, cells in {
            "node000000": ["0", "0/275G", "400"],
            "node000001": ["10", "27G/275G", "600"],
        }.items():
            assert [cell for cell in cells if cell not in node_cells(shown, node)] == [], shown
        lines = healed.fab("metrics", "--once").out.splitlines()
        of_one = '{node="node000001",gpu="5"}'
        for family, value in {
            "utilisation_ratio": 0.2,
            "memory_used_bytes": 32 * GIB * 20 // 100,
            "memory_size_bytes": 32 * GIB,
            "power_watts": 100.0,
        }.items():
            (found,) = (line for line in lines if line.startswith(f"ranklift_node_gpu_{family}{of_one} "))
            assert float(found.split()[-1]) == pytest.approx(value), found
        until(lambda: "gpu" in _course(healed.fab("top", job, "--json").json()))
    page = Path(healed.own, healed.fab("report", job, "--overwrite").out.strip())
    text = page.read_text()
    page.unlink()
    assert "GPU utilisation" in text
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*node000001.*?</tr>", text, re.DOTALL)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert {"10 %", "600 W"} <= set(cells), cells


def _course(samples: Any) -> Any:
    """The figures of the second node of which the job has a course; it begins after some seconds."""
    return (samples["history"] or {"nodes": {}})["nodes"].get("node000001", ())


def _with_gpus(screen: str) -> str:
    return screen if "gpu mem" in screen and "/275G" in screen else ""
