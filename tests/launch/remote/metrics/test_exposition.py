"""Records as Prometheus' text format."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from launch.remote.metrics.exposition import exposition, samples
from launch.remote.metrics.families import FAMILIES
from tests.launch.remote.metrics.known_heads import NOW, cluster, gpu, head, job, node, rank, sending

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
LINE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (?P<value>\S+)'
)

RUNNING = job(
    live_nodes={"node000000": node(gpus=[gpu(0), gpu(1, utilisation=-1, clock_events=-1)])},
    live_ranks={"0": rank(), "1": rank(ended=True)},
)
ENDED = job("old-1", "FAILED", ended=NOW - 60, exit_status=137, restarts=2)
WAITING = job("next-1", "QUEUED", started=None, cost_usd=None, name='a "job" of\nC:\\')


def series(text: str) -> dict[str, float]:
    """The samples of a text by name and labels, each line checked."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found
            found[name] = float(value)
    return found


def test_is_the_text_that_was_reviewed() -> None:
    text = exposition([head(RUNNING, ENDED, WAITING)], cluster(), sending())
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_the_reviewed_text_has_every_family_with_help_and_type_once() -> None:
    lines = GOLDEN.read_text().splitlines()
    for kind in ("HELP", "TYPE"):
        named = [line.split()[2] for line in lines if line.startswith(f"# {kind} ")]
        assert named == [family.name for family in FAMILIES]
    assert {re.split("[{ ]", name)[0] for name in series(GOLDEN.read_text())} == {
        family.name for family in FAMILIES
    }


def test_samples_are_what_the_text_has_without_its_escapes() -> None:
    given = ([head(RUNNING, ENDED, WAITING)], cluster(), sending())
    found = samples(*given)
    assert [value for _, _, value in found] == list(series(exposition(*given)).values())
    names = [dict(labels)["name"] for name, labels, _ in found if name == "ranklift_job_info"]
    assert names[-1] == 'a "job" of\nC:\\'
    assert [name for name, _, _ in found] == [re.split("[{ ]", one)[0] for one in series(exposition(*given))]


def test_a_node_that_sends_nothing_elsewhere_has_no_metrics_of_that() -> None:
    assert not any("_monitor_" in name for name in series(exposition([head(RUNNING)], cluster())))
    never = series(exposition([], None, sending(accepted=False, last_sent=None)))
    assert never["ranklift_monitor_up"] == 0
    assert "ranklift_monitor_last_sent_timestamp_seconds" not in never


def test_samples_of_more_than_15_seconds_are_left_out() -> None:
    old, fresh = NOW - 15.1, NOW - 14.9
    found = series(
        exposition(
            [
                head(
                    job(
                        live_nodes={"a": node(time=old), "b": node(time=fresh)},
                        live_ranks={"0": rank("a", time=old), "1": rank("b", time=fresh)},
                    )
                )
            ]
        )
    )
    assert {name for name in found if "_node_" in name or "_rank_" in name if '"a"' in name} == set()
    assert found['ranklift_node_cpu_ratio{node="b"}'] == 0.625
    assert found['ranklift_rank_cpu_ratio{job_id="train-1",rank="1",node="b"}'] == 8


def test_of_two_heads_with_jobs_on_a_node_the_newer_sample_counts() -> None:
    older = head(job("a-1", live_nodes={"n": node(time=NOW - 9, net_rx=9)}))
    newer = head(job("b-1", live_nodes={"n": node(time=NOW - 2, net_rx=2)}))
    for heads in ([older, newer], [newer, older]):
        found = series(exposition(heads))
        assert found['ranklift_node_network_receive_bytes_per_second{node="n"}'] == 2
        assert found['ranklift_queue_jobs{state="running"}'] == 2


def test_what_is_unknown_is_absent() -> None:
    bare = node(ib_rx=-1, ib_tx=-1, gpus=[gpu(power_mw=-1)])
    found = series(
        exposition([head(job(cost_usd=None, live_nodes={"n": bare}))], cluster(usd=None, usd_per_hour=None))
    )
    assert not any("infiniband" in name or "usd" in name or "watts" in name for name in found)
    assert found['ranklift_node_gpu_utilisation_ratio{node="n",gpu="0"}'] == 0.87


def test_a_users_number_may_be_none_and_a_users_name_may_be_long() -> None:
    values = {"loss": math.nan, "grad": math.inf, "x" * 500: 1e300}
    found = series(exposition([head(job(live_ranks={"3": rank(metrics=values)}))]))
    labels = 'job_id="train-1",rank="3",node="node000000"'
    assert math.isnan(found[f'ranklift_rank_metric{{{labels},metric="loss"}}'])
    assert found[f'ranklift_rank_metric{{{labels},metric="grad"}}'] == math.inf
    assert found[f'ranklift_rank_metric{{{labels},metric="{"x" * 127}…"}}'] == 1e300


def test_the_longest_wait_is_that_of_the_oldest_queued_job() -> None:
    jobs = [job("a-1", "QUEUED", created=NOW - 30), job("b-1", "QUEUED", created=NOW - 300), job("c-1")]
    found = series(exposition([head(*jobs)]))
    assert found["ranklift_queue_longest_wait_seconds"] == 300
    assert found['ranklift_queue_jobs{state="queued"}'] == 2


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_are_those_of_prometheus_conventions(family: object) -> None:
    name, kind = family.name, family.type  # type: ignore[attr-defined]
    assert re.fullmatch(r"ranklift_(cluster|queue|job|node|rank|monitor)_[a-z_]+", name)
    assert name.endswith("_total") == (kind == "counter")
    assert not re.search(r"_(ms|kib|mib|gib|mb|gb|percent|pct|permille|milliwatts|hours|minutes)\b", name)


def test_a_job_of_an_older_head_has_no_cost() -> None:
    older = job()
    del older["cost_usd"]  # type: ignore[misc]  # as an older head answers
    assert "ranklift_job_cost_usd" not in exposition([head(older)])


def test_names_that_are_cut_make_no_series_twice() -> None:
    found = series(exposition([head(job("a" * 130 + "1"), job("a" * 130 + "2"))]))
    assert any("a" * 100 in name for name in found)
