"""Charliecloud: a folder as image, no daemon, no root; all ranks of a node in one user namespace.

``ch-run`` makes a container once a node and launch, and ends. Its namespaces stay, because every runner holds
descriptors of them, and each rank enters them before it executes its command. Ranks are therefore the
runners' own children, as bare ones: they get signals, exit and end in the same way. One user namespace lets
them read each other's memory, which MPI does for large messages. ``ch-run --join`` makes one too, but fails
where a rank has ended before the last one has joined it (ch-run(1), "caveats").
"""

from __future__ import annotations

import _ctypes
import fcntl
import os
import select
import subprocess
import time

from launch.remote.base import processes, timing
from launch.remote.base.files import which
from launch.remote.node.prepare import Unfit, not_here
from launch.remote.node.runtimes.container import Container, last_line, refuse_colons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.node.runtimes.container import Run
    from launch.remote.node.runtimes.node_facts import NodeFacts

__all__ = ["Charliecloud", "holder_argv", "make_mount_points"]

_NAMESPACES = ("user", "mnt")
_SHARED = "namespaces"
"""File in the job's folder on a node: pid and start of a runner, and its descriptors of the namespaces."""
_BASIC = ("/dev", "/proc", "/sys", "/tmp")  # noqa: S108  mount points in the image
_FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group")
"""Files that ch-run replaces by the node's, where the image has them."""
_WAIT_MS = 20
_INSIDE = b"inside\n"

_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # as in launch.remote.base.processes
_setns = _ctypes.dlsym(_libc, "setns")


def holder_argv(ch_run: str, root: str, node: NodeFacts) -> list[str]:
    """Return the command line that makes the container and waits in it for the end of its stdin.

    The image's own files stay as they are: all of it is mounted read-only.
    """
    binds = [path for path in (*node.folders, *node.files) if path not in _BASIC]
    argv = [ch_run, *(f"--bind={path}:{path}" for path in binds), "--cd=/", root]
    return [*argv, "--", "sh", "-c", "echo inside; read -r _"]


def make_mount_points(root: str, folders: list[str], files: list[str]) -> None:
    """Make the folders and files in an image over which the node's own are mounted.

    Raise Unfit where a link of the image is in the way: it could lead out of the image.
    """
    for path in [*folders, *files]:
        made = root
        parts = path.strip("/").split("/")
        for place, part in enumerate(parts, 1):
            made += f"/{part}"
            if os.path.islink(made):
                inside = made[len(root) :]
                if place == len(parts) and path in _FILES:
                    break  # the image's own, such as /etc/resolv.conf of systemd
                raise Unfit(
                    f"{path} cannot be mounted in the image: its {inside} is a link; use another image"
                )
            if os.path.exists(made):
                continue
            parent = os.path.dirname(made)
            os.chmod(parent, os.stat(parent).st_mode | 0o700)  # a stored image is read-only
            if place == len(parts) and path in files:
                os.close(os.open(made, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            else:
                os.makedirs(made, 0o755, exist_ok=True)  # another job may have made it meanwhile


class Charliecloud(Container):
    """Ranks in namespaces that ch-run has made."""

    name = "charliecloud"

    def __init__(self, spec: RunnerSpec, node: NodeFacts) -> None:
        super().__init__(spec, node)
        self._held: list[int] = []
        """Descriptors of the namespaces, in the order in which they are entered."""

    def ready(self, run: Run, keep_alive: Callable[[int], object]) -> None:
        """Take the namespaces of another runner of the launch on this node, or make them. Raise Unfit."""
        del run
        path = f"{self.job_folder}/{_SHARED}"
        shared = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(shared, "r+b", buffering=0) as file:
            while not _is_locked(shared):
                keep_alive(_WAIT_MS)
            self._held = _held_by_another(file.read())
            if self._held:
                return
            self._held = self._make(keep_alive)
            own = os.getpid()
            words = [b"%d" % own, processes.start_time(own), *(b"%d" % fd for fd in self._held)]
            file.seek(0)
            file.truncate()
            file.write(b" ".join(words))

    def _make(self, keep_alive: Callable[[int], object]) -> list[int]:
        ch_run = which("ch-run", os.environ.get("PATH", os.defpath))
        if not ch_run:
            raise Unfit(
                "runtime = charliecloud: ch-run: command not found; choose an image of the nodes that "
                "has it, or another --runtime"
            )
        if self.node.has_gpus:
            # `ch-fromhost --nvidia` copies them into the image, for this node alone (ch-fromhost(1)).
            raise Unfit(
                "runtime = charliecloud: it does not bring the libraries of this node's GPU driver into an "
                "image; use --runtime docker"
            )
        refuse_colons(self.name, self.node)
        root = f"{self.image}/root"
        if not os.path.isdir(root):
            raise Unfit(not_here(root, os.path.basename(self.image)))
        folders = [*_BASIC, *(path for path in (*self.node.folders, *self.node.files) if os.path.isdir(path))]
        files = [*_FILES, *(path for path in self.node.files if not os.path.isdir(path))]
        try:
            make_mount_points(root, folders, files)
        except OSError as error:
            raise Unfit(f"{root}: a mount point cannot be made: {error}") from error
        env = {key: value for key, value in os.environ.items() if key not in ("TMPDIR", "LD_PRELOAD")}
        env.setdefault("USER", str(self.node.uid))  # ch-run insists on one
        return _namespaces_of(holder_argv(ch_run, root, self.node), env, keep_alive)

    def command(
        self, argv: list[str], env: dict[str, str], cwd: str, rank: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return the rank's own command and variables: it is executed in the image itself."""
        del cwd, rank
        return argv, env

    def enter(self) -> None:
        """Enter the namespaces: of the user first, who may enter the other one then."""
        for held in self._held:
            if _ctypes.call_function(_setns, (held, 0)):
                raise OSError(_ctypes.get_errno(), "the image's namespaces cannot be entered")


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held_by_another(text: bytes) -> list[int]:
    """Return descriptors of the namespaces that a living runner holds, as its line in the file says."""
    words = text.split()
    if not words or processes.start_time(int(words[0])) != words[1]:
        return []
    try:
        return [
            os.open(f"/proc/{int(words[0])}/fd/{int(fd)}", os.O_RDONLY | os.O_CLOEXEC) for fd in words[2:]
        ]
    except OSError:
        return []  # it has just ended


def _namespaces_of(argv: list[str], env: dict[str, str], keep_alive: Callable[[int], object]) -> list[int]:
    """Run a command, which writes a line and waits for the end of its stdin; return descriptors of its
    namespaces. Raise Unfit."""
    until = time.monotonic() + timing.CONTAINER_S
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as holder:
        assert holder.stdin is not None and holder.stdout is not None  # noqa: S101  for mypy
        out, wrote = holder.stdout.fileno(), b""
        os.set_blocking(out, False)
        try:
            while not wrote.endswith(_INSIDE):
                keep_alive(_WAIT_MS)
                if select.select([out], [], [], 0)[0]:
                    data = os.read(out, 4096)
                    wrote += data
                    if not data:
                        raise Unfit(f"ch-run cannot start a container: {last_line(wrote)}")
                if time.monotonic() > until:
                    raise Unfit(f"ch-run did not start a container within {timing.CONTAINER_S:g} s")
            return [
                os.open(f"/proc/{holder.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES
            ]
        finally:
            holder.stdin.close()
            holder.kill()
