"""Counters of earlier looks: what grew lately."""

from __future__ import annotations

from pathlib import Path

from launch.remote.health.ib_ports import Port
from launch.remote.health.readings import PERIOD_S, Readings, keep_readings, kept_readings


def port(downed: int) -> Port:
    return Port("mlx5_ib0", 1, counters={"link_downed": downed})


def test_the_first_look_knows_of_no_growth() -> None:
    assert Readings("boot").growth(1000, port(9)) == {}


def test_growth_is_counted_from_the_oldest_reading_of_the_last_three_hours() -> None:
    readings = Readings("boot")
    for at, downed in ((0, 0), (4000, 1), (8000, 3)):
        assert readings.add(at, [port(downed)])
    assert readings.growth(8000, port(3)) == {"link_downed": 3}
    assert readings.growth(PERIOD_S + 1, port(3)) == {"link_downed": 2}


def test_looks_in_quick_succession_keep_one_reading() -> None:
    readings = Readings("boot")
    assert readings.add(0, [port(0)])
    assert not readings.add(299, [port(5)])
    assert readings.growth(299, port(5)) == {"link_downed": 5}


def test_the_file_stays_small() -> None:
    readings = Readings("boot")
    for at in range(0, 20 * PERIOD_S, 60):
        readings.add(at, [port(0)])
    assert len(readings.kept) <= 38


def test_readings_survive_in_a_file_until_the_next_boot(tmp_path: Path) -> None:
    file = str(tmp_path / "counters")
    readings = kept_readings("boot", file)
    readings.add(1000, [port(1)])
    keep_readings(readings, file)
    assert kept_readings("boot", file).growth(2000, port(4)) == {"link_downed": 3}
    assert kept_readings("another boot", file).kept == []


def test_a_torn_file_is_no_reading(tmp_path: Path) -> None:
    (tmp_path / "counters").write_bytes(b"d4:boot4:bo")
    assert kept_readings("boot", str(tmp_path / "counters")).kept == []
