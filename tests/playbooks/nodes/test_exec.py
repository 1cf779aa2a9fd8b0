"""What ``fab exec`` passes on to nodes."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from tests.playbooks.server import SshServer, save_stack
from tests.playbooks.typed import FAB, ROOT, write_project

BYTES = bytes(range(256)) * 40_000
"""10 MB with every byte in it, line ends and NULs too."""


@pytest.fixture
def workplace(server: SshServer, tmp_path: Path) -> Path:
    """A project whose stack ``dev`` has two nodes."""
    write_project(tmp_path, "dev", fabfile=True)
    ports = dict.fromkeys((0, 1), server.port)
    save_stack(tmp_path / ".ranklift" / "dev", ports, server.host_key, server.user_key)
    return tmp_path


def execute(
    workplace: Path, line: str, *options: str, stdin: int | IO[Any] | None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [FAB, "exec", line, *options],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
        stdin=stdin,
        capture_output=True,
        check=False,
        timeout=120,
        **more,
    )


def piped(data: bytes) -> int:
    """The reading end of a pipe with ``data`` in it, whose writer has gone."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def test_a_node_gets_every_byte_of_stdin_and_its_end(workplace: Path) -> None:
    (workplace / "data").write_bytes(BYTES)
    with (workplace / "data").open("rb") as data:
        done = execute(workplace, "sha256sum; echo end", "--nodes", "node000001", stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"{hashlib.sha256(BYTES).hexdigest()}  -\nend\n"


def typed(workplace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = execute(workplace, words[0], *words[1:], stdin=subprocess.DEVNULL)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("word", ["echo one; echo two", "echo one && echo two", "echo one | cat", "ls -l"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_shell_line_behind_the_dashes_is_told_how_it_is_given(
    workplace: Path, word: str, options: tuple[str, ...]
) -> None:
    done = typed(workplace, "-n", "0", *options, "--", word)
    assert done.returncode == 127
    assert done.stderr.endswith(
        f"'{word}' is one word behind --, the name of a command: leave out -- to have bash run the line, or "
        f"give -- sh -c '{word}'\n"
    )
    for form in ((word,), ("--", "sh", "-c", word)):
        assert typed(workplace, "-n", "0", *form).returncode == 0


@pytest.mark.parametrize(
    "words", [["no-such-command"], ["--", "no-such-command"], ["--", "sh", "-c", "exit 127"]]
)
def test_a_command_that_is_missing_gets_no_word_about_shell_lines(workplace: Path, words: list[str]) -> None:
    done = typed(workplace, "-n", "0", *words)
    assert done.returncode == 127
    assert "behind --" not in done.stderr


def test_a_folder_goes_over_a_pipe(workplace: Path, server: SshServer) -> None:
    (workplace / "code").mkdir()
    (workplace / "code" / "model.bin").write_bytes(BYTES)
    line = "tar c code | fab exec --nodes 0 'mkdir -p there && tar x -C there'"
    path = f"{Path(FAB).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev", "PATH": path},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (server.folder / "home" / "there" / "code" / "model.bin").read_bytes() == BYTES


def test_stdin_of_any_length_needs_little_memory(workplace: Path) -> None:
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (200 << 20, 200 << 20))

    with subprocess.Popen(["head", "-c", "300M", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        done = execute(workplace, "wc -c", "--nodes", "0", stdin=endless.stdout, preexec_fn=little)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"%d\n" % (300 << 20), b"")


def test_a_command_that_reads_nothing_ends_while_stdin_stays_open(workplace: Path) -> None:
    reading, writing = os.pipe()
    begun = time.monotonic()
    done = execute(workplace, "echo hi", "--nodes", "0", stdin=reading)
    assert (done.returncode, done.stdout) == (0, b"hi\n")
    assert time.monotonic() - begun < 60
    os.close(reading)
    os.close(writing)


def test_what_comes_late_is_passed_on_when_it_comes(workplace: Path) -> None:
    """The second line is written once the command on the node has read the first."""
    read = workplace / "read"
    late = f"echo late; while [ ! -e '{read}' ]; do sleep 0.05; done; echo later"
    with subprocess.Popen(["sh", "-c", late], stdout=subprocess.PIPE) as writer:
        line = f"read -r a; touch '{read}'; read -r b; echo $a $b"
        done = execute(workplace, line, "--nodes", "0", stdin=writer.stdout)
    assert (done.returncode, done.stdout) == (0, b"late later\n")


def test_several_nodes_cannot_share_stdin(workplace: Path) -> None:
    (workplace / "data").write_bytes(b"x")
    with (workplace / "data").open("rb") as data:
        for stdin in (data, piped(b"x")):
            done = execute(workplace, "touch here", stdin=stdin)
            assert (done.returncode, done.stdout) == (2, b"")
            assert done.stderr == (
                b"error: stdin: has data, which only a single node can get, not 2; choose one with --nodes, "
                b"or append < /dev/null\n"
            )


def test_several_nodes_run_under_cron_and_where_stdin_is_empty_or_open(
    workplace: Path, server: SshServer
) -> None:
    reading, writing = os.pipe()
    (workplace / "empty").touch()
    with (workplace / "empty").open("rb") as empty:
        for stdin in (subprocess.DEVNULL, piped(b""), reading, empty):
            done = execute(workplace, "cat; echo hi", stdin=stdin)
            assert (done.returncode, done.stderr) == (0, b""), stdin
            assert done.stdout == b"node[000000-000001]\n  hi\n"
    os.close(reading)
    os.close(writing)
    assert not (server.folder / "home" / "here").exists()


def test_data_that_comes_too_late_to_be_refused_is_reported(workplace: Path) -> None:
    begun = workplace / "begun"
    late = f"while [ ! -e '{begun}' ]; do sleep 0.05; done; echo late"
    with subprocess.Popen(["sh", "-c", late], stdout=subprocess.PIPE) as writer:
        done = execute(workplace, f"touch '{begun}'; sleep 2", stdin=writer.stdout)
    assert done.returncode == 0
    assert b"stdin was not passed on" in done.stderr


@contextmanager
def running(workplace: Path, line: str) -> Iterator[subprocess.Popen[str]]:
    """``fab exec`` of a line that has begun on every node: each makes a file, named like its process."""
    begun = workplace / "begun"
    begun.mkdir()
    with subprocess.Popen(
        [FAB, "exec", f"touch {begun}/$$; {line}"],
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RANKLIFT_STACK": "dev"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until = time.monotonic() + 60
            while len(list(begun.iterdir())) < 2:
                assert time.monotonic() < until
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def processes_with(mark: str) -> list[str]:
    """Command lines of this machine's processes that have ``mark``."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(one.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if mark in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_on_all_nodes_and_names_them(
    workplace: Path, number: signal.Signals
) -> None:
    with running(workplace, "sleep 7531.1; echo goes on") as process:
        assert len(processes_with("sleep 7531.1")) >= 2
        process.send_signal(number)
        began = time.monotonic()
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert (process.returncode, out) == (128 + number, "")
    words = "interrupted: no answer yet from node[000000-000001]; the command was ended there\n"
    assert err.endswith(words)
    assert took < 20
    assert processes_with("sleep 7531.1") == []


def test_nodes_that_answered_before_ctrl_c_are_not_named(workplace: Path) -> None:
    with running(workplace, f"mkdir {workplace}/first 2>/dev/null || sleep 7532.1") as process:
        time.sleep(1)  # until its answer is here
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "no answer yet from node00000" in err
    assert "node[" not in err


def test_ctrl_c_ends_a_command_that_ignores_sigterm(workplace: Path) -> None:
    with running(workplace, "trap '' TERM; echo 7533.1; while :; do sleep 0.1; done") as process:
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        took = time.monotonic() - began
    assert process.returncode == 130
    assert err.endswith("the command was ended there\n")
    assert took < 20
    assert processes_with("echo 7533.1") == []


@pytest.mark.parametrize("banner", ["echo Welcome", "printf Welcome", "seq 100000; echo Welcome"])
def test_what_a_login_prints_is_no_output_of_the_command(
    workplace: Path, server: SshServer, banner: str
) -> None:
    bashrc = server.folder / "home/.bashrc"
    bashrc.write_text(f"{banner}\n")
    done = execute(workplace, "head -c 9 /dev/zero", "--nodes", "0", stdin=subprocess.DEVNULL)
    bashrc.unlink()
    assert (done.returncode, done.stdout) == (0, bytes(9))
    first = b"'1'" if banner.startswith("seq") else b"'Welcome'"
    assert b"node000000: the login prints " + first + b": remove that from" in done.stderr


def test_a_login_that_ends_before_the_command_is_the_error(workplace: Path, server: SshServer) -> None:
    bashrc = server.folder / "home/.bashrc"
    bashrc.write_text("exit 3\n")
    done = execute(workplace, "true", stdin=subprocess.DEVNULL)
    bashrc.unlink()
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"its login ended before the command: a start-up file of its shell" in done.stderr


def test_a_line_that_bash_does_not_understand_has_its_own_error(workplace: Path) -> None:
    done = execute(workplace, "echo 'open", "--nodes", "0", stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert b"login" not in done.stderr
