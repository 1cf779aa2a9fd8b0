"""What ``fab`` shows of its tasks and options, and scripts behind ``--``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from playbooks import ns
from playbooks.cli.task import SHORT
from playbooks.cli.task_help import Forms
from tests.playbooks.screen import hold
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import arguments, fab, on_terminal, write_project

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of its own, whose stack ``dev`` has two nodes that nobody asks."""
    top = tmp_path_factory.mktemp("workplace")
    write_project(top, fabfile=True)
    (top / "train.py").write_text("print('hi')\n")
    keys = tmp_path_factory.mktemp("keys")
    save_stack(top / ".ranklift" / "dev", {0: 22, 1: 22}, make_key(keys / "host"), make_key(keys / "user"))
    return top


def too_long(shown: str, columns: int) -> list[str]:
    return [line for line in shown.splitlines() if len(line) > columns and not line.startswith("Usage: ")]


def test_a_letter_means_the_same_in_every_task() -> None:
    counts = {("plan", "nodes"), ("scaling", "nodes")}  # how many, where -n says which
    meanings: dict[str, set[str]] = {}
    for task in ns.task_names:
        for argument in arguments(task):
            name, letters = argument.name, [one for one in argument.names if len(one) == 1]
            expected = SHORT.get(name, "") if (task, name) not in counts else ""
            assert letters == list(expected), (task, name)
            for letter in letters:
                meanings.setdefault(letter, set()).add(name)
    # A task has --nodes, or --node where it is for one of them: which nodes, either way.
    assert meanings.pop("n") == {"node", "nodes"}
    assert all(len(names) == 1 for names in meanings.values())
    assert {"s", "j", "f"} <= set(meanings)


WITHOUT_JSON = {"init", "ssh", "data.register", "data.rm", "image.build", "metrics"}
"""Tasks that hand the terminal over, or whose one line is that it is done, like those of the rehearsal;
metrics have Prometheus' own format."""


def test_every_task_that_reports_does_so_as_json_too() -> None:
    without = {task for task in ns.task_names if "json" not in {one.name for one in arguments(task)}}
    assert {task for task in without if not task.startswith("rehearsal.")} <= WITHOUT_JSON
    assert "rehearsal.status" not in without


@pytest.mark.parametrize("task", ["cancel", "data.rm", "down", "plan", "up"])
def test_what_a_task_asks_can_be_answered_on_its_command_line(task: str) -> None:
    assert "yes" in {one.name for one in arguments(task)}


@pytest.mark.parametrize("words", [["1"], ["node000001"], ["-n", "1"], ["--node", "1"]])
def test_ssh_takes_the_node_as_a_word_and_as_an_option(workplace: Path, words: list[str]) -> None:
    assert fab(workplace, "ssh", *words, "--dry-run").stderr.endswith(" node000001\n")


def test_fab_alone_shows_what_to_do_first_and_then_every_task_by_group(workplace: Path) -> None:
    ran = fab(workplace)
    assert (ran.returncode, ran.stderr) == (0, "")
    steps = ["fab plan", "fab up", 'fab launch.torch "train.py --lr 0.1"', "fab jobs", "fab down"]
    places = [ran.stdout.index(f"\n  {step} ") for step in steps]
    assert places == sorted(places)
    listed = fab(workplace, "--list")
    assert listed.returncode == 0
    assert ran.stdout.endswith(f"\n\n{listed.stdout}")
    lines = listed.stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        *(
            "The cluster:",
            "Nodes:",
            "Jobs:",
            "Data in the stack's storage:",
            "Images of nodes:",
            "The rehearsal: Azure on this machine:",
        ),
    ]
    names = [line.split()[0] for line in lines if re.match(r"  \S", line)]
    called = {min((name, *others), key=len) for name, others in ns.task_names.items()}
    assert sorted(names) == sorted(called)
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize(("words", "name"), [([], "fab"), (["--help", "logs"], "help-logs")])
def test_the_tasks_and_help_fit_the_terminal_without_breaking_a_word(
    workplace: Path, words: list[str], name: str, columns: int
) -> None:
    shown = on_terminal(workplace, columns, *words)
    hold(shown, GOLDEN / f"{name}-{columns}.txt")
    assert [line.strip()[:4] for line in too_long(shown, columns)] in ([], ["fab "])  # an example stays whole


def test_the_help_of_fab_itself_fits_the_terminal(workplace: Path) -> None:
    shown = on_terminal(workplace, 40, "--help")
    assert "--complete\n" in shown
    assert too_long(shown, 40) == []


def test_a_part_of_the_tasks_can_be_listed_too(workplace: Path) -> None:
    assert "rehearsal" not in fab(workplace, "--list", "launch").stdout


@pytest.mark.parametrize("task", ["launch.mpi", "launch.torch", "launch.tensorflow"])
def test_help_names_what_expands_in_a_command(workplace: Path, task: str) -> None:
    text = " ".join(fab(workplace, "--help", task).stdout.split())
    assert (
        "$RANK, $LOCAL_RANK, $MASTER_ADDR and the launcher's other variables expand in each process" in text
    )
    assert "$HOME, * and ~ do not" in text
    assert "bash on the nodes expands $HOME and *" in " ".join(
        fab(workplace, "exec", "--help").stdout.split()
    )


def test_a_script_behind_two_dashes_is_launched_as_it_is(workplace: Path) -> None:
    words = (
        "launch.mpi",
        "-n",
        "0-1",
        "--dry-run",
        "-j",
        "--",
        "train.py",
        "--name",
        "a b",
        "$RANK",
        "$HOME",
        "-n",
    )
    ran = fab(workplace, *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert found["argv"] == ["python3", "-u", "train.py", "--name", "a b", "${RANK}", "$HOME", "-n"]
    assert "RANK" in found["expand"]
    assert len(found["nodes"]) == 2
    ran = fab(workplace, "exec", "-n", "0", "--dry-run", "--", "printf", "%s|", "a  b", "$HOME", "*")
    assert ran.stdout == "on node000000: printf '%s|' 'a  b' '$HOME' '*'\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exec"], 'exec: needs a command; e.g. fab exec "nvidia-smi -L" --nodes 0-3,7'),
        (["launch.torch", "-n", "0"], 'launch.torch: needs a command; e.g. fab launch.torch "train.py'),
        (["launch"], "launch: needs a job file; e.g. fab launch job.yml"),
        (["scale"], "scale: needs a number of nodes; e.g. fab scale "),
        (["replace", "--timeout", "3"], "node: is missing; name one, as in 3 or node000003, or give --sick"),
        (["exec", "--nodes", "0", "ls", "-l"], 'put it in quotes: fab exec --nodes 0 "ls -l"'),
        (
            ["launch.mpi", "a.py", "--lr", "0.1", "--nodes", "0"],
            'put it in quotes: fab launch.mpi "a.py --lr 0.1" --nodes 0',
        ),
    ],
)
def test_what_a_command_line_lacks_is_named_with_what_to_type(
    workplace: Path, words: list[str], expected: str
) -> None:
    ran = fab(workplace, *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert expected in ran.stderr


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["help"], ["--help"]),
        (["help", "launch"], ["--help", "launch"]),
        (["help", "launch", "torch"], ["launch.torch", "--help"]),
    ],
)
def test_help_is_a_word_too(workplace: Path, words: list[str], same: list[str]) -> None:
    ran = fab(workplace, *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == fab(workplace, *same).stdout


def test_help_of_what_is_no_task_says_so(workplace: Path, tmp_path: Path) -> None:
    for words in (["help", "lanch"], ["--help", "lanch"]):
        ran = fab(workplace, *words)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == "error: task = 'lanch': no such task; did you mean launch?\n"
    assert "Usage: fab " in fab(tmp_path, "help").stdout, "without any fabfile"


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("scale", "Usage: fab scale NUMBER [--options]\n"),
        ("launch", "Usage: fab launch FILE [--options]\n"),
        ("launch.torch", "Usage: fab launch.torch COMMAND [--options]\n"),
        ("wait", "Usage: fab wait [JOB ...] [--options]\n"),
        ("ssh", "Usage: fab ssh [NODE] [--options]\n"),
        ("data.put", "Usage: fab data.put SOURCE [PATH] [--options]\n"),
        ("rehearsal.env", "Usage: fab rehearsal.env\n"),
    ],
)
def test_the_usage_of_a_task_shows_its_words(workplace: Path, task: str, expected: str) -> None:
    assert fab(workplace, "--help", task).stdout.startswith(expected)


@pytest.mark.parametrize("task", sorted(ns.task_names))
def test_help_shows_the_form_of_every_value(task: str) -> None:
    shown = dict(Forms(task, args=arguments(task)).help_tuples())
    assert "STRING" not in " ".join(shown)
    for spec in shown:
        if "--timeout" in spec:
            assert "--timeout=SECONDS" in spec
        if "--nproc-per-node" in spec or "--tail" in spec:
            assert "=INT" in spec
