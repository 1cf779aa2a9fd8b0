"""Nodes that are folders and addresses of loopback, on which data are staged as on real ones."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import launch.remote
from launch.code.push_key import make_credential
from launch.remote.data.stage_request import StageCall, StageSource
from launch.remote.store.tree_node import MARK
from tests.launch.remote.data.storage_server import Storage
from tests.launch.standin import SSH, until

MiB = 1 << 20
MOUNTED = [
    *("unshare", "--map-current-user", "--mount", "--keep-caps"),
    *("sh", "-c", 'mount --bind "$SHARED" "$SHARED" && exec "$@"', "sh"),
]
"""Command before another one, which has the shared folder mounted then."""
REMOTE = Path(launch.remote.__file__).parent


class Staging:
    """A staging that runs; ``answers`` are complete once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.answers: list[Any] = []

    def end(self, limit: float = 120.0) -> Any:
        """Waits for its end; gives the last line of the answer."""
        out, errors = self.process.communicate(timeout=limit)
        lines = [line[len(MARK) :] for line in out.splitlines() if line.startswith(MARK)]
        self.answers = [json.loads(line) for line in lines]
        assert self.answers, errors.decode()
        assert self.process.returncode == 0, errors.decode()
        return self.answers[-1]

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end_anyhow(self) -> None:
        """Ends it, where a test has not."""
        if self.process.poll() is None:
            self.kill()


class Cluster:
    """``count`` nodes, the first of which is the head."""

    def __init__(self, folder: Path, count: int, storage: Storage) -> None:
        self.folder, self.storage = folder, storage
        self.nodes = [(f"node{i:06}", f"127.0.{1 + i // 250}.{1 + i % 250}") for i in range(count)]
        self._bin = folder / "bin"
        self._bin.mkdir()
        (self._bin / "ssh").write_text(SSH)
        (self._bin / "ssh").chmod(0o755)
        (folder / "down").mkdir()
        self._stagings: list[Staging] = []
        for node in range(count):
            (self.home(node) / "tmp").mkdir(parents=True)

    def home(self, node: int) -> Path:
        return self.folder / self.nodes[node][1]

    def data(self, node: int, name: str = "") -> Path:
        """The node's staged data, or of it those with an id."""
        return self.home(node) / ".ranklift/data" / name

    @property
    def shared(self) -> Path:
        """A folder that all nodes share, and have mounted."""
        (self.folder / "shared").mkdir(exist_ok=True)
        return self.folder / "shared"

    def shared_data(self, name: str = "") -> Path:
        """The data in the shared folder, or of it those with an id."""
        return self.shared / f"ranklift-{os.getuid()}" / "data" / name

    def source(
        self,
        path: str,
        kind: Literal["file", "folder"] = "folder",
        service: Literal["blob", "web"] = "blob",
        auth: Literal["identity", "sas", "none", "either"] = "none",
        name: str = "data",
    ) -> StageSource:
        url = f"{self.storage.url}/{path}"
        return {"name": name, "kind": kind, "service": service, "url": url, "auth": auth}

    def start(self, *sources: StageSource, nodes: Sequence[int] | None = None, **fields: Any) -> Staging:
        """Starts to stage on some nodes, all by default."""
        chosen = [self.nodes[node] for node in (range(len(self.nodes)) if nodes is None else nodes)]
        call: StageCall = {
            "sources": list(sources),
            "nodes": chosen,
            "bound": None,
            "downloaders": None,
            "rate": None,
            "shared": "",
            "sas": {},
            "ssh": ["ssh"],
            "silence": 20.0,
            "credential": make_credential(),
            **fields,  # type: ignore[typeddict-item]
        }
        env = {
            "PATH": f"{self._bin}:/usr/bin:/bin",
            "HOME": str(self.folder / chosen[0][1]),
            "STANDIN": str(self.folder),
            "SHARED": str(self.shared),
            "SSL_CERT_FILE": str(self.storage.certificate),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        mounted = MOUNTED if fields.get("shared") == str(self.shared) else []
        process = subprocess.Popen(
            [*mounted, sys.executable, "-I", "-S", str(REMOTE / "__main__.py"), "stage"],
            cwd=env["HOME"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        data = json.dumps(call).encode()
        assert process.stdin is not None
        process.stdin.write(b"%010d" % len(data) + data)
        process.stdin.flush()
        self._stagings.append(Staging(process))
        return self._stagings[-1]

    def close(self) -> None:
        """Ends what still runs."""
        for staging in self._stagings:
            staging.end_anyhow()

    def stage(self, *sources: StageSource, nodes: Sequence[int] | None = None, **fields: Any) -> Any:
        """Stages to the end; gives the last line of the answer."""
        return self.start(*sources, nodes=nodes, **fields).end()


def contents(folder: Path) -> dict[str, str]:
    """The digests of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def stored(storage: Storage, prefix: str) -> dict[str, str]:
    return {
        name[len(prefix) :]: hashlib.sha256(content).hexdigest()
        for name, content in storage.blobs.items()
        if name.startswith(prefix) and isinstance(content, bytes)
    }


def fill(storage: Storage, count: int = 8, size: int = MiB) -> None:
    for number in range(count):
        storage.put(f"data/set/{number:03}.bin", os.urandom(size))


def all_hold(cluster: Cluster, storage: Storage, answer: Any, prefix: str = "data/set/") -> None:
    """Every node holds every byte, and reports no error."""
    assert answer["t"] == "staged", answer
    assert set(answer["nodes"].values()) == {None}, answer["nodes"]
    for node in range(len(answer["nodes"])):
        assert contents(cluster.data(node, answer["data"][0]["id"])) == stored(storage, prefix)


def processes_of(cluster: Cluster, node: int) -> list[int]:
    """The staging's processes on a node: those with its home folder that can receive data."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"HOME={cluster.home(node)}".encode() in variables and b"stage_node" in words:
            found.append(int(process.name))
    return found


def until_bytes(storage: Storage, size: int) -> None:
    until(lambda: storage.sent >= size, 30)


Make = Callable[[int], Cluster]
"""What makes nodes, as many as asked for."""
