"""The commands as users type them: help, errors once and in one style, exit statuses, dry runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbooks import ns
from tests.infra.azure_answers import Azure, rehearsed, served
from tests.playbooks.server import SshServer, free_port, make_key, save_stack
from tests.playbooks.typed import (
    arguments,
    fab,
    fake_pulumi,
    interrupted,
    without_connections,
    write_project,
)

SETTINGS = """\
config:
  ranklift:vmSize: Standard_ND40rs_v2
  ranklift:nodeCount: "4"
  ranklift:location: southcentralus
  ranklift:sshFrom: 203.0.113.7
"""
TASKS = sorted(name for name in ns.task_names if not name.startswith("rehearsal"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(scope="module")
def workplace(server: SshServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository beside the project; instances 0, 1 and 3 of stack ``dev`` answer, 4 does not."""
    top = tmp_path_factory.mktemp("work place")
    project, own = top / "ranklift", top / "own"
    project.mkdir()
    write_project(project, "dev")
    good = dict.fromkeys((0, 1, 3), server.port)
    save_stack(project / ".ranklift" / "dev", {**good, 4: free_port()}, server.host_key, server.user_key)
    other = make_key(top / "other")
    save_stack(project / ".ranklift" / "changed", {0: server.port}, other, server.user_key)
    own.mkdir()
    (own / "fabfile.py").write_text(
        'from playbooks import ns\nns.configure({"ranklift": {"project": "../ranklift"}})\n'
    )
    (own / "train.py").write_text("print('hi')\n")
    return own


def test_every_promised_name_is_there() -> None:
    assert {
        *("status", "wait", "exec", "ssh", "push", "jobs", "job", "logs", "cancel", "collect", "up", "down"),
        *("scale", "replace", "drain", "undrain"),
        *("launch.file", "launch.mpi", "launch.torch", "launch.tensorflow"),
    } <= set(ns.task_names)


@pytest.mark.parametrize("task", TASKS)
def test_help_shows_an_example_of_this_task_and_explains_every_option(task: str) -> None:
    made = ns[task]
    # A collection's default task is called by the collection's name.
    called = (*ns.task_names[task], task)
    assert any(f"Example:\n    fab {name} " in f"{made.__doc__} ".replace("\n\n", " \n") for name in called)
    undocumented = [argument.name for argument in arguments(task) if not argument.help]
    assert undocumented == []


def test_help_is_help_even_where_an_argument_is_due(workplace: Path) -> None:
    for words in (["exec", "--help"], ["launch.mpi", "--help"], ["--help", "logs"], ["status", "--help"]):
        ran = fab(workplace, *words)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "Example:" in ran.stdout


def test_a_misspelt_option_is_not_run_as_a_command(workplace: Path) -> None:
    ran = fab(workplace, "exec", "--nods")
    assert ran.returncode == 2
    assert ran.stderr == "error: option = '--nods': exec has no such option; did you mean --nodes?\n"


def test_exec_merges_what_is_equal_and_ends_as_the_command_did(workplace: Path) -> None:
    ran = fab(workplace, "exec", "echo \"$HOME\" 'a  b'; exit 5", "--nodes", "0-1,3")
    assert ran.returncode == 5
    assert ran.stdout.startswith("node[000000-000001,000003]: exit status 5\n  /")
    assert ran.stdout.endswith("home a  b\n")
    assert ran.stderr == ""


def test_exec_on_one_node_prints_the_output_alone(workplace: Path) -> None:
    assert fab(workplace, "exec", "echo one; echo two >&2", "--nodes", "3").stdout == "one\n"


def test_a_dead_node_is_named_and_the_others_are_served(workplace: Path) -> None:
    ran = fab(workplace, "exec", "echo hi")
    assert ran.returncode == 1
    assert ran.stdout == "node[000000-000001,000003]\n  hi\n"
    assert ran.stderr.startswith("error: exec failed on 1 of 4 nodes\nnode000004: 127.0.0.1:")
    assert "fab status" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_exec_as_json_has_results_and_errors(workplace: Path) -> None:
    ran = fab(workplace, "exec", "echo hi", "--json", "--nodes", "0,4")
    found = json.loads(ran.stdout)
    assert ran.returncode == 1
    nothing = {"stdout_left_out": 0, "stderr_left_out": 0}
    assert found["node000000"] == {"exit_status": 0, "stdout": "hi\n", "stderr": "", **nothing}
    assert found["node000004"]["kind"] == "NodeUnreachable"


def test_a_changed_host_key_is_refused_by_name(workplace: Path) -> None:
    ran = fab(workplace, "exec", "echo hi", "--stack", "changed", "--nodes", "0")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "node000000" in ran.stderr
    assert "not the pinned" in ran.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exec", "id", "--nodes", "0-"], "--nodes = '0-': '0-' is not a range"),
        (
            ["exec", "id", "--nodes", "2,9"],
            "ago: node[000000-000001,000003-000004] (ids 0-1,3-4); `fab status` reads them from Azure again",
        ),
        (["exec", "id", "--timeout", "soon"], "--timeout = 'soon': is not a duration"),
        (["exec", "id", "--fanout", "0"], "--fanout = 0: must be at least 1"),
        (["exec", "id", "--stack", "nix"], "stack = 'nix': has no saved inventory"),
        (
            ["exec", "id", "--nodes", "any:5"],
            "--nodes = 'any:5': stack dev has 4 nodes that run; known ",
        ),
        (["ssh", "--node", "0-1"], "node = '0-1': names 2 nodes; name one, as in 3 or node000003"),
        (["logs", "t-1", "--node", "any:2"], "--node = 'any:2': leaves open which nodes"),
        (["ssh", "--node", "7"], "7 is not a node of stack dev"),
        (["launch.mpi", "nope.py"], "script = 'nope.py': is not in the pushed code"),
        (["launch.mpi", "train.py", "--nproc-per-node", "9"], "--nproc-per-node = 9: node000000 has 8 slots"),
        (["launch.mpi", "train.py", "--nproc-per-node", "0"], "--nproc-per-node = 0: must be at least 1"),
        (["launch.mpi", "train.py", "--env", "XYZ"], "--env = 'XYZ': is not set in the environment of this"),
        (["launch.mpi", "train.py", "--env", "=1"], "--env: has a value without a name"),
        (["launch.mpi", "train.py 'x"], "close every quote"),
        (["launch.torch", "train.py", "--torchrun", "--per-node"], "cannot be combined with --torchrun"),
        (["launch.torch", "train.py", "--nnodes", "2:4"], "--nnodes = '2:4': needs --torchrun"),
        (["launch.torch", "train.py", "--torchrun", "--nnodes", "8:9"], "does not include the 4 nodes"),
        (["launch.torch", "train.py", "--source", "nix"], "no such folder"),
        (["launch.mpi", "train.py", "--mpi", "lam"], "--mpi = 'lam': is not a known MPI; use one of openmpi"),
        (["launch.mpi", "train.py", "--mpirun-args=-np 1"], "--mpirun-args = '-np 1': the job has 4 ranks"),
        (["launch.torch", "torchrun --standalone a"], "line = '--standalone': would train on each of the 4"),
        (
            ["launch.torch", "torchrun train.py", "--nproc-per-node", "2"],
            "cannot be combined with this command: torchrun",
        ),
        (["launch.torch", "show.py", "extra"], 'put it in quotes: fab launch.torch "show.py extra"'),
        (["launch", "job.yml", "extra"], "launch takes one file; see `fab --help launch`"),
        (["stauts"], "task = 'stauts': no such task; did you mean status?"),
        (["status", "--jsn"], "option = '--jsn': status has no such option; did you mean --json?"),
        (
            ["exec", "id", "--stack", "dve"],
            "has no saved inventory; did you mean dev? else known here: changed, dev",
        ),
        (["up", "--stack", "dve"], "; did you mean dev? else check the name"),
        (["up", "--stack", "dve"], "stack = 'dve': has no Pulumi.dve.yaml in "),
        (["logs", "../../etc"], "is not a job's id"),
        (["logs", "t-1", "--rank", "all"], "--rank = 'all': 'all' is not a range; write it like 0-3,7"),
        (["logs", "t-1", "--node", "0;1"], "--node = '0;1': '0;1' is not a range; write it like 0-3,7"),
        (["logs", "t-1", "--tail", "-3"], "--tail = -3: must be at least 0; write it like 100"),
        (["logs", "t-1", "--since", "noon"], "--since = 'noon': is not a duration"),
        (["logs", "t-1", "--grep", "("], "--grep = '(': is not a regular expression"),
        (["push", "--nodes", "8"], "8 is not a node of stack dev"),
        (["jobs", "--last", "x"], "--last = 'x': is not a number of jobs; give 0 or more, or --all"),
        (
            ["launch.mpi", "train.py", "--max-restarts", "x"],
            "--max-restarts = 'x': is not a number of restarts",
        ),
        (["launch.tensorflow", "train.py", "--workers", "x"], "--workers = 'x': is not a number of workers"),
        (
            ["launch.tensorflow", "train.py", "--parameter-servers", "-1"],
            "--parameter-servers = -1: must be at least 0",
        ),
        (["exec", "id", "--fanout", "many"], "--fanout = 'many': is not a number of nodes"),
        (["exec", "id", "--timeout", "0"], "--timeout = '0': must be more than 0; write it like 90"),
        (["scale", "-1"], "number = -1: must be at least 1; give 1 or more; `fab down`"),
        (["cancel", "t-1", "--grace", "-1"], "--grace = '-1': must be 0 or more; write it like 0, 10s or 2m"),
        (["launch.mpi", "train.py", "--detach", "--cancel-on-interrupt"], "cannot be combined with --detach"),
        (["collect", "t-1", "--into", ""], "--into = '': is not the name of a folder"),
        (["rehearsal.start", "--nodes-limit", "0"], "--nodes-limit = 0: must be at least 1"),
        (["rehearsal.start", "--nodes-limit", "x"], "--nodes-limit = 'x': is not a number of nodes; give 1"),
        (["rehearsal.start", "--node-python", "x"], "--node-python = 'x': is not a virtual environment"),
    ],
)
def test_wrong_input_is_one_line_with_key_value_remedy_and_status_2(
    workplace: Path, words: list[str], expected: str
) -> None:
    ran = fab(workplace, *words)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: ")
    assert len(ran.stderr.splitlines()) == 1
    assert expected in ran.stderr


@pytest.mark.parametrize("task", ["logs", "job", "collect", "cancel"])
def test_without_a_job_the_newest_is_looked_for_on_every_node(workplace: Path, task: str) -> None:
    failed = fab(workplace, task)
    assert (failed.returncode, failed.stdout) == (2, "")
    silent, error = failed.stderr.splitlines()
    assert silent == "node000004: no answer; a job of which it is the head may be missing here"
    assert error.startswith("error: job: stack dev has no job")


def test_no_project_here_says_how_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text("from playbooks import ns\n")
    ran = fab(tmp_path, "exec", "id")
    assert ran.returncode == 2
    assert "RANKLIFT_PROJECT" in ran.stderr


def test_a_dry_run_opens_no_socket_and_calls_nobody(workplace: Path) -> None:
    env = without_connections(workplace.parent)
    assert fab(workplace, "exec", "id", env=env).returncode == 99, "the guard works"
    (workplace.parent / "job.yml").write_text("command: python train.py\ncode: own\n")
    for words, expected in (
        (["exec", "uname -a", "--nodes", "0,3"], "on node[000000,000003]: uname -a"),
        (["push"], "2 files"),
        (["launch.mpi", "train.py", "--nproc-per-node", "2"], "processes  8: 0-1 on node000000"),
        (["launch.torch", "train.py", "--torchrun"], "torchrun --nnodes 4"),
        (["launch.torch", "train.py", "--torchrun", "--nnodes", "2:4"], "--rdzv-backend c10d"),
        (["launch.torch", "train.py", "--torchrun", "--rdzv-backend", "c10d"], "--nnodes 4"),
        (["launch.tensorflow", "train.py"], '"task": {"type": "worker", "index": 3}'),
        (["launch", "../job.yml"], "command    bash -c 'python train.py'"),
        (["up"], "pulumi up --yes --stack dev"),
    ):
        ran = fab(workplace, *words, "--dry-run", env=env)
        assert (ran.returncode, ran.stderr) == (0, ""), words
        assert expected in ran.stdout
        assert "rm -r" not in ran.stdout, "what others put there stays"


def test_a_dry_run_as_json_is_the_whole_plan(workplace: Path) -> None:
    ran = fab(
        workplace,
        *("launch.mpi", "train.py --x 'a b'", "--dry-run", "--json", "--env", "X=1 $2", "--nodes", "0-1"),
        *("--timeout", "10m", "--name", "my run"),
    )
    found = json.loads(ran.stdout)
    assert found["argv"] == ["python3", "-u", "train.py", "--x", "a b"]
    assert found["user_env"] == {"X": None}  # by name: its value may be a secret
    assert found["timeout_s"] == 600
    assert found["id"].startswith("my-run-")
    assert [node["name"] for node in found["nodes"]] == ["node000000", "node000001"]


@pytest.mark.parametrize("task", ["launch.mpi", "launch.torch", "launch.tensorflow", "launch.file"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_variables_value_is_taken_from_the_environment_and_never_shown(
    workplace: Path, task: str, form: list[str]
) -> None:
    (workplace / "job.yml").write_text("command: hostname\nenvironment_variables: {IN_FILE: s3cret-2}\n")
    line = "job.yml" if task == "launch.file" else "train.py"
    given = ["--env", "WANDB_API_KEY", "--env", "TYPED=s3cret-3", "--nodes", "0"]
    ran = fab(workplace, task, line, *given, "--dry-run", *form, env={"WANDB_API_KEY": "s3cret-1"})
    assert (ran.returncode, "WANDB_API_KEY" in ran.stdout, "TYPED" in ran.stdout) == (0, True, True)
    assert "s3cret" not in ran.stdout + ran.stderr
    twice = fab(workplace, task, line, "--env", "A=s3cret", "--env", "A=s3cret", "--dry-run", *form)
    assert (twice.returncode, twice.stdout) == (2, "")
    assert twice.stderr == "error: --env = 'A': is given a second time; give each name once\n"


def test_launch_over_a_dead_node_is_refused_by_its_name(workplace: Path) -> None:
    for nodes in ("4", "0,4"):
        ran = fab(workplace, "launch.torch", "train.py", "--nodes", nodes)
        assert ran.returncode == 1
        assert "node000004" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_ssh_hands_over_to_openssh_with_the_stacks_settings(workplace: Path) -> None:
    ran = fab(workplace, "ssh", "--node", "3", "--dry-run")
    assert ran.stderr.startswith("$ ssh -F ")
    assert ran.stderr.endswith("/.ranklift/dev/ssh_config' node000003\n")


def test_plain_ssh_works_with_what_is_saved_and_refuses_a_changed_key(workplace: Path) -> None:
    folder = workplace.parent / "ranklift" / ".ranklift"
    for stack, status in (("dev", 0), ("changed", 255)):
        ran = subprocess.run(
            ["ssh", "-F", str(folder / stack / "ssh_config"), "node000000", "echo", "hi"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == status, ran.stderr
        assert ran.stdout == ("hi\n" if status == 0 else "")


def test_ctrl_c_ends_with_130_and_no_traceback(workplace: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    ended = 130, "\ninterrupted: no answer yet from node000000; the command was ended there\n"
    assert interrupted(workplace, "exec", f"touch {begun}; sleep 30", "--nodes", "0", begun=begun) == ended


def test_help_says_what_a_repeated_option_takes(workplace: Path) -> None:
    ran = fab(workplace, "launch.torch", "--help").stdout
    assert "  --env=NAME[=VALUE]  " in ran
    assert "  --name=NAME  " in ran
    assert "  --set=KEY=VALUE  " in fab(workplace, "--help", "launch").stdout


def test_a_misspelt_stack_is_not_made_and_a_new_one_is_built_on_demand(workplace: Path) -> None:
    ran = fab(workplace, "exec", "id", "--stack", "dve")
    assert "known here: changed, dev; see `pulumi stack ls`" in ran.stderr
    assert "fab up" not in ran.stderr
    (workplace.parent / "ranklift" / "Pulumi.planned.yaml").write_text("config: {}\n")
    ran = fab(workplace, "exec", "id", "--stack", "planned")
    assert "if it is up, else `fab up --stack planned`" in ran.stderr


def test_down_without_a_stack_cleans_up_once_azure_has_said_that_nothing_is_left(
    workplace: Path, tmp_path: Path
) -> None:
    kept = workplace.parent / "ranklift" / ".ranklift" / "gone"
    save_stack(kept, {}, make_key(tmp_path / "host"), make_key(tmp_path / "user"))
    env = fake_pulumi(tmp_path, "echo '[]'")
    ran = fab(workplace, "down", "--stack", "gone", env=env)
    assert ran.returncode == 2, "nobody knows whether its nodes run"
    assert "subscription: none is chosen" in ran.stderr
    assert kept.exists()
    with served(Azure()) as url:
        for _ in range(2):
            ran = fab(workplace, "down", "--stack", "gone", env={**env, **rehearsed(url, tmp_path)})
            assert ran.returncode == 0, ran.stderr
            assert ran.stdout.startswith("nothing of stack gone is left in subscription ")
            assert not kept.exists()
        down = fab(workplace, "down", "--stack", "gone", "--json", env={**env, **rehearsed(url, tmp_path)})
        assert (down.returncode, json.loads(down.stdout)["things"]) == (0, [])


def test_down_in_another_cloud_is_refused_before_anything_is_asked_of_pulumi(
    workplace: Path, tmp_path: Path
) -> None:
    env = fake_pulumi(tmp_path, 'echo "$@" >> "$0.calls"; echo "[]"')
    ran = fab(workplace, "down", "--stack", "dev", env={**env, "ARM_ENVIRONMENT": "china"})
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "ARM_ENVIRONMENT = 'china': is another of Azure's clouds" in ran.stderr
    assert not (tmp_path / "bin/pulumi.calls").exists()


def test_up_makes_the_stack_first_and_passes_pulumis_failure_on(workplace: Path, tmp_path: Path) -> None:
    env = fake_pulumi(
        tmp_path, 'echo "$@" >> "$0.calls"; case "$1 $2" in "stack ls") echo "[]";; "up --yes") exit 7;; esac'
    )
    (workplace.parent / "ranklift" / "Pulumi.new.yaml").write_text(SETTINGS)
    with served(Azure()) as url:
        ran = fab(workplace, "up", "--stack", "new", env={**env, **rehearsed(url, tmp_path)})
    assert ran.returncode == 7, ran.stderr
    calls = (tmp_path / "bin/pulumi.calls").read_text().splitlines()
    assert [call.partition(" --event-log ")[0] for call in calls] == [
        "stack ls --json --non-interactive",
        "stack init new",
        "up --yes --stack new",
    ]


def test_ctrl_c_waits_for_pulumi_and_says_how_to_go_on(workplace: Path, tmp_path: Path) -> None:
    begun = {"resourcePreEvent": {"metadata": {"op": "create", "urn": "urn:pulumi:new::ranklift::a::b"}}}
    env = fake_pulumi(
        tmp_path,
        'case "$1 $2" in "stack ls") echo "[]"; exit;; "up --yes") ;; *) exit;; esac\n'
        "trap 'sleep 1; touch \"$0.ended\"; exit 1' INT\n"
        f'for log in "$@"; do :; done; echo \'{json.dumps(begun)}\' > "$log"\n'
        'touch "$0.begun"; while :; do sleep 0.1; done',
    )
    (workplace.parent / "ranklift" / "Pulumi.new.yaml").write_text(SETTINGS)
    with served(Azure()) as url:
        status, stderr = interrupted(
            workplace,
            *("up", "--stack", "new"),
            begun=tmp_path / "bin/pulumi.begun",
            env={**env, **rehearsed(url, tmp_path)},
            as_terminal=True,
        )
    assert (tmp_path / "bin/pulumi.ended").exists()
    assert status == 130
    assert "`fab up --stack new` continues from there" in stderr
    assert "Traceback" not in stderr
