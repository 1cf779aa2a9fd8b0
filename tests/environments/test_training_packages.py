"""PyTorch from the package index on nodes without any package: made once, then trained with (G1, A4)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.workplace import Ran, Workplace

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
TRAIN = (
    *("launch.torch", "train.py", "--source", str(ROOT / "examples" / "digits")),
    *("--requirements", str(ROOT / "requirements" / "node.txt"), "--nproc-per-node", "2"),
)


def trained(ran: Ran) -> tuple[float, int]:
    """The test accuracy that rank 0 reports, and the number of ranks."""
    found = re.search(
        r"^\[0 node\d+\] test accuracy (\S+) after \d+ epochs on (\d+) ranks", ran.out, re.MULTILINE
    )
    assert found is not None, ran
    return float(found[1]), int(found[2])


def test_four_nodes_train_with_what_one_of_them_took_from_the_index(cluster: Workplace) -> None:
    first = cluster.fab(*TRAIN)
    made = re.search(r"^environment (\w+): made for 4 nodes", first.err, re.MULTILINE)
    assert made is not None, first
    accuracy, ranks = trained(first)
    assert (accuracy > 0.9, ranks) == (True, 8)
    try:
        again = cluster.fab(*TRAIN, "--torchrun")
        assert "made for" not in again.err
        assert "Downloading" not in again.err
        assert trained(again)[1] == 8
    finally:
        # Four times 6 GB, which the other tests' disk has better uses for.
        cluster.fab("environment.rm", made[1])
        cluster.fab("environment.prune")
