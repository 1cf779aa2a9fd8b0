"""What would be lost with nodes is listed first, and goes only when that is agreed to."""

from __future__ import annotations

import pytest

from tests.azure.test_scaling import STACK, booted, job, refused
from tests.e2e.workplace import Workplace

pytestmark = [pytest.mark.azure, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(workplace: Workplace) -> Workplace:
    """The stack is up with three nodes."""
    workplace.configure(STACK, nodeCount=3)
    workplace.fab("up")
    return workplace


def test_results_that_were_not_collected_go_only_when_that_is_agreed_to(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    nodes = ",".join(str(row["id"]) for row in rows)
    with job(cluster, nodes, "echo weights > $RANKLIFT_OUTPUT_DIR/model") as done:
        cluster.fab("wait", done)
    listed = f"not collected, as far as the heads know: {done}; `fab collect {done}` copies a job's results"
    last = rows[-1]["name"]
    for words, refusal in (
        (("scale", "2"), f"{last} is not removed: results of 1 job were not collected; --yes removes it"),
        (("replace", last), f"{last} is not replaced: results of 1 job were not collected; --yes replaces"),
        (("replace", last, "--reimage"), f"{last} is not replaced: results of 1 job were not collected; "),
    ):
        ran = refused(cluster, *words)
        assert listed in ran.err, ran
        assert refusal in ran.err, ran
        assert "pulumi up" not in ran.err
        shown = refused(cluster, *words, "--dry-run", status=0).out
        assert f"{listed}\nask first; without a terminal refuse, unless --yes is given\n" in shown
    with job(cluster, str(rows[0]["id"]), "true") as other:
        cluster.fab("wait", other)
    cluster.fab("collect", done)
    ran = cluster.fab("scale", "2")
    assert "to be removed: idle, no uncollected files as far as the heads know" in ran.err
    assert done not in ran.err
    assert rows[0]["name"] in booted(cluster)
    cluster.fab("scale", "3")


def test_a_cluster_goes_with_its_jobs_and_results_only_when_that_is_agreed_to(cluster: Workplace) -> None:
    rows = cluster.fab("status", "--json").json()
    with job(cluster, str(rows[0]["id"]), "true") as done:
        cluster.fab("wait", done)
    with job(cluster, str(rows[1]["id"]), "true") as brought:
        cluster.fab("wait", brought)
    cluster.fab("collect", brought)
    with job(cluster, str(rows[-1]["id"])) as busy:
        ran = refused(cluster, "down")
        assert f"job {busy} is RUNNING on {rows[-1]['name']} and ends with its nodes\n" in ran.err
        (line,) = (line for line in ran.err.splitlines() if line.startswith("not collected"))
        assert done in line
        assert brought not in ran.err
        assert ran.err.endswith("; --yes removes it anyway\n")
        assert "pulumi destroy" not in ran.err
        cluster.fab("rehearsal.fault", "partition", "--nodes", str(rows[1]["id"]))
        ran = cluster.fab("down", "--yes")
        assert f"{rows[1]['name']}: its jobs and results are unknown: " in ran.err
        assert ran.out.endswith("is left in subscription 00000000-0000-0000-0000-000000000001\n")
