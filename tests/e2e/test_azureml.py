"""Scripts written for Azure ML's SDK v1, run as they stand on a running cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.workplace import FABFILE, Ran, Workplace
from tests.launch.azureml.guide_scripts import original

pytestmark = pytest.mark.timeout(1200)

TRAIN = """\
import os, sys
rank, local, node = (os.environ[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
print("world", os.environ["WORLD_SIZE"], "local", local, "node", node, sys.argv[1:])
os.makedirs("outputs", exist_ok=True)
with open(f"outputs/rank-{rank}.txt", "w") as file:
    file.write(os.environ.get("NOTE", ""))
"""
FAILING = """\
import os, sys, time
if os.environ["RANK"] == "2":
    print("loss is nan")
    sys.exit(3)
time.sleep(3600)
"""
BEFORE = """\
from azureml.core import Workspace
from azureml.core.compute import ComputeTarget

ws = Workspace.from_config()
compute_target = ComputeTarget(workspace=ws, name="gpu-cluster")
"""
"""What the guide's script takes from the paragraphs before it."""
STANDS_IN = "name: AzureML-PyTorch-1.6-GPU\nconda_file: {dependencies: [{pip: [cloudpickle]}]}\n"
"""For the guide's environment, which Microsoft has no image of any more; the scripts here import nothing."""
PER_PROCESS = original("pytorch-per-process")
DOWNLOAD = """
run.tag("stage", "begun")
run.wait_for_completion(show_output=True)
run.set_tags({"stage": "ended", "note": "two words"})
print("status:", run.get_status(), run.get_tags())
print("files:", *[name for name in run.get_file_names() if name.startswith(("outputs/", "user_logs/"))])
run.download_files("outputs", "got", append_prefix=False)
run.download_file("user_logs/std_log_process_5.txt", "logs/five.txt")
"""
RAISES = """
from azureml.exceptions import ActivityFailedException

try:
    run.wait_for_completion(show_output=True)
except ActivityFailedException as error:
    print("raised:", error)
print("status:", run.get_status(), run.get_details()["error"]["exitStatus"])
"""
CANCEL = """
import time

while run.get_status() != "Running":
    time.sleep(0.5)
run.cancel()
print("status:", run.wait_for_completion()["status"])
"""


@pytest.fixture
def folder(cluster: Workplace) -> Path:
    """A repository beside the operator's other one."""
    made = cluster.own.parent / "v1"
    (made / "src").mkdir(parents=True, exist_ok=True)
    (made / "fabfile.py").write_text(FABFILE)
    return made


def submit(workplace: Workplace, folder: Path, train: str, *parts: str) -> Ran:
    """Runs a script made of parts, beside ``src/train.py``."""
    (folder / "src" / "train.py").write_text(train)
    (folder / "environments").mkdir(exist_ok=True)
    (folder / "environments" / "AzureML-PyTorch-1.6-GPU.yml").write_text(STANDS_IN)
    (folder / "submit.py").write_text("".join(parts))
    return workplace.run_v1(folder / "submit.py")


def test_a_script_of_the_guide_runs_to_its_end_and_its_files_come_back(
    cluster: Workplace, folder: Path
) -> None:
    changed = PER_PROCESS.replace(
        "arguments=['--epochs', 50],",
        "arguments=['--epochs', 50, '--local_rank', '$LOCAL_RANK', 'a b $HOME'],",
    )
    variables = "pytorch_env.environment_variables = {'NOTE': 'two words, $HOME'}\n"
    named = "distr_config = "
    script = changed.replace(named, variables + named)
    ran = submit(cluster, folder, TRAIN, BEFORE, script, DOWNLOAD)
    shown = re.findall(r"^\[(\d) (\S+)\] (.*)$", ran.out, re.MULTILINE)
    expected = []
    for rank in range(8):
        node, local = divmod(rank, 4)
        arguments = ["--epochs", "50", "--local_rank", str(local), "a b $HOME"]
        line = f"world 8 local {local} node {node} {arguments}"
        expected.append((str(rank), f"node00000{node}", line))
    assert sorted(shown) == expected
    assert "\nstatus: Completed {'stage': 'ended', 'note': 'two words'}\n" in ran.out
    (job,) = re.findall(r"^RunId: (\S+)$", ran.out, re.MULTILINE)[:1]
    assert "\ntags      stage=ended, note=two words\n" in cluster.fab("job", job).out
    names = [f"outputs/rank-{rank}.txt" for rank in range(8)]
    names += [f"user_logs/std_log_process_{rank}.txt" for rank in range(8)]
    assert f"\nfiles: {' '.join(names)}\n" in ran.out
    got = {path.name: path.read_text() for path in (folder / "got").iterdir()}
    assert got == {f"rank-{rank}.txt": "two words, $HOME" for rank in range(8)}
    assert (folder / "logs" / "five.txt").read_text() == f"{expected[5][2]}\n"
    notices = re.findall(r"^notice: (\w+ \w+)", ran.err, re.MULTILINE)
    assert notices == ["compute target"]
    assert "was read as a stack's name" not in ran.err


def test_a_run_whose_rank_fails_raises_with_its_last_lines(cluster: Workplace, folder: Path) -> None:
    ran = submit(cluster, folder, FAILING, BEFORE, PER_PROCESS, RAISES)
    (job,) = re.findall(r"^RunId: (\S+)$", ran.out, re.MULTILINE)[:1]
    assert re.fullmatch(r"experiment-name-\d{8}-\d{6}-[0-9a-f]{4}", job)
    reason = "rank 2 on node000000 ended with exit status 3"
    assert f"\nraised: job {job} FAILED: {reason}\n  loss is nan\nstatus: Failed 3\n" in ran.out


def test_a_run_can_be_cancelled_from_a_folder_without_a_fabfile(cluster: Workplace) -> None:
    folder = cluster.own.parent / "bare"
    (folder / "src").mkdir(parents=True)
    project = f"import os\nos.environ['RANKLIFT_PROJECT'] = {str(cluster.project)!r}\n"
    endless = FAILING.replace('== "2"', '== "none"')
    ran = submit(cluster, folder, endless, project, BEFORE, PER_PROCESS, CANCEL)
    assert ran.out.endswith("status: Canceled\n")
    left = cluster.fab("exec", "pgrep -f train.py || true", "--nodes", "0-1").out
    assert "train.py" not in left
