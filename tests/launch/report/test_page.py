"""The report of a job as HTML, held by a golden file."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from launch.client.events import JobState
from launch.client.query import Happening
from launch.report.cost import NodePrice, cost_text
from launch.report.facts import JobFacts
from launch.report.page import report_page
from launch.report.summary import summary
from tests.launch.report.sample_job import NODES, at, facts, history, phase, series, spans_of

GOLDEN = Path(__file__).parent / "golden"
MADE = datetime(2026, 3, 1, 13, 0, 0, tzinfo=UTC)
PRICE = NodePrice("Standard_ND96asr_v4", "regular", 27.197)
EVIL = "</pre></td><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e&quot;'\""


def page(of: JobFacts, price: NodePrice = PRICE) -> str:
    return report_page(of, price, MADE)


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = set[str]()
        self.attributes = set[str]()
        self.open = list[str]()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_page_and_the_text_of_a_job_with_a_restart() -> None:
    found = {
        "report.html": page(facts(flags=("node000002 34 % slower than the median",))),
        "summary.txt": summary(facts()),
    }
    for name, text in found.items():
        if os.environ.get("WRITE_GOLDEN"):
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text()


def test_every_tag_is_closed() -> None:
    assert Tags(page(facts())).open == []


def test_no_text_of_a_job_becomes_markup() -> None:
    line = {**history()["lines"][0], "metric": EVIL, "node": EVIL, "line": EVIL}
    events = (
        phase("end", 0, 5, verdict=EVIL),
        Happening(at(1), "failure", {"rank": 1, "node": EVIL, "status": EVIL, "last_lines": [EVIL]}),
        Happening(at(1), "restart", {"count": EVIL, "reason": EVIL}),
        Happening(at(1), "lost-node", {"node": EVIL, "reason": EVIL}),
        Happening(
            at(1),
            "probe",
            {
                "verdict": EVIL,
                "transport": EVIL,
                "reason": EVIL,
                "lines": [{"node": EVIL, "rank": EVIL, "line": EVIL}],
            },
        ),
    )
    evil = facts(
        sampled=history(nodes={EVIL: series(1.0, 0.5)}, lines=[line]),
        flags=(EVIL,),
        events=events,
        **{
            "job": EVIL,
            "reason": EVIL,
            "command": (EVIL,),
            "code": EVIL,
            "nodes": (EVIL, *NODES),
            "kind": EVIL,
        },
        **{
            "display_name": EVIL,
            "experiment": EVIL,
            "description": EVIL,
            "tags": {EVIL: EVIL},
            "folder": EVIL,
        },
    )
    text = page(evil, NodePrice(EVIL, EVIL, None, EVIL))
    assert text.count("alert(1)") > 20
    plain = Tags(page(facts(flags=("one",))))
    found = Tags(text)
    assert found.tags <= plain.tags
    assert found.attributes <= plain.attributes
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = page(facts())
    assert "default-src 'none'" in text
    assert re.findall(r"(?:src|href|srcset|action|url)\s*[=(]", text) == []
    assert "<script" not in text
    assert "//" not in text.replace("<!DOCTYPE", "")


def test_three_hundred_nodes_of_a_long_job_fit_in_two_megabytes() -> None:
    names = tuple(f"node{number:06}" for number in range(300))
    values: list[float | None] = [123.456 + number / 7 for number in range(240)]
    full = dict.fromkeys(series(1.0, 1.0), values)
    many = facts(
        sampled=history(nodes=dict.fromkeys(names, full)),
        nodes=names,
        ranks={name: tuple(range(8 * n, 8 * n + 8)) for n, name in enumerate(names)},
    )
    assert len(page(many).encode()) < 2_000_000


def test_a_long_text_is_shortened_and_its_length_named() -> None:
    assert "x" * 2000 + " … (5000 characters)" in page(facts(reason="x" * 5000))


def test_a_drawing_is_whole_however_long() -> None:
    values: list[float | None] = [float(number % 7) for number in range(2000)]
    text = page(facts(sampled=history(nodes={"node000000": dict.fromkeys(series(1.0, 1.0), values)})))
    assert max(len(points) for points in re.findall(r'points="([^"]*)"', text)) > 10_000
    assert " characters)" not in text


def test_a_long_text_of_digits_is_no_drawing() -> None:
    text = page(facts(reason="1,2 " * 5000))
    assert "1,2 " * 500 + " … (20000 characters)" in text
    assert "1,2 " * 501 not in text


def test_old_records_give_a_page_that_says_what_is_unknown() -> None:
    text = page(spans_of())
    assert text.count("unknown: its node code records no phases") == 2
    assert summary(spans_of()) == ""


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (
            PRICE,
            "4.44 USD: 3 nodes (Standard_ND96asr_v4) for 196.0 s at 27.20 USD an hour each, the regular list",
        ),
        (
            NodePrice("Standard_ND96asr_v4", "spot", None, "the price list has no spot price"),
            "unknown: the price list has no spot price; it had 3 nodes (Standard_ND96asr_v4) for 196.0 s",
        ),
    ],
)
def test_the_cost_is_that_of_its_nodes_or_unknown(price: NodePrice, words: str) -> None:
    assert cost_text(facts(), price).startswith(words)


def test_a_job_that_never_started_cost_nothing() -> None:
    waits = facts(state="QUEUED", started=None, ended=None)
    assert isinstance(waits.report.state, JobState)
    assert cost_text(waits, PRICE) == "nothing: it never started"
