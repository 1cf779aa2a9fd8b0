"""Charts as coordinates."""

from __future__ import annotations

from typing import Any

from launch.report.charts import HEIGHT, WIDTH, band_charts, phase_bars, rate_chart
from tests.launch.report.sample_job import facts, history


def only(**series: list[float | None]) -> Any:
    return history(nodes={"node000000": {name.replace("_", ":", 1): one for name, one in series.items()}})


def test_phases_fill_the_axis_of_time() -> None:
    bars = phase_bars(facts().spans)
    assert bars[0].x == 0
    assert round(bars[-1].x + bars[-1].width) == WIDTH
    assert bars[0].title == "environment made: 62.0 s"
    assert phase_bars(()) == ()


def test_a_gap_ends_a_line_and_a_lone_value_is_a_dash() -> None:
    chart = rate_chart(only(metric_samples_per_s=[10.0, 20.0, None, 10.0]))
    assert chart is not None
    (line,) = chart.lines
    assert line.pieces == (f"0,{HEIGHT / 2:.1f} 300,0.0", f"900,{HEIGHT / 2:.1f} 1050,{HEIGHT / 2:.1f}")
    assert (chart.top, chart.end) == ("20", "76.0 s")


def test_without_a_rate_the_steps_are_one_and_a_restart_is_none() -> None:
    chart = rate_chart(only(metric_step=[0.0, 19.0, 57.0, 0.0, 19.0]))
    assert chart is not None
    assert chart.title == "steps/s by node"
    assert chart.lines[0].pieces == ("225,80.0 450,0.0", "900,80.0 1012,80.0")


def test_steps_that_take_longer_than_an_interval_have_a_rate_too() -> None:
    chart = rate_chart(only(metric_step=[10.0, None, None, None, 11.0, None]))
    assert chart is not None
    assert len(chart.lines[0].pieces[0].split()) == 4
    assert chart.top == "0.015"  # a step in four intervals of 19 s


def test_without_either_there_is_no_chart() -> None:
    assert rate_chart(only(cpu=[1.0])) is None
    assert rate_chart(only(metric_samples_per_s=[None])) is None


def test_bands_span_all_nodes() -> None:
    sampled = history(nodes={"node000000": {"gpu": [0.0, 0.5]}, "node000001": {"gpu": [1.0, 1.0]}})
    (chart,) = band_charts(sampled)
    assert (chart.title, chart.top) == ("GPU utilisation", "100 %")
    (band,) = chart.bands
    assert band.outline == "0,0.0 900,0.0 900,80.0 0,160.0"
    assert band.middle == "0,80.0 900,40.0"


def test_a_value_below_zero_stays_in_the_frame() -> None:
    chart = rate_chart(only(metric_samples_per_s=[10.0, -1e9]))
    assert chart is not None
    assert chart.lines[0].pieces == ("0,0.0 900,160.0",)
