"""Azure's notice to a node: when ranks are asked to end, and how long they get."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from launch.remote.base import eviction
from launch.remote.base.eviction import Eviction


def coming(left_s: float, at_once: bool = True, node: str = "node000001", kind: str = "Preempt") -> Eviction:
    """One that a runner reported at 100 by the clock of the head."""
    left_ms, now = int(left_s * 1000), 100.0
    return Eviction(node, {"type": kind, "at": 1474309787, "left_ms": left_ms, "at_once": int(at_once)}, now)


class TestWhenRanksAreTold:
    def test_at_once_where_somebody_waits_or_it_is_near(self) -> None:
        assert coming(300.0).due(3.0, 100.0)

    @pytest.mark.parametrize(("grace", "left"), [(3.0, 30.0), (60.0, 70.0)])
    def test_else_when_their_time_would_become_short(self, grace: float, left: float) -> None:
        far = coming(600.0, at_once=False)
        assert not far.due(grace, 700.0 - left - 0.1)
        assert far.due(grace, 700.0 - left)


class TestHowLongTheyGet:
    @pytest.mark.parametrize(
        ("own", "left", "given"),
        [
            (3.0, 30.0, 20.0),
            (22.0, 30.0, 22.0),
            (60.0, 30.0, 25.0),
            (3.0, 8.0, 3.0),
            (3.0, 2.0, 0.5),
            (60.0, 300.0, 60.0),
        ],
        ids=[
            "20 s at least",
            "their own",
            "not beyond the end",
            "little is left",
            "nothing is left",
            "no hurry",
        ],
    )
    def test_it_is_over_before_the_node_is_gone(self, own: float, left: float, given: float) -> None:
        assert coming(left).grace(own, 100.0) == given


def test_nodes_with_the_same_fate_are_folded() -> None:
    found = [
        coming(30.0),
        coming(30.0, node="node000002"),
        coming(300.0, node="node000000", kind="Terminate"),
    ]
    assert eviction.format_evictions(found) == (
        "node[000001-000002] will be taken by Azure at 2016-09-19 18:29:47 UTC (Preempt); "
        "node000000 will be taken by Azure at 2016-09-19 18:29:47 UTC (Terminate)"
    )


class TestTheNoticeOnTheDisk:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".ranklift/agent").mkdir(parents=True)
        return tmp_path / ".ranklift/agent/notice.json"

    def test_it_tells_how_much_time_is_left_here(self, path: Path) -> None:
        fields = {"type": "Preempt", "not_before": 1474309787, "at_once": True}
        path.write_text(json.dumps(dict(fields, deadline=time.monotonic() + 10)))
        found = eviction.notice()
        assert 9000 < found["left_ms"] <= 10000
        assert {**found, "left_ms": 0} == {"type": "Preempt", "at": 1474309787, "left_ms": 0, "at_once": 1}

    def test_it_changes_when_it_is_replaced_and_when_it_goes(self, path: Path) -> None:
        seen = [eviction.stamp()]
        for text in ("{}", "[]"):
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)
            seen.append(eviction.stamp())
        path.unlink()
        assert len({*seen, eviction.stamp()}) == 3
        assert seen[0] is None is eviction.stamp()
        assert eviction.notice()["type"] == ""
