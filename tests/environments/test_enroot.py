"""Ranks under enroot, for which a script stands in: what they see, how they end, and what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.job.spec import JobSpec
from tests.environments.in_containers import ContainerNodes, assert_nothing_left
from tests.launch.standin import lines, remarks, shell, start, until

pytestmark = [
    pytest.mark.environments,
    pytest.mark.for_every_change,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_runs_on"),
]
STANDIN = Path(__file__).with_name("enroot_standin.sh")
SEE = """
import json, os
seen = [os.getcwd(), os.path.exists("/opt/tool"), sorted(os.listdir("/proc/self/fd")), dict(os.environ)]
print(json.dumps(seen))
"""


@pytest.fixture
def nodes(tmp_path: Path, image_root: Path) -> ContainerNodes:
    """Nodes with 2, 1 and 3 slots that have enroot and the image."""
    made = ContainerNodes(tmp_path, [2, 1, 3], "enroot")
    made.put("image.sqsh", image_root)
    (made.bin / "enroot").symlink_to(STANDIN)
    for name in ("squashfuse", "fuse-overlayfs"):
        (made.bin / name).symlink_to("/bin/true")
    return made


def test_a_rank_sees_the_image_and_its_variables(nodes: ContainerNodes) -> None:
    nodes.code("see.py", SEE)
    nodes.env["BASH_FUNC_module%%"] = "() { :\n}"
    mine = 'it\'s $HOME, "ü" and so on'
    state, events = nodes.run(JobSpec("t", "pytorch", ("see.py",), snapshot="code", env={"MINE": mine}))
    assert state.state == "SUCCEEDED", (state, remarks(events), lines(events))
    seen = {rank: json.loads(text) for rank, text in lines(events)}
    for rank, (folder, has_tool, descriptors, env) in seen.items():
        assert folder == str(nodes.job_folder(rank, state.job) / "work")
        assert has_tool
        assert descriptors == ["0", "1", "2", "3"], "of the image's Python and its listing alone"
        assert (env["MINE"], env["RANK"], env["GREETING"]) == (mine, str(rank), "from the image")
        assert env["PATH"].startswith("/opt/tool/bin:/usr/bin:/bin")
        assert not {"BASH_FUNC_module%%", "ENROOT_LOGIN_SHELL"} & env.keys()


def test_a_variable_that_would_arrive_changed_is_refused_before_any_rank_starts(
    nodes: ContainerNodes,
) -> None:
    state, events = nodes.run(shell("echo started", env={"MINE": "two\nlines"}))
    assert "environment variable MINE: enroot changes values of several lines" in state.reason
    assert lines(events) == []


def test_a_failed_rank_ends_the_others(nodes: ContainerNodes) -> None:
    script = "test $RANK != 1 || exit 7; trap '' TERM; (setsid sleep 1000 &); while :; do sleep 0.05; done"
    state, _ = nodes.run(shell(script, grace_s=1.0))
    assert (state.state, state.exit_status) == ("FAILED", 7)
    assert_nothing_left(state.job)


def test_a_cancel_leaves_the_image_mounted_while_ranks_handle_it(nodes: ContainerNodes) -> None:
    script = "trap 'sleep 0.5; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    job = start(nodes, shell(script, grace_s=10.0))
    until(lambda: sum(text == "ready" for _, text in lines(job.events)) == 3, 40)
    assert nodes.cancel(job.job).state == "CANCELLED"
    job.thread.join(30)
    assert sum(text == "saved" for _, text in lines(job.events)) == 3
    assert not list(nodes.folder.glob(f"node*/.ranklift/jobs/{job.job}/unmounted"))
    assert_nothing_left(job.job)
