"""The fab program around its tasks: Ctrl-C at its start, a stdout that takes nothing, a folder that went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from playbooks import start
from tests.playbooks.typed import FAB, ROOT

ENV = {**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"}
FULL = "error: stdout cannot be written: No space left on device; the rest of the output is lost\n"
CLOSED = "error: stdout cannot be written: Bad file descriptor; the rest of the output is lost\n"


FABFILE = """\
import os
import signal
import sys
from invoke import task
from playbooks import ns
from playbooks.cli import output
from playbooks.cli.task import command
from playbooks.start import sleep_while_read

def made(name, work):
    @command(name, example=f"fab {name}")
    def body(context):
        '''A task.'''
        work()
    ns.add_task(body)

class Late:  # deleted by Python's shutdown, after the default actions of signals are back
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):
        kill(process, number)

made("much", lambda: [output.result("x" * 100) for _ in range(100000)])
made("little", lambda: output.result("x"))
made("as-json", lambda: output.as_json([1]))
made("as-table", lambda: output.table(("a",), [("b",)]))
made("waiting", lambda: (output.result("x"), sleep_while_read(60)))
made("silent", lambda: output.progress("going on"))
made("interrupted-late", lambda: setattr(sys, "left", Late()))
made("files", lambda: os._exit(min(3, os.open("/dev/null", os.O_RDONLY))))

@task
def theirs(context):
    print("x")

ns.add_task(theirs)
"""


def test_a_folder_without_a_fabfile_is_refused_with_where_to_go(tmp_path: Path) -> None:
    (tmp_path / "fabfile.txt").touch()
    for words, named in ((["status"], str(tmp_path)), (["-c", "tidy", "status"], "'tidy'")):
        ran = subprocess.run(
            [FAB, *words], cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False, timeout=60
        )
        assert named in ran.stderr
        assert ran.stdout == ""
        is_ours = "-c" not in words
        assert ran.returncode == (2 if is_ours else 1)
        assert is_ours == ("cd to Ranklift's folder, or to a repository whose fabfile.py" in ran.stderr)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository with tasks of its own: ours in kind, and one as Invoke has them."""
    (tmp_path / "fabfile.py").write_text(FABFILE)
    return tmp_path


def shell(line: str, folder: Path) -> tuple[int, str, str]:
    ran = subprocess.run(
        ["bash", "-c", line.replace("FAB", FAB)],
        cwd=folder,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "words",
    ["little", "as-json", "as-table", "theirs", "--list", "--help little", "--version", "little theirs"],
)
@pytest.mark.parametrize(("where", "error"), [(">/dev/full", FULL), (">&-", CLOSED)], ids=["full", "closed"])
def test_a_stdout_that_takes_nothing_is_one_line_and_a_failure(
    own: Path, words: str, where: str, error: str
) -> None:
    assert shell(f"FAB {words} {where}", own) == (1, "", error)


def test_the_version_is_the_packages_and_those_of_what_it_stands_on(tmp_path: Path) -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "playbooks.start.__version__"}
    status, out, err = shell("FAB --version", tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"Ranklift {start.__version__}"
    assert [line.split()[0] for line in out.splitlines()] == ["Ranklift", "Fabric", "Paramiko", "Invoke"]


@pytest.mark.parametrize("words", ["much", "little", "as-table", "theirs", "--list", "--help little"])
def test_whoever_reads_stdout_may_go_at_any_time_without_a_word(own: Path, words: str) -> None:
    # The reader is gone before fab begins.
    status, out, err = shell(f"(sleep 0.2; FAB {words}; echo $? >&3) 3>status | true; cat status", own)
    assert (status, out, err) == (0, "141\n", "")


def test_the_first_lines_come_though_nobody_reads_the_others(own: Path) -> None:
    assert shell("FAB much | head -n 1; echo ${PIPESTATUS[0]}", own) == (0, "x" * 100 + "\n141\n", "")
    assert shell("FAB --help little | head -n 1; echo ${PIPESTATUS[0]}", own)[2] == ""


def test_a_command_that_waits_without_a_word_ends_with_its_reader(own: Path) -> None:
    begun = time.monotonic()
    assert shell("FAB waiting | head -n 1; echo ${PIPESTATUS[0]}", own) == (0, "x\n141\n", "")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_task_goes_on_without_streams_that_it_does_not_need(own: Path, where: str) -> None:
    assert shell(f"FAB silent {where}", own)[::2] == (0, "going on\n" if where == "<&-" else "")


def test_no_file_gets_the_number_of_a_stream_that_was_closed(own: Path) -> None:
    assert shell("FAB files <&- >&- 2>&-", own)[0] == 3


@pytest.mark.parametrize("words", ["--list", "little", "status", "--help exec"])
def test_a_current_folder_that_was_removed_is_named(own: Path, words: str) -> None:
    status, out, err = shell(f"mkdir gone; cd gone; rmdir ../gone; FAB {words}", own)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: current folder = '{own}/gone': does not exist any more")


def interrupted_at(own: Path, moment: float) -> tuple[int, str]:
    with subprocess.Popen(
        [FAB, "silent"], cwd=own, env=ENV, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        time.sleep(moment)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    return running.returncode, err


@pytest.mark.parametrize("moment", [0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25])
def test_ctrl_c_ends_it_with_130_and_one_line_from_its_first_moment_on(own: Path, moment: float) -> None:
    assert interrupted_at(own, moment) in (
        (130, "interrupted\n"),
        (-signal.SIGINT, ""),  # a shell's 130 too: before there was a Python
        (0, "going on\n"),  # on a machine that is this fast
        (130, "going on\ninterrupted\n"),
    )


def test_ctrl_c_once_all_is_done_leaves_the_exit_status_as_it_is(own: Path) -> None:
    assert shell("FAB interrupted-late", own) == (0, "", "")


def test_ctrl_c_while_fabric_is_imported_ends_it_too(own: Path) -> None:
    """However long that takes, and whatever it catches."""
    package = own / "slow" / "fabric"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"import pathlib, time\npathlib.Path({str(own / 'begun')!r}).touch()\n"
        "try:\n    time.sleep(30)\nexcept BaseException:\n    raise RuntimeError\n"
    )
    with subprocess.Popen(
        [FAB, "--list"],
        cwd=own,
        env={**ENV, "PYTHONPATH": f"{package.parent}:{ROOT}"},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        deadline = time.monotonic() + 60
        while not (own / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "interrupted\n")


def test_what_fab_runs_has_no_signal_blocked(own: Path) -> None:
    (own / "fabfile.py").write_text(
        "from invoke import task\nfrom playbooks import ns\n"
        "@task\ndef mask(context):\n    context.run('grep SigBlk /proc/self/status')\nns.add_task(mask)\n"
    )
    for line in ("FAB mask", "trap '' INT; FAB mask"):
        _, out, _ = shell(line, own)
        assert int(out.split()[1], 16) & (1 << signal.SIGINT - 1) == 0


def test_the_users_own_task_can_tidy_up_where_the_fabfile_has_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text(
        "import signal\nfrom invoke import task\n"
        "@task\ndef own(context):\n"
        "    try:\n        signal.raise_signal(signal.SIGINT)\n    finally:\n        print('tidied up')\n"
    )
    assert shell("FAB own", tmp_path) == (1, "tidied up\n", "")  # as Invoke ends it


def test_the_script_is_ours_in_this_environment_and_where_it_is_installed() -> None:
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {
        "fab": "playbooks.start:program.run",
        "ranklift": "launch.azureml.scripts.run_v1:main",
    }
    assert "from playbooks.start import program" in Path(FAB).read_text()
    code = "from playbooks.start import program; import sys; print('fabric' in sys.modules, program.run)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.startswith("False <bound method Program.run ")
