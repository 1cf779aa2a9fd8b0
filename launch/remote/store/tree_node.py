"""One hop of the tree: the connection up to the parent, and the children with their connections.

Messages up the tree are JSON lines after a mark (login scripts may print too): ``beat``, ``lack``, ``told``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from launch.remote.base import timing
from launch.remote.base.messages import unexplained_end
from launch.remote.base.names import runs
from launch.remote.login import marked
from launch.remote.store.push_messages import PushHeader, PushMessage, Tree
from launch.remote.store.tls import Line, dial

__all__ = ["BOOT", "MARK", "UNPACK", "Branch", "Branches", "Call", "Up", "make_trees", "own_modules", "spans"]

MARK = b"\x1eranklift "

UNPACK = r"""
import sys,os,json,zlib
r=sys.stdin.buffer
name,size=r.readline().decode().split()
source=r.read(int(size))
home=os.path.expanduser("~/.ranklift/remote/")
here=home+name
if not os.path.isdir(here):
 new="%s.%s.new"%(here,os.urandom(8).hex())
 os.makedirs(home,0o700,exist_ok=True)
 os.mkdir(new)
 for file,text in json.loads(zlib.decompress(source)).items():
  file=os.path.join(new,file)
  os.makedirs(os.path.dirname(file),exist_ok=True)
  with open(file,"w",encoding="utf-8") as out: out.write(text)
 try: os.rename(new,here)
 except OSError:
  import shutil
  shutil.rmtree(new)
entry=here+"/__main__.py"
with open(entry,encoding="utf-8") as file: code=compile(file.read(),entry,"exec")
exec(code,{"__file__":entry,"__name__":"entry"})
"""
"""Program that takes these modules from its standard input; what is appended to it can import them."""

BOOT = UNPACK + "from launch.remote.store import spread\nspread.main(r,name,source)\n"


def make_trees(nodes: Sequence[tuple[str, str]], fanout: int) -> list[Tree]:
    """Return the nodes as at most ``fanout`` trees of nearly equal size, each with that fan-out.

    >>> make_trees([("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.7")], 2)
    [['a', '10.0.0.5', [['b', '10.0.0.6', []]]], ['c', '10.0.0.7', []]]
    """
    trees = []
    parts = min(fanout, len(nodes))
    start = 0
    for part in range(parts):
        size = (len(nodes) - start + parts - part - 1) // (parts - part)
        mine = nodes[start : start + size]
        trees.append([mine[0][0], mine[0][1], make_trees(mine[1:], fanout)])
        start += size
    return trees


def spans(found: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the numbers that :func:`~launch.remote.base.names.runs` was called with.

    >>> list(spans([[0, 2], [7, 7]]))
    [0, 1, 2, 7]
    """
    for first, last in found:
        yield from range(first, last + 1)


class Up:
    """The connection to this process's parent in the tree: one JSON line per message, and beats."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._lock = out, threading.Lock()
        self.broken = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, message: Mapping[str, object]) -> None:
        """Send one message; set ``broken`` when that fails."""
        line = MARK + json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                self._out.write(line)
                self._out.flush()
        except (OSError, ValueError):
            self.broken.set()

    def _beat(self) -> None:
        while not self.broken.wait(timing.PUSH_BEAT_S):
            self.send({"t": "beat"})


class Branch:
    """One child and everything below it."""

    def __init__(self, tree: Tree, call: Call, events: queue.Queue[tuple[Branch, PushMessage]]) -> None:
        self.name, self.address, self.below = tree
        self.port = 0
        self.line: Line | None = None
        self.reason = ""
        self.gone = False
        self.heard = time.monotonic()
        self._events = events
        self._tail = b""
        command = "python3 -c " + shlex.quote(BOOT)
        self._ssh = subprocess.Popen(
            [*call.ssh, self.address, marked(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a proxy command ends with its ssh
        )
        opening = call.opening(self.name, self.address, self.below)
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        # ssh blocks on a node that is gone; the node's siblings must not wait as well.
        threading.Thread(target=self.send_command, args=(opening,), daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def send_command(self, data: bytes) -> None:
        """Send data other than file contents, over ssh."""
        assert self._ssh.stdin is not None  # noqa: S101  (stdin, stdout and stderr are pipes)
        try:
            self._ssh.stdin.write(data)
            self._ssh.stdin.flush()
        except OSError:
            self._kill()  # _read() then sees the end of ssh and reports why

    def connect(self, credential: str) -> None:
        """Open the line for file contents."""
        try:
            self.line = dial(self.address, self.port, credential)
        except (OSError, EOFError) as error:
            self.give_up(f"port {self.port} cannot be reached from another node: {error}")

    def send(self, data: bytes | memoryview) -> None:
        """Send file contents; give up the child when that fails."""
        if self.line is not None:
            try:
                self.line.sendall(data)
            except OSError as error:
                self.line = None
                self.fade(str(error))

    def fade(self, reason: str) -> None:
        """Wait for the child's own error, then give the child up; without an error, use ``reason``."""
        deadline = time.monotonic() + 2 * timing.PUSH_BEAT_S
        while not self.gone and time.monotonic() < deadline:
            time.sleep(0.05)
        self.give_up(reason)

    def close(self) -> None:
        """End the stream: close the line and ssh's stdin."""
        assert self._ssh.stdin is not None  # noqa: S101  (stdin, stdout and stderr are pipes)
        if self.line is not None:
            with contextlib.suppress(OSError):
                self.line.close()
        with contextlib.suppress(OSError):
            self._ssh.stdin.close()

    def give_up(self, reason: str) -> None:
        """End the connection; report the first ``reason`` given."""
        self.reason = self.reason or reason
        self._kill()

    def _kill(self) -> None:
        if not self.gone:  # afterwards another process may have its pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._ssh.pid, signal.SIGKILL)

    def _listen(self) -> None:
        assert self._ssh.stderr is not None  # noqa: S101  (stdin, stdout and stderr are pipes)
        for line in self._ssh.stderr:
            self._tail = line.strip() or self._tail

    def _read(self) -> None:
        assert self._ssh.stdout is not None  # noqa: S101  (stdin, stdout and stderr are pipes)
        for line in self._ssh.stdout:
            self.heard = time.monotonic()
            if line.startswith(MARK):
                message: PushMessage = json.loads(line[len(MARK) :])
                if message["t"] != "beat":
                    self._events.put((self, message))
        status = self._ssh.wait()
        self._listening.join(timing.PUSH_BEAT_S)  # the last line of stderr is the reason
        if not self.reason:
            self.reason = unexplained_end(status, self._tail.decode("utf-8", "replace"))
        self.gone = True
        self._events.put((self, {"t": "gone"}))


class Call:
    """The part of a push that is the same at every hop."""

    def __init__(self, header: PushHeader, packed: bytes, name: str, source: bytes) -> None:
        self.header, self.boot = header, (name, source)
        self.packed = packed
        """The manifest, compressed as it was received."""
        self.ssh: list[str] = header.get("ssh", [])
        self.silence: float = header.get("silence", 0)

    def opening(self, name: str, address: str, trees: list[Tree]) -> bytes:
        """Return the first bytes for the child of this name: these modules, the header, the manifest."""
        header = self.header.copy()
        header.pop("nodes", None)
        header.pop("sent", None)
        header.update({"op": "node", "name": name, "address": address, "trees": trees})
        header["manifest"] = len(self.packed)
        version, source = self.boot
        return b"%s %d\n%s%s\n%s" % (
            version.encode(),
            len(source),
            source,
            json.dumps(header).encode(),
            self.packed,
        )


class Branches:
    """All children of one hop, including those adopted from children that did not answer."""

    def __init__(self, trees: Iterable[Tree], call: Call, up: Up) -> None:
        self._events: queue.Queue[tuple[Branch, PushMessage]] = queue.Queue()
        self._call, self._up = call, up
        self.errors: dict[str, str | None] = {}
        self._all = [Branch(tree, call, self._events) for tree in trees]

    def lacking(self) -> set[int]:
        """Wait until every child has answered or been replaced; return the blobs missing below."""
        lacking: set[int] = set()
        waiting = set(self._all)
        while waiting:
            branch, message = self._next(waiting)
            if message["t"] == "lack":
                lacking.update(spans(message["blobs"]))
                branch.port = message["port"]
                waiting.discard(branch)
            elif message["t"] == "gone" and branch in waiting:
                waiting.discard(branch)
                self._report(branch.name, branch.reason)
                adopted = [Branch(tree, self._call, self._events) for tree in branch.below]
                self._all += adopted
                waiting.update(adopted)
        return lacking

    def announce(self, order: list[int]) -> None:
        """Announce the order of the blobs, and open the lines that carry them."""
        line = json.dumps(runs(order)).encode() + b"\n"
        for branch in self._all:
            if not branch.gone:
                branch.send_command(line)
        for branch in self._all:
            if order and not branch.gone:
                branch.connect(self._call.header["credential"])

    def send(self, data: bytes | memoryview) -> None:
        """Send file contents to every remaining child."""
        for branch in self._all:
            branch.send(data)

    def finish(self) -> None:
        """End the stream and wait for the children's reports; a child may end without one."""
        for branch in self._all:
            branch.close()
        waiting = {branch for branch in self._all if not branch.gone}
        while waiting:
            branch, message = self._next(waiting)
            if message["t"] == "gone":
                waiting.discard(branch)
        while not self._events.empty():
            self._next(set())
        for branch in self._all:
            if branch.name not in self.errors:
                self._report(branch.name, branch.reason)

    def stop(self) -> None:
        """End every connection."""
        for branch in self._all:
            branch.give_up("stopped")

    def _next(self, waiting: set[Branch]) -> tuple[Branch, PushMessage]:
        while True:
            try:
                branch, message = self._events.get(timeout=1)
            except queue.Empty:
                for branch in waiting:
                    if time.monotonic() - branch.heard > self._call.silence:
                        branch.give_up(f"sent nothing for {self._call.silence:g} s")
                continue
            if message["t"] == "told":
                self._report(message["node"], message["error"])
            return branch, message

    def _report(self, node: str, error: str | None) -> None:
        self.errors[node] = error
        self._up.send({"t": "told", "node": node, "error": error})


def own_modules() -> tuple[str, bytes]:
    """Return the id of this version of the node code, and all its modules as a push sends them."""
    top = next(iter(sys.modules["launch.remote"].__path__))
    texts = {}
    for folder, _, files in os.walk(top):
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                with open(path, encoding="utf-8") as stream:
                    texts[os.path.relpath(path, top)] = stream.read()
    return os.path.basename(top), zlib.compress(json.dumps(texts, sort_keys=True).encode(), 1)
