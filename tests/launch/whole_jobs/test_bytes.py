"""Every byte of an argument, of a shell line and of a variable reaches the rank: through the plan, its JSON,
the head and a real runner, to execve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from launch.job.plan import plan
from launch.job.rank_env import EXPANDED
from launch.job.spec import JobNode, JobSpec
from launch.remote.base import frames
from launch.remote.head.runners import runner_spec as briefing
from launch.remote.head.runners.runner_spec import runner_spec
from launch.remote.node import rank_env

RUNNER = Path(briefing.__file__).parents[2] / "__main__.py"
NODES = (JobNode("node000000", "10.0.0.4", 4),)
SHOW = """
import os
for name in ("cmdline", "environ"):
    data = open("/proc/self/" + name, "rb").read()
    os.write(1, b"%d\\n" % len(data))
    while data:
        data = data[os.write(1, data):]
"""

AWKWARD = [
    "",
    " ",
    "a b",
    "it's",
    '"',
    "\\",
    "\\n",
    "\n",
    "\r\n",
    "\t",
    "*",
    "?[a-z]{1,2}",
    "~",
    "$HOME",
    "$(id)",
]
AWKWARD += [
    "`id`",
    "$",
    "$$",
    "${",
    "${X",
    "$1",
    "!!",
    "a;b",
    "a&b|c>d",
    "#",
    "-",
    "--",
    "%s",
    "ünïcödé",
    "日本",
    "\udcff",
]
AWKWARD += ["$RANKS", "${RANK", "$ RANK", "\\$HOME", "e" * 5000]

whole = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
anything = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.binary().map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape")),
    st.lists(st.sampled_from(AWKWARD), max_size=6).map("".join),
).filter(lambda text: not any(f"${name}" in text or f"${{{name}" in text for name in EXPANDED))


def run(home: Path, spec: JobSpec, *, locale: str = "C.UTF-8") -> list[bytes]:
    """What each rank of a node writes; the runner gets what a supervisor would send it."""
    spec = replace(spec, health="off")  # this machine has none of the size's GPUs
    planned = plan(spec, NODES, size="Standard_NC24rs_v3", remote="hash")
    result = json.loads(json.dumps(planned.as_dict()))
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(RUNNER), "node"],
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": locale},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        spec_frame = frames.pack(runner_spec(result, 0, None, 6105, [0, 1]))
        send(process.stdin.fileno(), frames.frame(frames.SPEC, spec_frame))
        decoder = frames.Decoder()
        printed = [b""] * planned.world_size
        while data := os.read(process.stdout.fileno(), 65536):
            for kind, payload in decoder.feed(data):
                if kind == frames.READY:
                    go = frames.pack({})
                    send(process.stdin.fileno(), frames.frame(frames.GO, go))
                elif kind == frames.OUT:
                    rank, _ = frames.OUTPUT.unpack_from(payload)
                    printed[rank] += payload[frames.OUTPUT.size :]
                elif kind == frames.FAILED:
                    raise AssertionError(frames.unpack(payload))
                elif kind == frames.DONE:
                    process.stdin.close()
        return printed


def send(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def shown(printed: bytes) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Arguments and environment out of what SHOW wrote."""
    parts = []
    while printed:
        size, _, rest = printed.partition(b"\n")
        parts.append(rest[: int(size)].split(b"\0")[:-1])
        printed = rest[int(size) :]
    argv, environ = parts
    return argv, dict(pair.split(b"=", 1) for pair in environ)


def job(*words: str, **options: Any) -> JobSpec:
    return JobSpec("t", "pytorch", (sys.executable, "-I", "-S", "-c", SHOW, *words), **options)


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@whole
@given(words=st.lists(anything, max_size=8), value=anything)
@example(words=AWKWARD, value="\n".join(AWKWARD))
@example(words=[], value="x" * 100_000)
def test_arguments_and_values_arrive_as_they_were(home: Path, words: list[str], value: str) -> None:
    (printed,) = run(home, job(*words, env={"MINE": value, "EMPTY": ""}))
    argv, environ = shown(printed)
    assert argv[5:] == [raw(word) for word in words]
    assert (environ[b"MINE"], environ[b"EMPTY"]) == (raw(value), b"")


@whole
@given(before=anything, after=anything.filter(lambda text: not (text[:1].isalnum() or text[:1] == "_")))
def test_launchers_variables_are_filled_in_for_each_process_and_nothing_else(
    home: Path, before: str, after: str
) -> None:
    words = (f"{before}$LOCAL_RANK{after}", f"{before}${{NODE_RANK}}{after}", "--of=$WORLD_SIZE", "$HOME")
    for rank, printed in enumerate(run(home, job(*words, processes_per_node=2))):
        result = [f"{before}{rank}{after}", f"{before}0{after}", "--of=2", "$HOME"]
        assert shown(printed)[0][5:] == [raw(word) for word in result]


@whole
@given(line=anything)
@example(line="echo '$RANK' \"$RANK\" \\$RANK ${LOCAL_RANK} # $MASTER_ADDR")
@example(line="cat <<'end'\n$RANK `id`\nend\n")
def test_a_shell_line_is_bashs_byte_for_byte(home: Path, line: str) -> None:
    spec = JobSpec("t", "pytorch", (line or " x",), shell=True) if line.strip() else None
    if spec is None:
        return
    result = json.loads(json.dumps(plan(spec, NODES, size="x", remote="hash").as_dict()))
    sent = frames.unpack(frames.pack(runner_spec(result, 0, None, 6105, [0])))
    env = rank_env.environment(sent, sent["ranks"][0], {"HOME": str(home)})
    assert rank_env.expand(sent["argv"], sent["expand"], env) == ["bash", "-c", line]


def test_bash_expands_a_shell_lines_variables_itself(home: Path) -> None:
    line = 'printf \'%s|\' \'$RANK\' "$RANK" $LOCAL_RANK \\$RANK "${MINE}" *.none; printf %s "$0"'
    spec = JobSpec("t", "pytorch", (line,), shell=True, processes_per_node=2, env={"MINE": "a  b"})
    assert run(home, spec) == [f"$RANK|{rank}|{rank}|$RANK|a  b|*.none|bash".encode() for rank in range(2)]


def test_100_kilobytes_of_environment(home: Path) -> None:
    env = {f"MINE_{i}": f"{i}é " * 1024 for i in range(20)}
    (printed,) = run(home, job(env=env))
    environ = shown(printed)[1]
    assert {key: environ[raw(key)] for key in env} == {key: raw(value) for key, value in env.items()}


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "no_SUCH.latin1"])
def test_whatever_the_nodes_locale_is(home: Path, locale: str) -> None:
    (printed,) = run(home, job("ünïcödé 日本", "\udcff", env={"MINE": "é"}), locale=locale)
    argv, environ = shown(printed)
    assert argv[5:] == ["ünïcödé 日本".encode(), b"\xff"]
    assert environ[b"MINE"] == "é".encode()
