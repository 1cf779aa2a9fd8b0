"""Jobs in containers that end in every way: no process of them, no container and no mount is left."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import AT_ONCE, Figures
from tests.chaos.engine import STACK, Engine, Outcome
from tests.chaos.inside import nodes
from tests.chaos.interruptions import INTERRUPTIONS_IN_CONTAINERS, Interruption, Seen
from tests.chaos.row_checks import check_interruption, check_row, processes_left
from tests.chaos.rows import ROWS_IN_CONTAINERS, Row
from tests.e2e.workplace import Workplace
from tests.environments.debian_image import image_archive
from tests.environments.planted_images import copy_image
from tests.rehearsal.registry import registry

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]
NODES = 2 * (AT_ONCE + sum(row.spoils for row in ROWS_IN_CONTAINERS))
"""Two for each row of those at a time, and two for each row after which theirs are of no use."""

PATH = "PATH=/home/azureuser/torch/bin:/usr/bin:/bin"
"""With the torchrun that rows of torchrun have in their nodes' home folders."""

Mounts = dict[str, list[str]]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Bare nodes that hold an image, which every launch looks up in its registry."""
    made = Workplace(tmp_path_factory.mktemp("chaos"))
    shutil.copytree(Path(__file__).with_name("ranks"), made.own / "ranks")
    with registry(tmp_path_factory.mktemp("registry")) as images:
        images.push("boxed", "1", image_archive().read_bytes(), Env=[PATH])
        try:
            made.start(NODES, node_python=None)
            made.configure(STACK, nodeCount=NODES)
            made.fab("up", "--stack", STACK)
            folder = f"~/.config/containers/certs.d/{images.address}"
            trust = shlex.quote(images.certificate.read_text())
            made.fab("exec", "--", "sh", "-c", f"mkdir -p {folder} && printf %s {trust} >{folder}/ca.crt")
            (made.project / "environments").mkdir()
            (made.project / "environments/boxed.yml").write_text(
                f"name: boxed\nimage: {images.address}/boxed:1\n"
            )
            made.fab("launch.torch", "--environment", "boxed", "--nodes", "0", "--", "sh", "-c", "true")
            copy_image(made, "node000000", [node.name for node in nodes(made.project, STACK).values()])
            yield Engine(made)
        finally:
            made.close()


@pytest.fixture(scope="session")
def mounts(engine: Engine) -> Mounts:
    """By node, what was mounted before any row."""
    return {name: _mounted(one.init) for name, one in engine.living.items()}


def _mounted(pid: int) -> list[str]:
    return sorted(Path(f"/proc/{pid}/mounts").read_text().splitlines())


@pytest.mark.parametrize("row", ROWS_IN_CONTAINERS, ids=lambda row: row.name)
def test_a_fault_ends_a_job_in_containers_as_it_should(
    row: Row, mounts: Mounts, outcomes: dict[Row, Future[Outcome]], figures: Figures
) -> None:
    check_row(outcomes[row].result(), figures)


@pytest.mark.parametrize("row", INTERRUPTIONS_IN_CONTAINERS, ids=lambda what: what.row.name)
def test_an_operator_who_is_lost_may_launch_again(
    row: Interruption, mounts: Mounts, outcomes: dict[Interruption, Future[Seen]], figures: Figures
) -> None:
    check_interruption(row, outcomes[row].result(), figures)


def test_no_process_and_no_mount_of_a_container_is_left_on_any_node(
    engine: Engine, mounts: Mounts, outcomes: dict[Row | Interruption, Future[Any]]
) -> None:
    assert processes_left(engine, outcomes) == {}
    living = nodes(engine.workplace.project, STACK)
    assert {name: _mounted(one.init) for name, one in living.items()} == {
        name: mounts[name] for name in living
    }
