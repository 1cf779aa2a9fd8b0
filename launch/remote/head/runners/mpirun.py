"""mpirun while it runs on the head, the port to which its runners connect, and which MPI the nodes have."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Mapping

from launch.remote.base import timing
from launch.remote.base.encryption import CLUSTER_KEY, SharedKey
from launch.remote.base.files import python_folder
from launch.remote.base.job_dir import Folder
from launch.remote.base.processes import RUNNER_OF, SIGKILL, SIGTERM, die_with_parent
from launch.remote.base.records import Plan
from launch.remote.head.runners.node_command import start_on_node
from launch.remote.login import Login
from launch.remote.mpi.detect import CannotLaunch, FoundMpi, find_mpi
from launch.remote.mpi.registry import MPIS, runner_facts

__all__ = ["Mpirun"]

_BACKLOG = 1024
_AT_ONCE = 48


class Mpirun:
    """Starts mpirun for a plan; every rank's runner connects to :attr:`listener` and shows :attr:`token`, and
    gets its SPEC encrypted with :attr:`key`.

    Raise :class:`~launch.remote.mpi.detect.CannotLaunch` when the head has no MPI that the job can use, or no
    key.
    """

    def __init__(self, folder: Folder, plan: Plan) -> None:
        self._plan, self._known = plan, list(plan["mpirun"])
        python, head = python_folder(plan["python"]), f"{plan['nodes'][0]['name']}, the head"
        self._first = f"{python}/bin" if python else ""
        self.token = os.urandom(16).hex()
        try:
            self._mpi = find_mpi(self._known, self._first)
        except CannotLaunch as error:
            remedy = "use an image that has it, or name an environment on the nodes that has it"
            raise CannotLaunch(f"{head}: {error}: {remedy} as the job's python") from error
        try:
            for name in ("hostfile", "machinefile"):
                with open(folder.file(name), "w", encoding="utf-8") as file:
                    file.write(plan[name])
        except OSError as error:
            raise CannotLaunch(f"{head}: {folder.path} cannot be written: {error.strerror}") from error
        try:
            self.key = SharedKey.of_cluster(self.token)
        except OSError as error:
            raise CannotLaunch(
                f"{head}: the cluster's key {CLUSTER_KEY} cannot be read: {error.strerror}; MPI jobs encrypt "
                "their traffic with it: copy it there from another node, with mode 0600"
            ) from error
        self.listener = socket.socket()
        self.listener.bind((plan["nodes"][0]["private_ip"], 0))
        self.listener.listen(_BACKLOG)
        self.listener.setblocking(False)
        host, port = self.listener.getsockname()
        line = plan["mpirun"][self._mpi.name]
        files = {f"{{{name}}}": folder.file(name) for name in ("hostfile", "machinefile")}
        mark = f"{RUNNER_OF}={plan['id']}"
        exports = [
            *self._mpi.exports,
            "RANKLIFT_LIBRARY_PATH",
            "RANKLIFT_MPI",
            "RANKLIFT_MPI_VERSION",
            RUNNER_OF,
        ]
        words = [files.get(word, word.replace(f"{RUNNER_OF}={{job}}", mark)) for word in line["argv"]]
        argv = self._mpi.kind.pass_on(words, exports)
        given = {key: value for key, value in line["env"].items() if key not in self._mpi.env}
        prefixes = tuple(prefix for mpi in MPIS.values() for prefix in mpi.mpirun_prefixes)
        given.update((key, value) for key, value in plan["user_env"].items() if key.startswith(prefixes))
        given.update(RANKLIFT_TOKEN=self.token, RANKLIFT_SUPERVISOR=f"{host}:{port}")
        given.update({"RANKLIFT_LIBRARY_PATH": self._mpi.library_path, RUNNER_OF: plan["id"]})
        given["RANKLIFT_MPI"] = runner_facts(self._mpi.kind)
        given["RANKLIFT_MPI_VERSION"] = f"{self._mpi.name} {self._mpi.title}"
        nodes = plan["nodes"]
        open_files = self._mpi.kind.open_files(self._mpi.name, len(nodes), len(nodes[0]["ranks"]))
        self.process = _start(argv, self._mpi, given, open_files)

    @property
    def choice(self) -> str:
        """Which of the image's MPIs was chosen, and why no other; empty where PATH has it."""
        if not self._mpi.module:
            return ""
        return "; ".join([f"mpirun is {self._mpi.title}", *self._mpi.passed_over])

    def unfit_nodes(self) -> dict[int, str]:
        """Query all nodes over ssh; return by node why it cannot start ranks for this mpirun, which ended
        before every rank ran."""
        request = json.dumps({"known": self._known, "first": self._first}).encode() + b"\n"
        reasons: dict[int, str] = {}
        others = range(1, len(self._plan["nodes"]))
        for start in range(0, len(others), _AT_ONCE):
            indexes = others[start : start + _AT_ONCE]
            queries = [(index, _query_mpi(self._plan, index, request)) for index in indexes]
            until = time.monotonic() + timing.MPI_ANSWER_S
            for index, process in queries:
                reason = _unfit_for(self._mpi, process, until)
                if reason:
                    reasons[index] = reason
        return reasons

    @property
    def is_running(self) -> bool:
        """Whether mpirun has not ended yet."""
        return self.process.poll() is None

    @property
    def status(self) -> int:
        """mpirun's exit status, 128+n for signal n."""
        code = self.process.wait()
        return 128 - code if code < 0 else code

    @property
    def killed_by(self) -> int:
        """The signal that ended mpirun, 0 where none did."""
        code = self.process.poll()
        return -code if code is not None and code < 0 else 0

    def signal(self, number: int) -> None:
        """Send a signal to mpirun itself, which may be what a script of that name started."""
        if self.is_running:
            send = os.killpg if self._mpi.kind.signals_group else os.kill
            send(self.process.pid, number)

    def close(self) -> None:
        """Kill mpirun if it still runs, and close the port."""
        if self.is_running:
            os.killpg(self.process.pid, SIGKILL)
        self.process.wait()
        self.listener.close()


def _start(
    argv: list[str], mpi: FoundMpi, more: Mapping[str, str], open_files: int | None
) -> subprocess.Popen[bytes]:
    """Start mpirun in the home folder, which every node has, and in a session of its own, for some MPI's is a
    script; secrets in ``more`` reach it by its environment alone.

    With a limit of ``open_files``, runners on the head, which inherit it, get this process's own back by
    ``RANKLIFT_OPEN_FILES``.
    """
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = most if open_files is None else min(most, open_files)
    own = {"RANKLIFT_OPEN_FILES": f"{most}"} if limit < most else {}

    def prepare() -> None:
        die_with_parent(SIGTERM)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    return subprocess.Popen(
        [mpi.command, *argv[1:]],
        # hydra of MPICH 5.0.2 does not pass on the last one
        env=dict(mpi.env, **more, **own, RANKLIFT_LAST=""),
        cwd=os.path.expanduser("~"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509  the supervisor has no threads
    )


def _query_mpi(plan: Plan, index: int, request: bytes) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    process = start_on_node(plan, index, "mpi", stdin=pipe, stderr=pipe)
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # its stderr holds the reason
            process.stdin.write(request)
            process.stdin.flush()
    return process


def _unfit_for(mpi: FoundMpi, process: subprocess.Popen[bytes], until: float) -> str:
    """Return why the node that ``process`` asks cannot start ranks for the head's ``mpi``, if so."""
    try:
        out, err = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no answer within {timing.MPI_ANSWER_S:g} s"
    login = Login()
    try:
        found = json.loads(login.feed(out))
    except ValueError:
        lines = err.strip().splitlines()
        if lines:
            return lines[-1].decode("utf-8", "replace")
        return login.problem or f"no answer, exit status {process.returncode}"
    if found["unwritable"]:
        return "; ".join(found["unwritable"])
    if "error" in found:
        return f"{found['error']}; the head has {mpi.title}"
    same = (found["title"], found["command"]) == (mpi.title, mpi.command)
    return "" if same else f"mpirun is {found['title']} ({found['command']}); the head has {mpi.title}"
