"""Jobs bring packages: made once by the head, on every node, kept while a job uses them, then removable."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.workplace import Ran, Workplace
from tests.launch.conda_channel import Channel

pytestmark = pytest.mark.environments
SCRIPT = """
import os, sys, {module}
print(os.environ["RANK"], sys.prefix, {module}.ANSWER)
"""


@pytest.fixture
def launch(cluster: Workplace, wheels: Path) -> list[str]:
    """``fab launch.torch`` with its options; the scripts and the requirements it names are there."""
    for module in ("toolkit", "gadget"):
        (cluster.own / f"{module}.txt").write_text(f"{module}\n--no-index\n")
        (cluster.own / f"use_{module}.py").write_text(SCRIPT.format(module=module))
    return ["launch.torch", "--find-links", str(wheels)]


def prefixes(ran: Ran) -> dict[str, str]:
    """By rank, where its Python's packages are."""
    return dict(re.findall(r"^\[.*\] (\d) (\S+) \d+$", ran.out, re.MULTILINE))


def made(ran: Ran) -> str:
    """The id of the environment that a launch has made; "" where it made none."""
    found = re.search(r"^environment (\w+): made for", ran.err, re.MULTILINE)
    return found.group(1) if found else ""


@pytest.mark.for_every_change
def test_packages_of_a_file_are_made_once_and_every_rank_has_them(
    cluster: Workplace, launch: list[str]
) -> None:
    first = cluster.fab(*launch, "use_toolkit.py", "--requirements", "toolkit.txt")
    name = made(first)
    assert prefixes(first) == {
        str(rank): f"/home/azureuser/.ranklift/environments/{name}" for rank in range(4)
    }
    second = cluster.fab(*launch, "use_toolkit.py", "--requirements", "toolkit.txt")
    assert (made(second), prefixes(second)) == ("", prefixes(first))
    assert "snapshot" not in second.err


@pytest.mark.for_every_change
def test_a_head_takes_what_another_node_holds(cluster: Workplace, launch: list[str]) -> None:
    (cluster.own / "spread.txt").write_text("toolkit>=0\n--no-index\n")
    words = [*launch, "use_toolkit.py", "--requirements", "spread.txt"]
    first = cluster.fab(*words, "--nodes", "0-1")
    second = cluster.fab(*words, "--nodes", "2-3")
    assert re.search(
        rf"^environment {made(first)}: node\w+0 holds it and sends it to node\w+2$", second.err, re.M
    )
    assert (made(second), prefixes(second)) == ("", prefixes(first))


CONDA_SCRIPT = """
import os, subprocess, sys, gadget, toolkit
found = subprocess.run(["native-3"], check=True, capture_output=True, text=True).stdout.strip()
assert os.environ["NATIVE_HOME"] == found == sys.prefix + "/share"
assert os.environ["CONDA_PREFIX"] == sys.prefix and "VIRTUAL_ENV" not in os.environ
print(os.environ["RANK"], sys.prefix, toolkit.ANSWER + gadget.ANSWER)
"""


def test_a_conda_files_packages_are_solved_once_and_every_rank_has_them_activated(
    cluster: Workplace, launch: list[str], channel: Channel
) -> None:
    (cluster.own / "use_conda.py").write_text(CONDA_SCRIPT)
    pip = "{pip: [gadget, --no-index]}"
    text = f"channels: [{channel.folder.as_uri()}, nodefaults]\ndependencies: [python, toolkit=1, {pip}]\n"
    (cluster.own / "conda.yml").write_text(text)
    words = [*launch, "use_conda.py", "--conda", "conda.yml", "--nodes", "0-2"]
    first = cluster.fab(*words)
    path = f"/home/azureuser/.ranklift/environments/{made(first)}"
    assert prefixes(first) == {str(rank): path for rank in range(3)}
    assert "49\n" in first.out
    assert "Resolved 3 packages" in first.err
    second = cluster.fab(*words)
    assert (made(second), prefixes(second)) == ("", prefixes(first))
    (cluster.own / "conda.yml").write_text(text.replace("toolkit=1", "toolkit=2"))
    refused = cluster.fab(*words, status=1)
    assert "environment conda.yml: installing conda's packages by py-rattler failed" in refused.err
    assert "No candidates were found for toolkit" in refused.err


@pytest.mark.for_every_change
def test_jobs_with_different_environments_run_at_once(cluster: Workplace, launch: list[str]) -> None:
    jobs = []
    for module in ("toolkit", "gadget"):
        started = cluster.fab(*launch, f"use_{module}.py", "--requirements", f"{module}.txt", "--detach")
        jobs.append(started.out.strip())
    seen = []
    for job, answer in zip(jobs, ("42", "7"), strict=True):
        cluster.fab("wait", job)
        text = cluster.fab("logs", job).out
        assert len(re.findall(rf" {answer}$", text, re.MULTILINE)) == 4, text
        seen.append(prefixes(cluster.fab("logs", job))["0"])
    assert seen[0] != seen[1]


def test_an_environment_in_use_stays_until_its_job_ends(cluster: Workplace, launch: list[str]) -> None:
    (cluster.own / "stay.py").write_text("import time, toolkit\ntime.sleep(60)\n")
    job = cluster.fab(*launch, "stay.py", "--requirements", "toolkit.txt", "--detach").out.strip()
    (used,) = (one for one in cluster.fab("environment", "--json").json() if job in one["jobs"])
    assert (used["title"], len(used["nodes"])) == ("toolkit.txt", 4)
    refused = cluster.fab("environment.rm", used["id"], status=2)
    assert f"is in use by {job}" in refused.err
    cluster.fab("environment.prune")
    cluster.fab("cancel", job)
    removed = cluster.fab("environment.rm", used["id"][:8])
    assert f"removed {used['id']} toolkit.txt" in removed.out
    assert used["id"] not in cluster.fab("exec", "ls .ranklift/environments").out
    again = made(cluster.fab(*launch, "use_toolkit.py", "--requirements", "toolkit.txt"))
    assert (again[:16], again != used["id"]) == (used["id"][:16], True)


def test_what_cannot_be_resolved_is_quoted_and_no_job_is_created(
    cluster: Workplace, launch: list[str]
) -> None:
    before = len(cluster.fab("jobs", "--all", "--json").json())
    (cluster.own / "missing.txt").write_text("nosuchthing==7\n--no-index\n")
    refused = cluster.fab(*launch, "use_toolkit.py", "--requirements", "missing.txt", status=1)
    assert "environment missing.txt: installing packages failed" in refused.err
    assert "nosuchthing==7" in refused.err
    assert len(cluster.fab("jobs", "--all", "--json").json()) == before


def test_a_head_without_uv_and_without_an_index_names_both_remedies(
    cluster: Workplace, launch: list[str]
) -> None:
    cluster.fab("exec", "rm -rf .ranklift/tools")
    (cluster.own / "closed.txt").write_text("toolkit\n--no-index\n")
    refused = cluster.fab("launch.torch", "use_toolkit.py", "--requirements", "closed.txt", status=1)
    assert re.search(r"uv-.*\.whl cannot be downloaded .* NAT gateway.* --find-links", refused.err)


def test_a_missing_module_names_the_option(cluster: Workplace, launch: list[str]) -> None:
    (cluster.own / "needs.py").write_text("import torch\n")
    refused = cluster.fab("launch.torch", "needs.py", status=None)
    assert "python3 has no module torch" in refused.err
    assert "--requirements FILE" in refused.err


def test_a_node_that_lost_it_is_named_and_one_replaced_under_its_name_gets_it(
    cluster: Workplace, launch: list[str]
) -> None:
    words = [*launch, "use_gadget.py", "--requirements", "gadget.txt"]
    cluster.fab(*words)
    (one,) = (held for held in cluster.fab("environment", "--json").json() if held["title"] == "gadget.txt")
    lose = f"cd .ranklift/environments && chmod -R u+w {one['id']} && rm -rf {one['id']}*"
    cluster.fab("exec", "--nodes", "2", lose)
    lost = cluster.fab(*words, status=None)
    assert "node000002" in lost.err
    assert f"`fab environment.rm {one['id']}` removes the environment from all nodes" in lost.err
    assert lost.status != 0
    cluster.fab("replace", "2", "--reimage")
    assert sorted(prefixes(cluster.fab(*words))) == ["0", "1", "2", "3"]


def test_ctrl_c_while_it_is_made_says_what_stays_and_creates_no_job(
    cluster: Workplace, launch: list[str]
) -> None:
    (cluster.own / "waits.txt").write_text("toolkit<9\n--no-index\n")
    cluster.fab(*launch, "use_toolkit.py", "--requirements", "toolkit.txt")
    before = len(cluster.fab("jobs", "--all", "--json").json())
    slow = "printf '#!/bin/sh\\nexec sleep 60\\n' > .ranklift/tools/uv-*/uv"  # waits until it is ended
    cluster.fab("exec", "--nodes", "0", slow)
    try:
        with cluster.begin(*launch, "use_toolkit.py", "--requirements", "waits.txt") as process:
            while not sleeps(cluster):
                assert process.poll() is None
                time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
    finally:
        cluster.fab("exec", "--nodes", "0", "rm -rf .ranklift/tools")
    assert "interrupted while the environment was made: no job was created" in out
    assert len(cluster.fab("jobs", "--all", "--json").json()) == before
    until = time.monotonic() + 20
    while sleeps(cluster):
        assert time.monotonic() < until, "the head's uv goes on"
        time.sleep(0.3)


def sleeps(cluster: Workplace) -> bool:
    """Whether a sleep runs on the head."""
    return cluster.fab("exec", "--nodes", "0", "pgrep -x sleep", status=None).status == 0
