"""What an operator's folder collects stays home, and a push moves and copies only what changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.e2e.workplace import Workplace

pytestmark = pytest.mark.timeout(1200)

SIZE = 20_000_000


def on_nodes(cluster: Workplace, snapshot: str, line: str) -> list[str]:
    """Stdout of a shell line in a snapshot, by node; the nodes' status is not looked at."""
    ran = cluster.fab(
        "exec", f"cd ~/.ranklift/snapshots/{snapshot} && {line}; true", "--nodes", "0-1", "--json"
    )
    return [answer["stdout"].strip() for answer in ran.json().values()]


def test_collected_results_and_environments_are_not_pushed_and_that_is_said_once(cluster: Workplace) -> None:
    (cluster.own / "hello.py").write_text("print('hello')\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", cluster.own / "env"], check=True)
    ran = cluster.fab("launch.torch", "hello.py", "--nodes", "0-1", "--nproc-per-node", "1")
    assert re.search(r"^left out: env \([\d.]+ kB\); a line like !env ", ran.err, re.MULTILINE), ran
    (job,) = set(re.findall(r"^job (\S+) STARTING$", ran.err, re.MULTILINE))
    cluster.fab("collect", job, "--into", "kept/runs")
    before = cluster.fab("push", "--nodes", "0-1", "--json")
    assert re.search(r"^left out: kept/runs \([\d.]+ kB\); a line like !kept/runs ", before.err, re.MULTILINE)
    again = cluster.fab("push", "--nodes", "0-1", "--json")
    assert (again.err, again.json()["bytes_sent"]) == ("", 0)
    (found,) = {*on_nodes(cluster, again.json()["snapshot"], "find . -name pyvenv.cfg -o -name 'rank-*'")}
    assert found == ""
    (cluster.own / ".ranklift-ignore").write_text("notes/\n!kept/runs\n")
    back = cluster.fab("push", "--nodes", "0-1", "--json").json()["snapshot"]
    (cluster.own / ".ranklift-ignore").write_text("notes/\n")
    (found,) = {*on_nodes(cluster, back, "find . -name 'rank-*.log' | sort | xargs")}
    assert found == f"./kept/runs/{job}/logs/rank-0.log ./kept/runs/{job}/logs/rank-1.log"


def test_a_small_change_beside_a_large_file_sends_and_copies_little(cluster: Workplace) -> None:
    (cluster.own / "weights.dat").write_bytes(os.urandom(SIZE))
    (cluster.own / "note").write_text("1\n")
    first = cluster.fab("push", "--nodes", "0-1", "--json").json()
    assert first["bytes_sent"] > SIZE
    (cluster.own / "note").write_text("2\n")
    second = cluster.fab("push", "--nodes", "0-1", "--json").json()
    assert second["bytes_sent"] < 100
    file = f"../{first['snapshot']}/weights.dat"
    questions = {
        "clones": f"cp --reflink=always {file} ~/probe 2>&-; status=$?; rm -f ~/probe; exit $status",
        "writable": f"test -w {file}",
        "one file": f"test {file} -ef weights.dat",
        "same content": f"cmp {file} weights.dat",
    }
    lines = [f"if ({line}); then echo '{what}'; fi" for what, line in questions.items()]
    for answer in on_nodes(cluster, second["snapshot"], "; ".join(lines)):
        true = {*answer.splitlines()}
        assert "same content" in true
        assert ("one file" in true) == true.isdisjoint({"clones", "writable"}), true


def test_what_grew_by_much_is_named_before_it_is_sent(cluster: Workplace) -> None:
    cluster.fab("push", "--nodes", "0-1")
    (cluster.own / "data").mkdir()
    with (cluster.own / "data" / "table").open("wb") as file:
        file.truncate(150_000_000)
    ran = cluster.fab("push", "--nodes", "0-1")
    assert re.search(r"grew from .* since its last push; data: 150\.0 MB\n", ran.err), ran
    assert cluster.fab("push", "--nodes", "0-1").err == ""
