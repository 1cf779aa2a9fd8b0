"""What shells complete: tasks, options and values, in the shells themselves, at once."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playbooks.cli import completion
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.typed import FAB, ROOT, fab, write_project

JOB, OTHER = "train-20260301-090507-0f3a", "evaluate-20260301-090507-1f3a"
FABFILE = """\
from invoke.tasks import task
from playbooks import ns
ns.configure({"ranklift": {"project": "../ranklift"}})
@task
def tidy(context, file):
    "Remove what is old."
ns.add_task(tidy)
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository beside a project with the stacks ``dev``, which has nodes and jobs, and ``large``."""
    top = tmp_path_factory.mktemp("place")
    project, own = top / "ranklift", top / "own"
    (own / "trainings").mkdir(parents=True)
    project.mkdir()
    write_project(project, "dev", "large")
    (project / "images" / "build").mkdir(parents=True)
    (project / "images" / "build" / "Pulumi.gpu-images.yaml").write_text("config: {}\n")
    folder = project / ".ranklift" / "dev"
    save_stack(folder, dict.fromkeys((0, 2, 11), 22), make_key(top / "host"), make_key(top / "user"))
    (folder / "jobs").mkdir()
    for age, job in enumerate((JOB, OTHER)):
        note = folder / "jobs" / f"{job}.json"
        note.write_text("{}")
        os.utime(note, (1e9 - age, 1e9 - age))
    (own / "fabfile.py").write_text(FABFILE)
    (own / "train my.py").write_text("")
    (own / "environments").mkdir()
    (own / "environments" / "big.yml").write_text("name: big\n")
    (top / "home").mkdir()
    (top / "bin").mkdir()
    (top / "bin" / "fab").symlink_to(FAB)
    return own


def environment(workplace: Path) -> dict[str, str]:
    """What a shell sees: a home folder of its own, and a stack that is chosen."""
    top = workplace.parent
    return {
        "HOME": str(top / "home"),
        "PATH": f"{top / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "RANKLIFT_STACK": "dev",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }


@pytest.fixture(scope="module")
def table(workplace: Path) -> Any:
    """The table that ``fab`` keeps in the home folder's cache after the first answer."""
    ran = fab(workplace, "--complete", "--", "bash", "", env=environment(workplace))
    assert ran.returncode == 0, ran.stderr
    (kept,) = (workplace.parent / "home" / ".cache" / "ranklift").iterdir()
    return json.loads(kept.read_text())["table"]


def offered(table: Any, *words: str) -> list[str]:
    return [value for value, _ in completion.candidates(table, words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sta"], ["status"]),
        (["launch.t"], ["launch.tensorflow", "launch.torch"]),
        (["laun"], ["launch", "launch.mpi", "launch.tensorflow", "launch.torch"]),
        (["launch.file", ""], [":files"]),
        (["--help", "l"], ["launch", "launch.mpi", "launch.tensorflow", "launch.torch", "logs"]),
        (["--help=rep"], ["--help=replace", "--help=report"]),
        (["-h", "sca"], ["scale", "scaling"]),
        (["ti"], ["tidy"]),
        (["tidy", "x"], [":files"]),
        (["status", "--js"], ["--json"]),
        (["status", "-s", ""], ["dev", "large"]),
        (["status", "--stack=l"], ["--stack=large"]),
        (["image.build", "-s", ""], ["gpu-images"]),
        (["logs", ""], [JOB, OTHER, "newest"]),
        (["logs", "ev"], [OTHER]),
        (["logs", "-f", "--tail", "3", "t"], [JOB]),
        (["logs", "-s", "large", "t"], []),
        (["wait", JOB, "e"], [OTHER]),
        (["exec", "-n", ""], ["0", "2", "11"]),
        (["exec", "--nodes", "0,1"], ["0,11"]),
        (["exec", "--nodes", "0-"], ["0-0", "0-2", "0-11"]),
        (["exec", "--nodes", "0,node000002"], ["0,node000002"]),
        (["logs", JOB, "--node", "2"], ["2"]),
        (["replace", "1"], ["11"]),
        (["launch.mpi", "a.py", "--mpi", "m"], ["mpich"]),
        (["launch.torch", "--rdzv-backend=c"], ["--rdzv-backend=c10d"]),
        (["launch.torch", "--runtime", ""], ["docker", "enroot", "charliecloud"]),
        (["launch", "job.yml", "--runtime", "e"], ["enroot"]),
        (["launch.torch", "--environment", "b"], ["bare", "big"]),
        (["launch", "job.yml", "--environment=sklearn-1.5"], ["--environment=sklearn-1.5"]),
        (["rehearsal.fault", "evi"], ["evict"]),
        (["launch", ""], [":files"]),
        (["launch.torch", "tr"], [":files"]),
        (["launch.torch", "--source", ""], [":files"]),
        (["launch.torch", "--registry-token", ""], [":files"]),
        (["launch.torch", "--sas-file", ""], [":files"]),
        (["data.put", ""], [":files"]),
        (["data.get", "set", ""], [":files"]),
        (["data.r"], ["data.register", "data.rm"]),
        (["exec", "--nodes", "0", "--", "ls", "x"], [":files"]),
        (["launch.torch", "--name", "x"], []),
        (["--search-r"], ["--search-root"]),
    ],
)
def test_a_word_may_become(
    table: Any, workplace: Path, words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    assert offered(table, *words) == expected


def test_without_a_chosen_stack_those_of_all_are_offered(
    table: Any, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("HOME", str(workplace.parent / "home"))
    monkeypatch.delenv("RANKLIFT_STACK", raising=False)
    assert offered(table, "logs", "t") == [JOB]
    assert offered(table, "exec", "-n", "1") == ["11"]


def test_every_task_and_option_is_in_the_table_with_its_help(table: Any) -> None:
    assert {"up", "launch", "launch.torch", "rehearsal.start", "tidy"} <= set(table["tasks"])
    assert table["tasks"]["tidy"]["help"] == "Remove what is old."
    lacking = [
        (name, flag)
        for name, task in table["tasks"].items()
        for flag, option in task["options"].items()
        if not option["help"] and name != "tidy"
    ]
    assert lacking == []


def test_a_changed_fabfile_is_noticed(workplace: Path, table: Any) -> None:
    fabfile = workplace / "fabfile.py"
    env = environment(workplace)
    try:
        fabfile.write_text(FABFILE.replace("tidy", "clean"))
        ran = fab(workplace, "--complete", "--", "zsh", "cl", env=env)
        assert ran.stdout == "clean\tRemove what is old.\n"
    finally:
        fabfile.write_text(FABFILE)
        fab(workplace, "--complete", "--", "zsh", "", env=env)


def test_an_answer_imports_none_of_the_modules_that_take_time(
    workplace: Path, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    command = [sys.executable, "-X", "importtime", FAB, "--complete", "--", "bash", "logs", ""]
    env = {**os.environ, **environment(workplace)}
    ran = subprocess.run(command, cwd=workplace, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{JOB}\t", f"{OTHER}\t", "newest\tthe newest job"]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert not imported & {
        "pulumi",
        "azure",
        "paramiko",
        "rich",
        "invoke",
        "fabric",
        "yaml",
        "asyncio",
        "grpc",
    }


def test_outside_of_a_repository_nothing_is_offered(tmp_path: Path, workplace: Path) -> None:
    ran = fab(tmp_path, "--complete", "--", "bash", "st", env=environment(workplace))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


MARK = "the fabfile ran"


def lay_trap(folder: Path) -> Path:
    """A fabfile in ``folder`` that leaves a file there, and a folder below."""
    (folder / "fabfile.py").write_text(
        f"import pathlib\npathlib.Path({str(folder / MARK)!r}).touch()\n{FABFILE}"
    )
    (folder / "below").mkdir()
    return folder / "below"


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_fabfile_of_a_folder_that_everybody_may_write_in_is_not_run(
    tmp_path: Path, workplace: Path, shell: str
) -> None:
    below = lay_trap(tmp_path)
    env = environment(workplace) | {"HOME": str(tmp_path / "home")}
    tmp_path.chmod(0o1777)
    ran = fab(below, "--complete", "--", shell, "st", env=env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (tmp_path / MARK).exists()
    tmp_path.chmod(0o755)
    fab(below, "--complete", "--", shell, "st", env=env)
    assert (tmp_path / MARK).exists()


def test_another_shell_is_refused_by_name(tmp_path: Path) -> None:
    ran = fab(tmp_path, "--print-completion-script", "tcsh")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "error: --print-completion-script = 'tcsh': is not a known shell; use one of bash, zsh, fish\n"
    )
    for words in (["--print-completion-script", "zsh"], ["--print-completion-script=zsh"]):
        assert "#compdef fab" in fab(tmp_path, *words).stdout


# -- the shells themselves ----------------------------------------------------------------------------------

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
READY = "ready-for-keys"


class Terminal:
    """A shell at a terminal, with the completion script read."""

    def __init__(self, shell: str, folder: Path) -> None:
        self.seen = b""
        env = environment(folder)
        self.process, self._fd = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(SHELLS[shell][0], SHELLS[shell], env)
        source = "fab --print-completion-script fish | source" if shell == "fish" else None
        self.type(source or f'eval "$(fab --print-completion-script {shell})"', "\r")
        if shell == "zsh":
            self.type("bindkey -e\r")
        self.type(f"echo {READY[:5]}''{READY[5:]}\r")
        self.wait(READY)

    def type(self, *keys: str) -> None:
        for key in keys:
            os.write(self._fd, key.encode())

    def wait(self, text: str, seconds: float = 30) -> str:
        """Read until the text appears; return all that was read."""
        deadline = time.monotonic() + seconds
        while text not in (plain := re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>()][B0]?|\r", "", self.text())):
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not appear in {plain!r}"
            if select.select([self._fd], [], [], left)[0]:
                self.seen += os.read(self._fd, 65536)
        self.seen = b""
        return plain

    def text(self) -> str:
        return self.seen.decode("utf-8", "replace")

    def completed(self, typed: str) -> list[str]:
        """The words that the shell makes of what is typed and a press of the tab key."""
        self.type(f"{typed}\t")
        # The rest of the keys may come while the shell still waits for the answer: it reads them afterwards.
        self.type("\x01printf '<%s>' \x05\recho en''d-of-it\r")
        ran = self.wait("end-of-it")
        return re.findall(r"<([^<>%]*)>", ran)

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)  # before the terminal goes, at which bash writes its history
        os.close(self._fd)
        os.waitpid(self.process, 0)


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, workplace: Path, table: Any) -> Iterator[Terminal]:
    assert shutil.which(request.param), f"{request.param} is not installed: run `make setup`"
    made = Terminal(request.param, workplace)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("fab acc", ["fab", "account"]),
        ("fab status --js", ["fab", "status", "--json"]),
        ("fab status --stack l", ["fab", "status", "--stack", "large"]),
        ("fab status --stack=l", ["fab", "status", "--stack=large"]),
        ("fab logs -f tr", ["fab", "logs", "-f", JOB]),
        ("fab exec hostname -n 0,1", ["fab", "exec", "hostname", "-n", "0,11"]),
        ("fab launch.torch trai", None),
        ("fab launch.torch train\\ ", ["fab", "launch.torch", "train my.py"]),
        ("fab exec -- ls train\\ ", ["fab", "exec", "--", "ls", "train my.py"]),
    ],
)
def test_a_shell_completes(terminal: Terminal, typed: str, words: list[str] | None) -> None:
    completed = terminal.completed(typed)
    if words is None:
        assert completed[-1].startswith("train")
    else:
        assert completed == words


@pytest.mark.parametrize(
    "name",
    [
        "y1$(touch pwned)",
        "y2`touch pwned`",
        "y3;touch pwned",
        "y4 two words",
        "y5'single",
        'y6"double',
        "y7$HOME",
        "y8&touch pwned",
        "y9|touch pwned",
        "yA\\back",
        "yB!history",
        "yC*",
        "yD{a,b}",
        "yE#hash",
        "yF(touch pwned)",
    ],
)
def test_a_shell_inserts_a_value_as_a_word_whatever_it_holds(
    terminal: Terminal, workplace: Path, name: str
) -> None:
    file = workplace / "environments" / f"{name}.yml"
    file.write_text("name: x\n")
    try:
        for typed in (
            f"fab launch.torch x --environment {name[:2]}",
            f"fab launch.torch x --environment={name[:2]}",
        ):
            completed = terminal.completed(typed)
            assert completed[-1].removeprefix("--environment=") == name
            assert len(completed) in (4, 5)
    finally:
        file.unlink()
    assert not (workplace / "pwned").exists()


def test_zsh_lists_a_value_without_help_alone(workplace: Path) -> None:
    shell = Terminal("zsh", workplace)
    try:
        shell.type("fab logs \t")
        shown = shell.wait("the newest job")
    finally:
        shell.close()
    (listed,) = [line for line in shown.split("\n") if line.startswith(JOB)]
    assert "--" not in listed.replace("\x08", "")


def test_a_home_folder_is_left_alone_but_for_the_cache(terminal: Terminal, workplace: Path) -> None:
    home = workplace.parent / "home"
    fishes = {".config", ".local"}  # fish makes these itself, with or without a script
    assert {path.name for path in home.iterdir()} - fishes == {".cache"}
