"""A head makes an environment once and spreads it; what is cut short leaves nothing that counts."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launch.client.environments import make_environment
from launch.client.rpc import rpc_argv
from launch.code.node_code import remote_id
from launch.environment.environment_request import request_of
from launch.environment.environment_spec import PythonEnvironment
from launch.errors import GiveUpError, ManyNodesError, NotPushed
from launch.remote.environment.usage import REQUEST_DIGITS
from tests.launch.client.environment_desk import Desk, environments, folder, left, run_python
from tests.launch.cluster import ORDINARY, contents
from tests.launch.conda_channel import make_tar, python_files
from tests.launch.wheels import make_wheel

SLOW_BUILD = """
import time, pathlib
def build_wheel(folder, settings=None, metadata=None):
    pathlib.Path({mark!r}).touch()
    time.sleep(5)
"""


def test_it_is_made_once_and_every_node_runs_it(desk: Desk) -> None:
    made = desk.make()
    assert made.built
    assert made.record["path"] == f"~/.ranklift/environments/{made.record['id']}"
    trees = [contents(folder(node, made)) for node in desk.cluster.nodes]
    assert all(tree == trees[0] for tree in trees)
    for node in desk.cluster.nodes:
        assert run_python(node, made, "import toolkit; print(toolkit.ANSWER)") == "42"


def test_the_second_launch_makes_sends_and_asks_nothing_more(desk: Desk) -> None:
    first = desk.make()
    calls = [(node.home / "calls").read_text() for node in desk.cluster.nodes[1:]]
    desk.cluster.head.calls = 0
    second = desk.make()
    assert (second.built, second.record, desk.cluster.head.calls) == (False, first.record, 1)
    assert [(node.home / "calls").read_text() for node in desk.cluster.nodes[1:]] == calls
    assert desk.sent == [desk.snapshot.id]


def test_no_node_compiles_again_what_the_head_compiled(desk: Desk) -> None:
    made = desk.make()
    for node in desk.cluster.nodes:
        (compiled,) = (folder(node, made) / "lib").glob("python*/site-packages/toolkit/__pycache__/*.pyc")
        assert compiled.read_bytes()[4:8] == (1).to_bytes(4, "little"), "by hash, which is not checked"


def test_other_wheels_of_the_same_requirements_are_another_environment(desk: Desk) -> None:
    first = desk.make()
    make_wheel(desk.wheels, "toolkit", "1.3", {"toolkit/__init__.py": b"ANSWER = 43\n"})
    second = desk.make()
    assert second.record["id"] != first.record["id"]
    assert run_python(desk.cluster.nodes[3], second, "import toolkit; print(toolkit.ANSWER)") == "43"
    assert run_python(desk.cluster.nodes[3], first, "import toolkit; print(toolkit.ANSWER)") == "42"


def test_a_resolver_that_fails_is_quoted_and_leaves_nothing(desk: Desk) -> None:
    with pytest.raises(GiveUpError) as caught:
        desk.make("nosuchthing==7")
    assert "node000000: environment requirements.txt: installing packages failed" in str(caught.value)
    assert "you require nosuchthing==7" in str(caught.value)
    assert left(desk.cluster.nodes[0]) == set()


def test_a_python_that_no_node_has_is_refused_with_those_there_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")  # as where nothing outside is in reach
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    with pytest.raises(GiveUpError, match=r"Python 3\.7.*this node has 3\."):
        desk.make(python="3.7")
    assert left(desk.cluster.nodes[0]) == set()


def test_a_python_alone_is_an_environment(desk: Desk) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    request = request_of(PythonEnvironment(python=version, title="conda.yml"), [])
    assert request is not None
    cluster = desk.cluster
    made = make_environment(
        request, cluster.head, cluster.nodes[:2], remote_id(), desk.send, print, ssh=cluster.ssh
    )
    assert run_python(cluster.nodes[1], made, "import sys; print('%d.%d' % sys.version_info[:2])") == version


def test_a_python_that_uv_downloads_is_part_of_the_environment(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's Python, which a list of downloads gives another version."""
    own = Path("/usr/bin/python3").resolve().name
    version = subprocess.run([own, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]
    links = {"python/bin/python3": own, "python/bin/python": own}
    files = {f"python/{path}": text for path, text in python_files().items()}
    data = make_tar(files, {f"python/bin/{own}": 0o755}, links, "w:gz")
    (tmp_path / "mirror/1").mkdir(parents=True)
    (tmp_path / "mirror/1/python.tar.gz").write_bytes(data)
    major, minor, _ = map(int, version.split("."))
    offer = {
        **{"name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu"},
        **{"major": major, "minor": minor, "patch": 99, "prerelease": "", "variant": None, "build": "1"},
        "url": "https://github.com/astral-sh/python-build-standalone/releases/download/1/python.tar.gz",
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    key = f"cpython-{major}.{minor}.99-linux-x86_64-gnu"
    (tmp_path / "downloads.json").write_text(json.dumps({key: offer}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", (tmp_path / "downloads.json").as_uri())
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "mirror").as_uri())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").symlink_to(shutil.which("uv") or "")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    made = desk.make(python=f">={major}.{minor},!={version}")
    for node in desk.cluster.nodes:
        assert run_python(node, made, "import toolkit; print(toolkit.ANSWER)") == "42"
        (module,) = (folder(node, made) / f"python/{key}").glob("lib/*/__pycache__/decimal.*.pyc")
        assert module.read_bytes()[4:8] == (1).to_bytes(4, "little"), "by hash, which is not checked"
    prefix = run_python(desk.cluster.nodes[0], made, "import sys; print(sys.base_prefix)")
    assert Path(prefix).resolve() == folder(desk.cluster.nodes[0], made) / "python" / key


def test_a_head_without_the_node_code_asks_for_a_push(desk: Desk) -> None:
    shutil.rmtree(desk.cluster.nodes[0].home / ".ranklift")
    with pytest.raises(NotPushed):
        desk.make()


def test_a_killed_build_leaves_nothing_that_counts(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "slow"
    source.mkdir()
    mark = tmp_path / "building"
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1"\n'
    )
    (source / "backend.py").write_text(SLOW_BUILD.format(mark=str(mark)))
    nodes = desk.cluster.nodes
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(desk.make, f"toolkit\nslow @ file://{source}")
        while not mark.exists():
            time.sleep(0.05)
            assert not made.done(), made.result()
        (head,) = pids_in(nodes[0].home, "environment")
        os.kill(head, signal.SIGKILL)
        with pytest.raises(GiveUpError):
            made.result()
    assert left(nodes[0])
    (source / "backend.py").unlink()
    with pytest.raises(GiveUpError):
        desk.make(f"toolkit\nslow @ file://{source}")
    assert left(nodes[0]) == set()
    assert desk.make().built


def pids_in(home: Path, command: str) -> list[int]:
    """Processes of the node code's ``command`` that this home folder's node runs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if command.encode() in words[-2:] and (entry / "cwd").readlink() == home:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def test_two_launches_at_once_make_one(desk: Desk) -> None:
    desk.make("toolkit>=1")  # so that both find the wheels there
    with ThreadPoolExecutor(2) as pool:
        both = [done.result() for done in [pool.submit(desk.make), pool.submit(desk.make)]]
    assert sorted(made.built for made in both) == [False, True]


def test_a_lock_that_is_held_is_reported(desk: Desk) -> None:
    made = desk.make()
    lock = environments(desk.cluster.nodes[0]) / f".lock-{made.record['id'][:REQUEST_DIGITS]}"
    with lock.open() as holder, ThreadPoolExecutor(1) as pool:
        fcntl.flock(holder, fcntl.LOCK_EX)
        launch = pool.submit(desk.make)
        while not launch.done() and not opened_elsewhere(lock):
            time.sleep(0.05)
        time.sleep(0.2)  # it has opened the lock, and tries it next
        fcntl.flock(holder, fcntl.LOCK_UN)
        launch.result()
    assert desk.shown[-1] == "waiting for another launch that makes the same environment"


def opened_elsewhere(path: Path) -> bool:
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        if fd.parts[2] != str(os.getpid()):
            with contextlib.suppress(OSError):
                if fd.readlink() == path:
                    return True
    return False


@pytest.mark.parametrize("fault", ["dead", "full"])
def test_a_node_that_cannot_take_it_is_named_and_gets_it_later(desk: Desk, fault: str) -> None:
    make_wheel(desk.wheels, "toolkit", "2", {"toolkit/__init__.py": b"", "toolkit/data": os.urandom(200_000)})
    bad = desk.cluster.nodes[2]
    (bad.home / fault).touch()
    with pytest.raises(ManyNodesError) as caught:
        desk.make()
    assert list(caught.value.errors) == [bad.name]
    (bad.home / fault).unlink()
    made = desk.make()
    assert not made.built
    assert contents(folder(bad, made)) == contents(folder(desk.cluster.nodes[0], made))


def test_another_head_that_makes_the_same_later_leaves_what_the_first_one_made(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index has a newer version by then, and jobs of the first one may run."""
    index = tmp_path / "index"
    shutil.copytree(desk.wheels, index)
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    made = desk.make(sends=False)
    other = desk.cluster.nodes[1]
    subprocess.run(["rm", "-rf", f"{folder(other, made)}.manifest"], check=True)
    folder(other, made).chmod(0o755)
    (folder(other, made) / "debris").touch()
    make_wheel(index, "toolkit", "9", {"toolkit/__init__.py": b"ANSWER = 9\n"})
    again = desk.make(head=1, sends=False)
    assert again.built
    assert again.record["id"] != made.record["id"]
    assert not folder(other, made).exists()
    answer = "import toolkit; print(toolkit.ANSWER)"
    for node in desk.cluster.nodes:
        assert run_python(node, again, answer) == "9"
    for node in (desk.cluster.nodes[0], *desk.cluster.nodes[2:]):
        assert run_python(node, made, answer) == "42"
    assert desk.make(sends=False).record == made.record
    assert desk.make(head=1, sends=False).record == again.record


def test_another_head_that_got_it_makes_nothing(desk: Desk) -> None:
    made = desk.make()
    again = desk.make(head=1)
    assert (again.built, again.record) == (False, made.record)


def test_an_operator_who_goes_away_leaves_no_build(desk: Desk, tmp_path: Path) -> None:
    mark = tmp_path / "building"
    request = request_of(PythonEnvironment("toolkit", title="x"), [("node000000", "127.1.0.4")])
    assert request is not None
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo uv 9.9.9; exit; fi\ntouch {mark}\nexec sleep 60\n'
    )
    uv.chmod(0o755)
    head = desk.cluster.nodes[0]
    data = json.dumps(
        {**request, "ssh": [], "fanout": 4, "silence": 9, "credential": "", "may_make": True}
    ).encode()
    env = {**os.environ, "HOME": str(head.home), "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*ORDINARY, *rpc_argv(remote_id(), "environment")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        cwd=head.home,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"%010d" % len(data) + data)
        process.stdin.close()
        while not mark.exists():
            time.sleep(0.05)
        process.stdout.close()
        assert process.wait(10) != 0
    assert left(head) == set()


def test_an_environment_has_pip_though_nothing_lists_it_and_no_index_has_it(desk: Desk) -> None:
    """As one of conda has: jobs run it."""
    made = desk.make()
    for node in desk.cluster.nodes[:2]:
        argv = [*ORDINARY, str(folder(node, made) / "bin/pip"), "install", "toolkit"]
        ran = subprocess.run(argv, check=True, capture_output=True, text=True, env={"HOME": str(node.home)})
        assert "Requirement already satisfied: toolkit" in ran.stdout
