"""A head makes an environment of conda's packages by py-rattler, and every node runs it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launch.access import Access
from launch.client.environments import Made, make_environment
from launch.code.node_code import remote_id
from launch.code.push import push
from launch.code.snapshot import plan_data, plan_snapshot
from launch.environment.environment_request import request_of
from launch.environment.environment_spec import PythonEnvironment
from launch.errors import GiveUpError
from launch.jobfile import read_conda
from tests.launch.cluster import ORDINARY, Cluster, Node, contents
from tests.launch.conda_channel import Channel, rattler_wheel
from tests.launch.wheels import make_wheel

pytestmark = pytest.mark.environments
FILE = """
channels: [{channel}, nodefaults]
dependencies: [python, toolkit>=1, {{pip: [gadget, --no-index]}}]
"""


class Desk:
    """An operator with a channel, a conda file and a cluster that has the node code."""

    def __init__(self, folder: Path, channel: Channel, size: int = 3) -> None:
        self.folder = folder
        self.cluster = Cluster(folder / "nodes", size)
        make_wheel(folder / "wheels", "gadget", "1", {"gadget/__init__.py": b"ANSWER = 7\n"})
        shutil.copy(rattler_wheel(), folder / "wheels")
        (folder / "code").mkdir()
        (folder / "code" / "train.py").touch()
        push(plan_snapshot(folder / "code"), self.cluster.head, self.cluster.nodes, ssh=self.cluster.ssh)
        self.shown: list[str] = []
        self.channel = channel
        self.file(FILE.format(channel=channel.folder.as_uri()))

    def file(self, text: str) -> None:
        (self.folder / "conda.yml").write_text(text)

    @property
    def asked(self) -> PythonEnvironment:
        return read_conda(self.folder / "conda.yml", Access((self.channel.folder,)))

    def make(self) -> Made:
        planned = {one.id: one for one in map(plan_data, (self.folder / "wheels", *self.asked.channels))}
        wheels, *channels = planned
        request = request_of(self.asked, [], wheels=[wheels], channels=channels)
        assert request is not None

        def send(snapshots: Sequence[str]) -> None:
            for one in snapshots:
                push(planned[one], self.cluster.head, self.cluster.nodes[:1], ssh=self.cluster.ssh)

        return make_environment(
            request,
            self.cluster.head,
            self.cluster.nodes,
            remote_id(),
            send,
            lambda text, *_: self.shown.append(text),
            ssh=self.cluster.ssh,
        )


@pytest.fixture
def desk(tmp_path: Path, channel: Channel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    yield Desk(tmp_path, channel)


def folder(node: Node, made: Made) -> Path:
    return node.home / ".ranklift/environments" / made.record["id"]


def left(node: Node) -> list[str]:
    """What a node has of environments, beside locks."""
    there = node.home / ".ranklift/environments"
    return [path.name for path in there.iterdir() if "lock" not in path.name] if there.exists() else []


def run_python(node: Node, made: Made, line: str) -> str:
    argv = [*ORDINARY, str(folder(node, made) / "bin/python"), "-c", line]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env={}).stdout.strip()


def test_both_parts_are_installed_once_and_every_node_runs_them(desk: Desk) -> None:
    made = desk.make()
    assert made.built
    for node in desk.cluster.nodes:
        line = "import sys, toolkit, gadget; print(sys.prefix, toolkit.ANSWER, gadget.ANSWER)"
        assert run_python(node, made, line) == f"{folder(node, made)} 42 7"
    again = desk.make()
    assert (again.built, again.record, again.variables) == (False, made.record, made.variables)
    assert any(line.startswith("Resolved 3 packages") for line in desk.shown)


def test_nodes_get_the_heads_tree_with_links_modes_and_its_path(desk: Desk) -> None:
    made = desk.make()
    head, *others = desk.cluster.nodes
    tree = contents(folder(head, made))
    for node in others:
        assert contents(folder(node, made)) == tree
        native = folder(node, made) / "bin/native-3"
        assert native.readlink() == Path("native")
        shown = subprocess.run([native], check=True, capture_output=True, text=True).stdout
        assert shown == f"{folder(head, made)}/share\n"
        assert not any(path.stat().st_mode & 0o222 for path in folder(node, made).rglob("*.py"))


def test_no_node_compiles_again_what_the_head_compiled(desk: Desk) -> None:
    made = desk.make()
    for node in desk.cluster.nodes:
        run_python(node, made, "import toolkit, gadget, json, decimal")
        for name in ("toolkit", "gadget", "json"):
            (module,) = (folder(node, made) / "lib").glob(f"**/{name}/__init__.py")
            compiled = importlib.util.cache_from_source(str(module))
            tag = Path(compiled).name.replace(sys.implementation.cache_tag or "", "cpython-*")
            (found,) = Path(compiled).parent.glob(tag)
            assert found.read_bytes()[4:8] == (1).to_bytes(4, "little"), "by hash, which is not checked"


def test_what_activation_sets_and_what_was_installed_is_recorded(desk: Desk) -> None:
    made = desk.make()
    where = str(folder(desk.cluster.nodes[0], made))
    assert made.variables == {
        "CONDA_PREFIX": where,
        "NATIVE_HOME": f"{where}/share",
        "PYTHONNOUSERSITE": "1",
    }
    lines = (folder(desk.cluster.nodes[2], made) / "conda-meta/explicit.txt").read_text().splitlines()
    assert lines[0] == "@EXPLICIT"
    assert [line.rpartition("/")[2].partition("#")[0] for line in lines[1:]] == [
        "native-3.0-0.conda",
        f"python-{run_python(desk.cluster.nodes[0], made, 'import sys; print(sys.version[:4])')}-0.conda",
        "toolkit-1.2-0.tar.bz2",
    ]


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("broken", "nosuchthing"),
        ("toolkit>=2", "No candidates were found for toolkit >=2"),
        ("cuda-only", "__cuda"),
    ],
)
def test_a_solve_that_fails_is_quoted_and_leaves_nothing(desk: Desk, package: str, words: str) -> None:
    desk.file(f"channels: [{desk.channel.folder}, nodefaults]\ndependencies: ['{package}']\n")
    with pytest.raises(GiveUpError) as caught:
        desk.make()
    assert "node000000: environment conda.yml: installing conda's packages by py-rattler failed" in str(
        caught.value
    )
    assert words in str(caught.value)
    assert left(desk.cluster.nodes[0]) == []


def test_a_driver_is_a_virtual_package(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.4")
    desk.file(f"channels: [{desk.channel.folder}, nodefaults]\ndependencies: [cuda-only]\n")
    assert desk.make().built


def test_the_id_covers_the_channel_the_packages_and_the_driver(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = desk.make().record["id"]
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.4")
    driver = desk.make().record["id"]
    monkeypatch.delenv("CONDA_OVERRIDE_CUDA")
    desk.file((tmp_path / "conda.yml").read_text().replace("toolkit>=1", "toolkit>=1.1"))
    packages = desk.make().record["id"]
    assert len({first, driver, packages}) == 3


def test_a_mirror_of_the_nodes_settings_is_asked(desk: Desk) -> None:
    with served(desk.channel.folder.parent) as address:
        head = desk.cluster.nodes[0]
        (head.home / ".condarc").write_text(f"custom_channels:\n  local: {address}\nchannels: [local]\n")
        desk.file("channels: [local]\ndependencies: [toolkit]\n")
        made = desk.make()
    assert run_python(head, made, "import toolkit; print(toolkit.ANSWER)") == "42"
    explicit = (folder(head, made) / "conda-meta/explicit.txt").read_text()
    assert f"\n{address}/local/noarch/toolkit-1.2-0.tar.bz2#" in explicit


def test_a_channel_that_does_not_answer_is_named(desk: Desk) -> None:
    with served(desk.channel.folder) as address:
        pass
    desk.file(f"channels: ['{address}/gone', nodefaults]\ndependencies: [toolkit]\n")
    with pytest.raises(GiveUpError, match=rf"(?s)by py-rattler failed.*{address}/gone"):
        desk.make()
    assert left(desk.cluster.nodes[0]) == []


def test_all_that_is_written_is_below_the_folder_of_ranklift(desk: Desk) -> None:
    before = {path.name for path in desk.cluster.nodes[0].home.iterdir()}
    desk.make()
    assert {path.name for path in desk.cluster.nodes[0].home.iterdir()} == before


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL at which a folder's files can be had."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
