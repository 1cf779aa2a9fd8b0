"""The agents of other nodes, asked over ssh."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from launch.remote.agent import autostop
from launch.remote.agent.autostop import Nodes
from tests.launch.remote.agent.installed import install_agent


class TestTheOtherNodes:
    """``ssh`` here runs what it is given in a home folder of its own, or cannot."""

    @pytest.fixture
    def nodes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
        (tmp_path / "ssh").write_text(
            "#!/bin/sh\n"
            "while :; do case $1 in -[oFil]) shift 2;; -*) shift;; *) break;; esac; done\n"
            f'[ -d "{tmp_path}/$1" ] || exit 255\nexport HOME="{tmp_path}/$1"; shift; exec sh -c "$*"\n'
        )
        (tmp_path / "ssh").chmod(0o755)
        for name in ("a", "b"):
            (tmp_path / name / ".ranklift/agent").mkdir(parents=True)
        (tmp_path / "a/.ranklift/agent/active").write_text("0.0")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(autostop, "WATCH", str(install_agent(tmp_path / "lib")))
        return Nodes(str(tmp_path))

    def test_one_that_has_had_no_job_since_its_boot_is_new(self, nodes: Nodes, tmp_path: Path) -> None:
        (tmp_path / "b/.ranklift/agent/active").write_text("-1.0")
        found = nodes.answers(["a", "b"])
        assert (found["a"]["new"], found["b"]["new"]) == (0, 1)
        assert abs(found["b"]["idle_s"] - time.monotonic()) < 30

    def test_one_says_when_the_cluster_had_its_last_job_if_it_knows(
        self, nodes: Nodes, tmp_path: Path
    ) -> None:
        (tmp_path / "b/.ranklift/agent/used").write_text(f"{time.monotonic() - 70:.3f}")
        found = nodes.answers(["a", "b"])
        assert "used_s" not in found["a"]
        assert 70 <= found["b"]["used_s"] < 100

    def test_they_say_since_when_they_are_idle(self, nodes: Nodes) -> None:
        found = nodes.answers(["a", "b", "gone"])
        assert abs(found["a"]["idle_s"] - time.monotonic()) < 30
        assert (found["b"]["idle_s"], found["gone"]) == (0.0, {})

    @pytest.mark.parametrize(
        ("ahead", "does"), [(30.0, True), (-1.0, False), (1e5, False)], ids=["fresh", "old", "earlier boot"]
    )
    def test_one_leads_whose_watch_said_so_lately(
        self, nodes: Nodes, tmp_path: Path, ahead: float, does: bool
    ) -> None:
        (tmp_path / "b/.ranklift/agent/leads").write_text(f"{time.monotonic() + ahead}")
        assert [one.get("leads") for one in nodes.answers(["a", "b", "gone"]).values()] == [0, does, None]

    @pytest.mark.parametrize("prints", ["echo Welcome", "printf Welcome"])
    def test_what_a_login_prints_hides_no_answer(self, nodes: Nodes, tmp_path: Path, prints: str) -> None:
        program = (tmp_path / "ssh").read_text()
        (tmp_path / "ssh").write_text(program.replace("#!/bin/sh\n", f"#!/bin/sh\n{prints}\n"))
        assert "idle_s" in nodes.answers(["a"])["a"]

    def test_a_node_that_prints_without_end_takes_no_memory_and_hides_no_other(
        self, nodes: Nodes, tmp_path: Path
    ) -> None:
        (tmp_path / "endless").mkdir()
        program = (tmp_path / "ssh").read_text()
        shout = "case $* in *endless*) exec yes;; esac\n"
        (tmp_path / "ssh").write_text(program.replace("#!/bin/sh\n", f"#!/bin/sh\n{shout}"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = nodes.answers(["endless", "a"])
        assert (found["endless"], "idle_s" in found["a"]) == ({}, True)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000

    def test_nodes_that_never_answer_leave_the_check_its_time(
        self, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(autostop, "LIMIT_S", 0.2)
        monkeypatch.setattr(autostop, "_ALL_S", 0.5)
        (tmp_path / "ssh").write_text(f"#!/bin/sh\necho >>{tmp_path}/started\nexec sleep 600\n")
        names = [f"n{number}" for number in range(10 * autostop._AT_ONCE)]
        assert nodes.answers(names) == {name: {} for name in names}
        assert len((tmp_path / "started").read_text()) < len(names)

    @pytest.mark.parametrize(
        "answer", ['{"ended": 1e999}', '{"ended": ' + "9" * 400 + "}", "[" * 1500, "{}", "7"]
    )
    def test_an_odd_answer_counts_for_nothing_and_hides_no_other(
        self, nodes: Nodes, tmp_path: Path, answer: str
    ) -> None:
        program = (tmp_path / "ssh").read_text()
        (tmp_path / "odd").mkdir()
        says = f"case $* in *odd*) printf %s '{answer}'; exit;; esac\n"
        (tmp_path / "ssh").write_text(program.replace("#!/bin/sh\n", f"#!/bin/sh\n{says}"))
        assert nodes.end_jobs(["odd", "a"], 55.0, "over") == 0
        assert not any(one.get("leads") for one in nodes.answers(["odd", "a"]).values())

    def test_the_agents_ssh_runs_no_program_that_the_nodes_user_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home, ran = tmp_path / "home", tmp_path / "ran"
        (home / ".ssh").mkdir(parents=True)
        program = f'Host *\n    ProxyCommand sh -c "touch {ran}"\n'
        (home / ".ssh/config").write_text(program)
        monkeypatch.setenv("HOME", str(home))
        assert Nodes(str(home)).answers(["node00000a.invalid"]) == {"node00000a.invalid": {}}
        assert not ran.exists()

    def test_they_end_their_jobs_for_a_reason_with_any_characters(self, nodes: Nodes) -> None:
        assert nodes.end_jobs(["a", "b", "gone"], 55.0, "it's $HOME; over") == 0
