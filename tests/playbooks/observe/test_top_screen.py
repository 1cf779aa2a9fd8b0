"""The screen of ``fab top``, by sizes, jobs and keys."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launch.client.events import Failure, JobState
from launch.client.samples import JobSamples
from launch.remote.base.job_dir import TERMINAL
from launch.remote.base.records import StateName
from playbooks.cli.styled import sgr_text
from playbooks.observe.top_rows import NodeRow, make_rows, rows_in_view
from playbooks.observe.top_screen import Link, Screen, draw
from playbooks.observe.top_view import View, press
from tests.launch.test_printable import commands_in
from tests.playbooks.observe.made_samples import flag, job_state, samples
from tests.playbooks.screen import hold

GOLDEN = Path(__file__).with_name("golden")
ATTACK = "\x1b[2J\x1b]0;t\x07\t\x9b6n\u202e漢字漢字"
FLAGS = (
    flag("rank 17 silent for 40 s", 2, 17),
    flag("node000003 sends no InfiniBand traffic", 3, kind="no-infiniband"),
    flag("node000001 30 % slower than the median", 1, kind="slow"),
)
MANY_FLAGS = [flag(f"rank {rank} silent for {rank + 40} s", rank // 8, rank) for rank in range(40)]
FAILED = job_state(
    4,
    "FAILED",
    reason="rank 3 on node000000 exited with status 9",
    exit_status=9,
    failure=Failure(
        3, "node000000", 9, ("Traceback (most recent call last):", "RuntimeError: NaN in step 31")
    ),
)
QUEUED = job_state(
    4, "QUEUED", reason="waits for train-20260301-080000-aaaa", place=2, job="eval-20260301-090600-b1c2"
)
OTHERS = (job_state(4), QUEUED)
HEAD = Link("node000000")


def shown(
    of: JobSamples,
    size: tuple[int, int] = (80, 24),
    view: View = View(),  # noqa: B008  (frozen)
    link: Link | None = HEAD,
    jobs: Sequence[JobState] = (),
) -> Screen:
    return draw(make_rows(of), jobs, of.state.job, view, link, size)


def text(screen: Screen) -> str:
    return "".join(sgr_text(line, colours=False).rstrip() + "\n" for line in screen.lines)


SCREENS = {
    "80x24": shown(samples(4, flags=FLAGS)),
    "40x24": shown(samples(4, flags=FLAGS), (40, 24)),
    "200x50": shown(samples(4, flags=FLAGS), (200, 50)),
    "1-node": shown(samples(1, 4)),
    "without-gpus": shown(samples(8, 1, gpus=0), (100, 24)),
    "300-nodes": shown(samples(300, flags=FLAGS), (120, 30), View(first=40)),
    "300-nodes-ranks": shown(samples(300, flags=FLAGS), (80, 24), View(first=2700, ranks=True)),
    "many-flags": shown(samples(8, flags=MANY_FLAGS), (80, 24)),
    "only-flagged": shown(samples(300, flags=FLAGS), (80, 24), View(ranks=True, only_flagged=True)),
    "lost-connection": shown(samples(4), link=Link("node000000", 12.4, "the connection broke")),
    "silent-head": shown(samples(4), link=Link("node000000", 12.4)),
    "ended": shown(samples(4, state=FAILED), (80, 24)),
    "queued": shown(JobSamples(QUEUED, None, None, (), samples().now), jobs=OTHERS),
    "several-jobs": shown(samples(4), jobs=OTHERS, size=(120, 24)),
    "no-metrics": shown(samples(2, metrics=())),
    "many-metrics": shown(
        samples(1, 2, metrics=("step", "loss", "grad_norm", "a_long_name_of_a_metric")), (120, 24)
    ),
    "help": shown(samples(4), view=View(help=True)),
    "waiting": draw(None, (), "train-20260301-090507-0f3a", View(), Link("its head", 4.0), (80, 24)),
    "once": shown(samples(4, 2, flags=FLAGS), (110, 30), link=None),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(name: str) -> None:
    hold(text(SCREENS[name]), GOLDEN / f"top-{name}.txt")


@pytest.mark.parametrize(
    "size", [(20, 5), (40, 24), (79, 10), (80, 24), (81, 24), (132, 43), (200, 50), (400, 100)]
)
@pytest.mark.parametrize("nodes", [1, 4, 300])
def test_every_size_gets_exactly_its_lines_and_no_longer_ones(size: tuple[int, int], nodes: int) -> None:
    for view in (
        View(),
        View(ranks=True),
        View(ranks=False, only_flagged=True),
        View(help=True),
        View(first=10**6),
    ):
        screen = shown(samples(nodes, flags=FLAGS), size, view, Link("node000000", 4.0, "broke"), OTHERS)
        assert len(screen.lines) == size[1]
        assert max(len(sgr_text(line, colours=False)) for line in screen.lines) <= size[0]


def names(view: View) -> list[str]:
    rows = rows_in_view(make_rows(samples(4, flags=FLAGS[:2])), view, with_ranks=False)
    return [row.name[-1] for row in rows if isinstance(row, NodeRow)]


def test_nodes_are_sorted_and_filtered() -> None:
    assert names(View()) == ["0", "1", "2", "3"]
    assert names(View(sorting="cpu")) == ["2", "0", "1", "3"]
    assert names(View(sorting="silence"))[0] == "2"
    assert names(View(sorting="flags")) == ["2", "3", "0", "1"]
    assert names(View(only_flagged=True)) == ["2", "3"]


def test_of_a_flagged_node_only_flagged_ranks_are_shown() -> None:
    rows = rows_in_view(make_rows(samples(4, flags=FLAGS)), View(only_flagged=True), with_ranks=True)
    assert [getattr(row, "rank", "node") for row in rows] == ["node", "node", 17, "node"]


def test_ranks_are_shown_where_all_fit_and_at_a_key() -> None:
    assert not shown(samples(4)).with_ranks
    assert shown(samples(4), (80, 60)).with_ranks
    small = shown(samples(4))
    pressed = press(small.view, "r", rows=small.rows, height=small.height, with_ranks=small.with_ranks)
    assert shown(samples(4), view=pressed).rows == 4 + 32


@pytest.mark.parametrize(
    ("unknown", "has", "lacks"),
    [
        (("utilisation",), ("gpu mem", "cpu, "), ("gpu %", "gpus", "gpu, ")),
        (("utilisation", "memory_total", "power_mw"), ("cpu, ",), ("gpu",)),
    ],
    ids=["split GPUs", "clocks alone"],
)
def test_the_course_is_of_what_is_known(
    unknown: Sequence[str], has: Sequence[str], lacks: Sequence[str]
) -> None:
    made = samples(2)
    assert made.live is not None
    for node in made.live["nodes"].values():
        for gpu in node["gpus"]:
            gpu.update(dict.fromkeys(unknown, -1))  # type: ignore[typeddict-item]
    screen = text(shown(made, (130, 24)))
    assert [word for word in has if word not in screen] == []
    assert [word for word in lacks if word in screen] == []


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        (["down", "down", "up"], 1),
        (["j", "j", "k", "k", "k"], 0),
        (["page down", "page down", "page up"], 20),
        (["end"], 280),
        (["G", "down"], 280),
        (["end", "home"], 0),
        (["end", "s"], 0),
        (["end", "f"], 0),
        (["end", "x", "1"], 280),
    ],
)
def test_keys_scroll(keys: Sequence[str], first: int) -> None:
    view = View()
    for key in keys:
        view = press(view, key, rows=300, height=20, with_ranks=False)
    assert view.first == first


def test_a_screen_that_grew_shows_rows_in_the_place_of_a_gap() -> None:
    assert shown(samples(300), (80, 24), View(first=299)).view.first == 300 - 20
    assert shown(samples(300), (80, 400), View(first=299)).view.first == 0


def test_ranks_whose_node_is_further_up_have_it_above_them() -> None:
    screen = shown(samples(300), (80, 24), View(first=5, ranks=True))
    first = sgr_text(screen.lines[4], colours=False)
    assert first.startswith(" node000000 ok")
    assert sgr_text(screen.lines[5], colours=False).split()[0] == "5"


def test_help_comes_and_goes() -> None:
    view = press(View(), "?", rows=1, height=1, with_ranks=False)
    assert view.help
    assert not press(view, "escape", rows=1, height=1, with_ranks=False).help
    assert press(View(), "escape", rows=1, height=1, with_ranks=False) == View()


def test_a_nodes_state_is_a_word() -> None:
    rows = make_rows(samples(4))
    assert [node.state for node in rows.nodes] == ["ok", "ok", "old 12s", "no data"]
    ended = samples(2)
    assert ended.live is not None
    for rank in ended.live["ranks"].values():
        rank["ended"] = rank["node"] == "node000001"
    assert [node.state for node in make_rows(ended).nodes] == ["ok", "ended"]


def test_of_a_job_that_is_lost_no_figure_is_shown_as_if_it_still_ran() -> None:
    """Its samples are the last that came: ranks that are gone are not silent, and use nothing."""
    made = make_rows(replace(samples(2), state=job_state(2, "LOST", reason="its supervisor is gone")))
    assert {node.state for node in made.nodes} == {"ended"}
    assert all(node.live is None and node.silent_s == 0 for node in made.nodes)
    ranks = [rank for node in made.nodes for rank in node.ranks]
    assert {(rank.cpu, rank.memory, rank.silent_s, rank.ended) for rank in ranks} == {(0.0, 0, 0.0, True)}
    assert all("step" in rank.metrics for rank in ranks)
    drawn = text(shown(replace(samples(2), state=job_state(2, "LOST")), (80, 24)))
    assert "\n      0                 ended      1804" in drawn


@pytest.mark.parametrize("state", TERMINAL)
def test_an_end_is_red_unless_the_job_succeeded(state: StateName) -> None:
    made = shown(samples(2, state=job_state(2, state)))
    styles = {style for line in made.lines for words, style in line if words in (state, f"ended {state}")}
    assert styles == {"green" if state == "SUCCEEDED" else "red"}


@pytest.mark.parametrize("state", ["FAILED", "RUNNING"])
def test_a_long_reason_takes_more_lines_up_to_a_fifth_of_the_screen(state: StateName) -> None:
    reason = " ".join(f"word{number}" for number in range(40))
    made = text(shown(samples(4, state=job_state(4, state, reason=reason)), (80, 24)))
    assert "word39" in made
    assert "…" not in made
    long = " ".join(f"word{number}" for number in range(400))
    cut = text(shown(samples(4, state=job_state(4, state, reason=long)), (80, 24)))
    assert sum("word" in line for line in cut.splitlines()) == 4
    assert " …" in cut


def test_a_reason_of_megabytes_takes_no_more_than_what_is_shown_of_it() -> None:
    made = samples(4, state=job_state(4, "RUNNING", reason="\ta" * 500_000))
    shown(made, (80, 24))
    tracemalloc.start()
    try:
        shown(made, (80, 24))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nothing_that_a_node_sends_commands_the_terminal() -> None:
    made = samples(2, metrics=("step", ATTACK), flags=[flag(ATTACK)])
    state = replace(made.state, job=ATTACK, reason=ATTACK, nodes=(ATTACK, "node000001"))
    for one in (
        state,
        replace(state, state="FAILED", failure=Failure(0, ATTACK, 1, (ATTACK,)), ended=state.created),
    ):
        screen = shown(replace(made, state=one), link=Link(ATTACK, 4.0, ATTACK), jobs=(one, one))
        printed = "\n".join(sgr_text(line, colours=True) for line in screen.lines)
        assert commands_in(printed) == []
        assert "漢字" in printed
