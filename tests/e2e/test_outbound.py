"""A cluster's nodes reach what this machine reaches, by the cluster's own NAT gateway."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.workplace import Workplace
from tests.rehearsal.node_lab import outside_server


def test_every_node_fetches_a_file_from_a_server_outside(cluster: Workplace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("from outside\n")
    with outside_server(tmp_path) as url:
        fetch = f"import urllib.request as u; print(u.urlopen('{url}/file', timeout=20).read().decode())"
        answers = cluster.fab("exec", "--json", "--", "python3", "-c", fetch).json()
    assert {answer["stdout"].strip() for answer in answers.values()} == {"from outside"}
