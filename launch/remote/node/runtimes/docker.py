"""Docker: a daemon starts the ranks, so that they descend from it and not from their runner.

Each rank is a container, in the node's own namespaces of processes, network and memory: ranks see what bare
ones see, by the same pids. The runner's child is ``docker run``, which passes on output and exit status. The
runner signals a container's processes by itself: it finds them by the container's control group, whatever
they do to their environment, and reaches all of them, where Docker's own signals reach the first alone.
"""

from __future__ import annotations

import glob
import os
import subprocess
import time

from launch.remote.base import processes, timing
from launch.remote.base.files import expand_home, which
from launch.remote.base.processes import CONTAINERS, IMAGES
from launch.remote.node.prepare import Unfit, not_here
from launch.remote.node.runtimes.container import Container, last_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.node.runtimes.container import Run
    from launch.remote.node.runtimes.node_facts import NodeFacts

__all__ = ["Docker", "docker_argv", "end_containers_of", "remove_containers"]

_JOB, _RUNNER = "ranklift.job", "ranklift.runner"
"""Labels of a container: its job, and its runner by pid and start."""
_POLL = 0.05
_CLIENTS = (
    *("DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST"),
    *("DOCKER_CONTENT_TRUST", "DOCKER_DEFAULT_PLATFORM", "DOCKER_TLS", "DOCKER_TLS_VERIFY"),
)
"""Variables that direct ``docker`` itself, which passes on a rank's variables from its own."""
_AMBIGUOUS = (125, 126, 127)
"""Exit statuses of ``docker run`` where Docker started nothing, which a rank may exit with, too."""
_BY_SIGNAL = range(129, 193)
"""Exit statuses of a container whose command was ended by signal 1 to 64."""


def docker_argv(
    docker: str,
    image: str,
    labels: Iterable[str],
    id_file: str,
    names: Iterable[str],
    cwd: str,
    node: NodeFacts,
    argv: list[str],
) -> list[str]:
    """Return the command line of a rank; ``names`` are its variables, whose values Docker takes from its own.

    Docker asks its public registry for an image that it lacks, where anyone may have put one of this name. It
    keeps all output of a container on the node's disk, as the rank's log does: both are switched off.
    Capabilities: IPC_LOCK to register memory with the InfiniBand adapter, SYS_PTRACE so that Docker's filter
    of system calls lets ranks read each other's memory, as MPI does for large messages.
    """
    mounts = [
        *(_mount(path) for path in node.folders),
        *(f"{_mount(path)},readonly" for path in (*node.files, "/etc/passwd", "/etc/group")),
    ]
    words = [docker, "run", "--rm", "--pull", "never", "--log-driver", "none"]
    for label in labels:
        words += ["--label", label]
    words += ["--cidfile", id_file]
    words += ["--network", "host", "--ipc", "host", "--pid", "host", "--cap-add", "SYS_PTRACE"]
    words += ["--user", f"{node.uid}:{node.gid}"]
    for group in node.groups:
        words += ["--group-add", str(group)]
    for name, soft, hard in node.limits:
        words += ["--ulimit", f"{name}={soft}:{hard}"]
    for mount in mounts:
        words += ["--mount", mount]
    for device in node.devices:
        words += ["--device", device]
    if node.devices:
        words += ["--cap-add", "IPC_LOCK"]
    if node.has_gpus:
        words += ["--gpus", "all"]
    for name in sorted(names):
        words += ["--env", name]
    return [*words, "--workdir", cwd, "--entrypoint", "", image, *argv]


def _mount(path: str) -> str:
    """Return what mounts a path at the same path: Docker reads it as a line of CSV.

    >>> _mount("/mnt/a, b")
    'type=bind,"source=/mnt/a, b","target=/mnt/a, b"'
    """
    fields = [f"{name}={path}" for name in ("source", "target")]
    if "," in path or '"' in path:
        fields = ['"' + field.replace('"', '""') + '"' for field in fields]
    return ",".join(["type=bind", *fields])


def _docker() -> str:
    return which("docker", os.environ.get("PATH", os.defpath))


class Docker(Container):
    """Ranks in Docker's containers."""

    name = "docker"
    passes_descriptors = False

    def __init__(self, spec: RunnerSpec, node: NodeFacts) -> None:
        super().__init__(spec, node)
        self._docker = _docker()
        self._tag = f"{IMAGES}/{spec['environment']['id']}"
        self._runner = _runner_label(os.getpid(), processes.start_time(os.getpid()))
        self._id_files: dict[int, str] = {}
        """By the pid of ``docker run``, the file with the container's id."""
        self._last = ""
        self._count = 0
        self._set = {**self._variables, **spec["user_env"]}
        self._since = f"{time.time():.0f}"

    def ready(self, run: Run, keep_alive: Callable[[int], object]) -> None:
        """See whether Docker answers and has the image; load the image where it has not."""
        del keep_alive
        if not self._docker:
            raise Unfit("runtime = docker: command not found; choose an image of the nodes that has it")
        if self.node.has_gpus and not self.node.has_nvidia_toolkit:
            raise Unfit(
                "runtime = docker: containers cannot use this node's GPUs; install nvidia-container-toolkit"
            )
        if self.node.closed:
            raise Unfit(
                f"runtime = docker: Docker's daemon cannot enter the mount {self.node.closed[0]}: mount it "
                "with -o allow_other, or below the home folder"
            )
        for name in _CLIENTS:
            if self._set.get(name, os.environ.get(name)) != os.environ.get(name):
                raise Unfit(
                    f"environment variable {name} would redirect the docker that starts ranks: unset it"
                )
        status, output = run([self._docker, "version", "--format", "{{.Server.Version}}"], timing.CONTAINER_S)
        if status:
            raise Unfit(
                f"runtime = docker: {last_line(output)}: start Docker on the node, and let its user in "
                "(`usermod -aG docker USER`)"
            )
        os.makedirs(f"{self.job_folder}/{CONTAINERS}", mode=0o700, exist_ok=True)
        if run([self._docker, "image", "inspect", "--format", "{{.Id}}", self._tag], timing.CONTAINER_S)[0]:
            file = f"{self.image}/image.tar"
            if not os.path.exists(file):
                raise Unfit(not_here(file, os.path.basename(self.image)))
            self._remove_dropped(run)
            status, output = run([self._docker, "load", "--quiet", "--input", file], float("inf"))
            if status:
                raise Unfit(f"docker load of {file}: {last_line(output)}")

    def _remove_dropped(self, run: Run) -> None:
        """Remove the images of environments that this node does not keep any more; those in use stay."""
        folder = os.path.dirname(self.image)
        argv = [self._docker, "image", "ls", "--filter", f"reference={IMAGES}/*"]
        for name in run([*argv, "--format", "{{.Repository}}"], timing.CONTAINER_S)[1].decode().split():
            if not os.path.exists(f"{folder}/{name.rpartition('/')[2]}"):
                run([self._docker, "image", "rm", name], timing.CONTAINER_S)

    def command(
        self, argv: list[str], env: dict[str, str], cwd: str, rank: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return Docker's command line; the rank's variables are its own."""
        self._count += 1
        self._last = f"{self.job_folder}/{CONTAINERS}/{rank}.{os.getpid()}.{self._count}"
        labels = (f"{_JOB}={self.job}", self._runner)
        return docker_argv(self._docker, self._tag, labels, self._last, env, cwd, self.node, argv), env

    def spawn(self, argv: list[str], env: dict[str, str], cwd: str, rank: int) -> tuple[int, int, int]:
        """Start ``docker run``, and note which container it makes."""
        spawned = super().spawn(argv, env, cwd, rank)
        self._id_files[spawned[0]] = self._last
        return spawned

    def _containers(self) -> dict[bytes, int]:
        """Return the containers made so far: by id, the pid of ``docker run``."""
        found = {}
        for pid, path in self._id_files.items():
            name = _id_in(path)
            if name:
                found[name] = pid
        return found

    def list_processes(self) -> list[int]:
        """Return the processes in this runner's containers, and its descendants."""
        return [*_members(self._containers()), *super().list_processes()]

    def started_in(self, pid: int) -> str:
        """Return the container of a rank whose ``docker run`` is ``pid``."""
        return f"docker:{_id_in(self._id_files.get(pid, '')).decode()}"

    def spared(self) -> set[int]:
        """Return every ``docker run`` whose container runs: it would pass the signal on once more, and ends
        with the container."""
        return set(_members(self._containers()).values())

    def exit_of(self, rank: int, pid: int, status: int, signal: int) -> tuple[int, int, str]:
        """Return the exit status that Docker reports, as a signal from 129 on; with Docker's own failures, a
        line that says so."""
        del rank
        if not signal and status in _BY_SIGNAL:
            return status, status - _BY_SIGNAL.start + 1, ""
        if status in _AMBIGUOUS and not self._has_started(self._id_files.get(pid, "")):
            return status, signal, "Docker did not start this rank; its message is above\n"
        return status, signal, ""

    def _has_started(self, path: str) -> bool:
        name = _id_in(path).decode()
        if not name:
            return False
        asked = [self._docker, "events", "--since", self._since, "--until", f"{time.time():.9f}"]
        asked += ["--filter", f"container={name}", "--filter", "event=start", "--format", "{{.ID}}"]
        return bool(_output_of(asked).strip())

    def end(self) -> list[int]:
        """Remove this runner's containers, of which some may run on without their ``docker run``."""
        return _end_containers(self._docker, self._runner, list(self._id_files.values()))


def remove_containers(job: str) -> None:
    """Remove all containers of a job on this node, which end with their processes."""
    docker = _docker()
    if docker:
        _remove(docker, _list(docker, f"{_JOB}={job}"))


def end_containers_of(pid: int, start: bytes) -> None:
    """Remove the containers of a runner that was killed: its pid, and its :func:`start_time
    <launch.remote.base.processes.start_time>`."""
    id_files = glob.glob(f"{expand_home('~/.ranklift/jobs')}/*/{CONTAINERS}/*.{pid}.*")
    docker = _docker()
    if id_files and docker:
        _end_containers(docker, _runner_label(pid, start), id_files)


def _runner_label(pid: int, start: bytes) -> str:
    return f"{_RUNNER}={pid}.{start.decode()}"


def _end_containers(docker: str, label: str, id_files: list[str]) -> list[int]:
    """Remove the containers with the label until there is none; return the pids that are left in them.

    ``docker run`` makes the file of a container's id before it asks for the container. Where the id is
    missing, ``docker run`` was killed meanwhile, and the container may still come.
    """
    known: set[bytes] = set()
    until = time.monotonic() + timing.CONTAINER_S
    expected_until = time.monotonic() + timing.UNKILLABLE_S
    while True:
        made = [path for path in id_files if os.path.exists(path)]
        known.update(filter(None, map(_id_in, made)))
        listed = _list(docker, label) if made else []
        known.update(listed)
        now = time.monotonic()
        if now > until or (not listed and (len(known) >= len(made) or now > expected_until)):
            return processes.end_descendants(timing.UNKILLABLE_S, lambda: list(processes.members(known)))
        _remove(docker, listed)
        time.sleep(_POLL)


def _list(docker: str, label: str) -> list[bytes]:
    return _output_of([docker, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}"]).split()


def _remove(docker: str, containers: Iterable[bytes]) -> None:
    names = [name.decode() for name in containers]
    if names:
        _output_of([docker, "rm", "--force", *names])


def _output_of(argv: list[str]) -> bytes:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=timing.CONTAINER_S,
        ).stdout
    except subprocess.TimeoutExpired:
        return b""  # processes that are left are reported by their pids


def _id_in(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read().strip()
    except OSError:
        return b""  # not made yet


def _members(containers: dict[bytes, int]) -> dict[int, int]:
    """Return the processes in the containers, each with its container's ``docker run``."""
    return {pid: containers[name] for pid, name in processes.members(containers).items()}
