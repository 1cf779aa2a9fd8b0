"""``--identity`` and ``ranklift.identity`` as ``fab launch`` shows and refuses them."""

from __future__ import annotations

from pathlib import Path

from tests.playbooks.jobs.test_launch_file import Fab, fab, own, planned

__all__ = ["fab", "own"]


def test_the_identity_is_shown_where_the_file_or_an_option_asks_for_it(fab: Fab, own: Path) -> None:
    shown = (
        "\nidentity   ranks, and all else that runs as their user meanwhile, may act as the nodes' identity\n"
    )
    (own / "job.yml").write_text("command: hostname\n")
    assert shown not in fab("launch", "job.yml", "--dry-run").stdout
    assert shown in fab("launch", "job.yml", "--identity", "--dry-run").stdout
    assert shown in fab("launch.torch", "src/train.py", "--identity", "--dry-run").stdout
    (own / "job.yml").write_text("command: hostname\nranklift: {identity: true}\n")
    assert shown in fab("launch", "job.yml", "--dry-run").stdout
    assert planned(fab, "job.yml", "--identity")["identity"] is None, "a plan that is shown has no signature"
    refused = fab("launch", "job.yml", "--identity", "--max-restarts", "1", "--dry-run")
    assert refused.returncode == 2
    assert "cannot be combined with identity: a signature grants it to one launch" in refused.stderr


def test_a_file_alone_does_not_get_the_identity(fab: Fab, own: Path) -> None:
    (own / "job.yml").write_text("command: hostname\nranklift: {identity: true}\n")
    refused = fab("launch", "job.yml")
    assert refused.returncode == 2
    assert "job.yml, line 2: ranklift.identity = true: is not for a file alone to decide" in refused.stderr
    assert "give --identity if they may" in refused.stderr


def test_a_dry_run_shows_the_question_about_the_identity_and_asks_nothing(fab: Fab, own: Path) -> None:
    question = "line 2 asks for the nodes' identity: the job's ranks, and all else that runs as their user"
    (own / "job.yml").write_text("command: hostname\nranklift: {identity: true}\n")
    asked = fab("launch", "job.yml", "--dry-run")
    assert (asked.returncode, question in asked.stdout) == (0, True), asked.stderr
    for typed in ("--identity", "--set=ranklift.identity=true", "--set=ranklift.identity=false"):
        ran = fab("launch", "job.yml", typed, "--dry-run")
        assert (ran.returncode, question in ran.stdout) == (0, False), ran.stderr


def test_a_file_that_has_nodes_replaced_is_named_before_they_are(fab: Fab, own: Path) -> None:
    line = "line 2: ranklift.on_unhealthy = replace: VMs of the job's nodes at which a look finds errors are"
    (own / "job.yml").write_text("command: hostname\nranklift: {on_unhealthy: replace}\n")
    assert line in fab("launch", "job.yml", "--dry-run").stdout
    assert line in fab("launch", "job.yml").stderr
    assert line not in fab("launch", "job.yml", "--on-unhealthy", "replace", "--dry-run").stdout
