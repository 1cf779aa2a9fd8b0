"""A cluster without a network: every node is a home folder, and a few lines of shell stand in for ssh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launch.host import Completed

ORDINARY = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
"""Prefix of commands on nodes: whoever runs the tests, modes of files hold there as for Azure's users."""

SSH = r"""#!/bin/sh
# $1: the cluster's folder; $2: a node's address; $3: the command
node="$1/$2"
if [ -e "$node/dead" ]; then echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255; fi
echo "$PPID" >> "$node/calls"
export HOME="$node"
if [ -e "$node/cut" ]; then
    rm "$node/cut"
    (until [ -e "$node"/.ranklift/snapshots/.new-*/tree/big ] || ! kill -0 $$; do :; done
     echo "Connection closed by $2" >&2; kill -9 -$$) &
fi
if [ -e "$node/full" ]; then ulimit -S -f 64; else ulimit -S -f unlimited; fi
if [ -e "$node/killed" ]; then exit 137; fi
if [ -e "$node/silent" ]; then exec sleep 30; fi
exec ORDINARY sh -c "$3"
"""


@dataclass(frozen=True)
class Node:
    name: str
    private_ip: str
    home: Path

    def snapshot(self, name: str) -> Path:
        return self.home / ".ranklift" / "snapshots" / name


class LocalHost:
    """A host whose commands run here, with the node's home folder as HOME."""

    def __init__(self, node: Node) -> None:
        self.name, self._home = node.name, node.home
        self.calls = 0

    def run(
        self, argv: Sequence[str], *, stdin: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> Completed:
        self.calls += 1
        process = subprocess.Popen(
            [*ORDINARY, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": str(self._home)},
            cwd=self._home,
        )
        data = b"" if stdin is None else stdin if isinstance(stdin, bytes) else stdin.read()
        out, err = process.communicate(data, timeout=timeout)
        return Completed(process.returncode, out, err)

    def stream(
        self,
        argv: Sequence[str],
        on_stdout: Callable[[bytes], object],
        *,
        stdin: bytes | IO[bytes] | None = None,
        timeout: float | None = None,
    ) -> Completed:
        done = self.run(argv, stdin=stdin, timeout=timeout)
        on_stdout(done.stdout)
        return Completed(done.exit_status, b"", done.stderr)


class Cluster:
    """``size`` empty nodes below ``folder``."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir()
        script = folder / "ssh"
        script.write_text(SSH.replace("ORDINARY", " ".join(ORDINARY)))
        script.chmod(0o755)
        self.ssh = [str(script), str(folder)]
        self.nodes = [
            Node(f"node{i:06}", f"127.1.0.{i + 4}", folder / f"127.1.0.{i + 4}") for i in range(size)
        ]
        for node in self.nodes:
            node.home.mkdir()
        self.head = LocalHost(self.nodes[0])


def contents(folder: Path) -> dict[str, tuple[bytes | str, bool]]:
    found: dict[str, tuple[bytes | str, bool]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = (str(path.readlink()), False)
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def as_a_job(node: Node, snapshot: str, line: str) -> int:
    """The exit status of a shell line in a snapshot on a node."""
    return subprocess.run([*ORDINARY, "sh", "-c", line], cwd=node.snapshot(snapshot), check=False).returncode
