"""The numbers in lines of common frameworks, and of none."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from launch.remote.lines.known_lines import KNOWN, LONGEST, read_line
from launch.remote.lines.line_patterns import number_text, plain_text

LINES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("framework_lines.toml").read_text())[
    "line"
]


def numbers(line: str) -> dict[str, str]:
    """The metrics of a line, each as :class:`float` writes it."""
    found = read_line(plain_text(line.encode()))
    return {metric: str(float(number_text(reading.text))) for metric, reading in found.items()}


@pytest.mark.parametrize(
    "line", LINES, ids=[f"{number}-{line['text'][:30]!r}" for number, line in enumerate(LINES)]
)
def test_each_number_has_its_own_name(line: dict[str, Any]) -> None:
    assert numbers(line["text"]) == {metric: str(float(text)) for metric, text in line["metrics"].items()}


@pytest.mark.parametrize(
    "line", LINES, ids=[f"{number}-{line['text'][:30]!r}" for number, line in enumerate(LINES)]
)
def test_a_line_with_a_metric_has_letters_by_which_it_is_looked_for(line: dict[str, Any]) -> None:
    low = plain_text(line["text"].encode()).lower()
    assert [
        metric for metric in line["metrics"] if not any(letters in low for letters in KNOWN[metric])
    ] == []


def test_every_line_says_where_its_form_is_from() -> None:
    assert [line for line in LINES if not line["source"].startswith(("https://", "made by hand: "))] == []


ORDERS: list[tuple[str, ...]] = [
    ("step 1", "loss 0.5", "samples/s 1000"),
    ("step 1", "1000 samples/s", "loss 0.5"),
    ("step=1", "samples/s=1000", "loss=0.5"),
    ("samples/s: 1000", "step: 1", "loss: 0.5"),
]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("between", [" ", "  ", ", ", "; ", " | ", "\t", " - "])
def test_borders_do_not_change_what_a_name_has(order: tuple[str, ...], between: str) -> None:
    assert numbers(between.join(order)) == {"step": "1.0", "loss": "0.5", "samples_per_s": "1000.0"}


@pytest.mark.parametrize(
    ("line", "of"),
    [
        ("Iter #3: 544.8 img/sec per GPU", "rank"),
        ("64.0 samples/s/gpu", "rank"),
        ("throughput/device/samples_per_sec: 16.2", "rank"),
        ("samples_per_second_per_gpu=64", "rank"),
        ("samples/s (per GPU): 64", "rank"),
        ("Total img/sec on 8 GPU(s): 962.4 +-16.8", "job"),
        ("global samples/s: 962.4", "job"),
        ("Train: 0 [  50/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.400s,  640.00/s  (0.500s,  512.00/s)", "job"),
        ("4000.1 samples/s, 500.0 samples/s/gpu", ""),
        ("rank 3: 120 samples/s on each GPU", ""),
    ],
)
def test_a_throughput_says_whose_it_is_beside_its_number(line: str, of: str) -> None:
    assert read_line(line)["samples_per_s"].of == of


def test_a_long_line_is_read_to_its_last_whole_word() -> None:
    line = f"loss 0.5 {'x' * (LONGEST - 20)} step 123456789"
    assert numbers(line) == {"loss": "0.5"}
    assert numbers(f"{'x' * LONGEST} loss 0.5") == {}
    assert numbers(f"loss 0.5, {'step 3, loss 0.25, ' * 60_000}")["loss"] == "0.5"
