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
    assert planned(fab, "job.yml")["identity"] is None, "a plan that is shown has no signature"
    refused = fab("launch", "job.yml", "--max-restarts", "1", "--dry-run")
    assert refused.returncode == 2
    assert "cannot be combined with identity: a signature grants it to one launch" in refused.stderr
