"""`fab rehearsal.fault` as it is typed: what is refused before a rehearsal is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.playbooks.typed import fab, write_project


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository beside a project in which no rehearsal runs."""
    top = tmp_path_factory.mktemp("faults")
    (top / "ranklift").mkdir()
    write_project(top / "ranklift", "rehearsal")
    own = top / "own"
    own.mkdir()
    (own / "fabfile.py").write_text(
        'from playbooks import ns\nns.configure({"ranklift": {"project": "../ranklift"}})\n'
    )
    return own


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["flood"],
            "kind = 'flood': no such kind of fault; use one of death, partition, heal, evict, hca",
        ),
        (["quota", "sku"], "kind = 'quota sku': more than one kind"),
        (["quota", "--seconds", "5"], "--seconds = 5.0: does not apply to quota"),
        (["evict"], "--nodes: is missing"),
        (["evict", "--nodes", "0-"], "--nodes = '0-': '0-' is not a range"),
        (["clock", "--nodes", "1"], "--seconds: is missing"),
        (["gpu", "--nodes", "1"], "--state: is missing"),
        (
            ["gpu", "--nodes", "1", "--state", "tired"],
            "--state = 'tired': is not a state of gpu; use one of lost,",
        ),
        (
            ["hca", "--nodes", "1", "--state", "down", "--device", "-1"],
            "--device = -1: must be at least 0",
        ),
        (["xid", "--nodes", "1", "--code", "all"], "--code = 'all': is not a number of Xids"),
        (["counter", "--nodes", "1", "--count", "4"], "--counter: is missing"),
        (["throttle", "--count", "often"], "--count = 'often': is not a number of times"),
        (["throttle", "--seconds", "soon"], "--seconds = 'soon': is not a duration"),
        (["quota"], "is not running; run fab rehearsal.start"),
        (["clock", "--nodes", "1", "--seconds=-90"], "is not running; run fab rehearsal.start"),
        ([], "is not running; run fab rehearsal.start"),
        (["clear"], "is not running; run fab rehearsal.start"),
    ],
)
def test_what_means_nothing_is_refused_by_name(workplace: Path, words: list[str], message: str) -> None:
    ran = fab(workplace, "rehearsal.fault", *words, env={"RANKLIFT_STACK": "rehearsal"})
    assert ran.returncode == 2
    assert message in ran.stderr, ran.stderr
    assert ran.stderr.startswith("error: ")
    assert "Traceback" not in ran.stderr
