"""The start of a rank's process and the end of all its descendants.

A runner is a child subreaper, so that even a double-forked daemon of a rank stays a descendant of the runner.
Descendants are found by walking /proc, never by name.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os
import time

from launch.remote.base import timing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from launch.remote.base.records import Process

__all__ = [
    "CONTAINERS",
    "IMAGES",
    "RUNNER_OF",
    "become_subreaper",
    "below",
    "boot",
    "descendants",
    "die_with_parent",
    "end_descendants",
    "end_idle_launcher",
    "has_children",
    "identity",
    "is_alive",
    "kill",
    "members",
    "parents_of_all",
    "process_stats",
    "runners_of_job",
    "signal_descendants",
    "spawn",
    "start_time",
    "words_of",
]

RUNNER_OF = "RANKLIFT_RUNNER_OF"
"""Environment variable that names the job of a runner under mpirun; ranks do not have it."""
CONTAINERS = "containers"
"""Folder in a job's folder on a node, with a file for each container of Docker's that holds its id."""
IMAGES = "ranklift"
"""First part of the names of images that Docker has loaded from environments."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGCONT, SIGXFSZ = 1, 2, 9, 13, 15, 17, 18, 25
_HANDLED = (SIGHUP, SIGINT, SIGTERM, SIGCHLD)
_PASSES = 3
_COMMAND_NOT_EXECUTABLE, _COMMAND_NOT_FOUND = 126, 127

_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # importing ctypes costs each rank 3 ms of CPU
_prctl = _ctypes.dlsym(_libc, "prctl")


def become_subreaper() -> None:
    """Make this process the new parent of orphans among its descendants."""
    _ctypes.call_function(_prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process ``signal_number`` when its parent ends."""
    _ctypes.call_function(_prctl, (_PR_SET_PDEATHSIG, signal_number, 0, 0, 0))


def spawn(
    argv: list[str], env: dict[str, str], cwd: str, enter: Callable[[], object] | None = None
) -> tuple[int, int, int]:
    """Start ``argv`` in a session of its own; return its pid and the read ends of its stdout and stderr.

    ``enter`` is called in the new process, before it changes to ``cwd``: a container's root is entered there.

    The command is searched in the new environment's PATH. A command that cannot be started writes the reason
    to its stderr and exits with 127 (not found) or 126, as under a shell. Signals are blocked until the child
    has reset this process's handlers, which would swallow a signal that arrives before exec.
    """
    parent = os.getpid()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    held_back = _signal.pthread_sigmask(_signal.SIG_BLOCK, _HANDLED)
    pid = os.fork()
    if pid:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, held_back)
        os.close(out_write)
        os.close(err_write)
        os.set_blocking(out_read, False)
        os.set_blocking(err_read, False)
        return pid, out_read, err_read
    status = _COMMAND_NOT_EXECUTABLE
    try:
        os.setsid()
        die_with_parent(SIGKILL)
        if os.getppid() != parent:
            os._exit(128 + SIGKILL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out_write, 1)
        os.dup2(err_write, 2)
        for number in (*_HANDLED, SIGPIPE, SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        if enter is not None:
            enter()
            die_with_parent(SIGKILL)  # another user namespace's credentials have cleared it
        os.chdir(cwd)
        # UTF-8 whatever the node's locale is, so that every byte arrives as it was sent
        _exec([_encoded(word) for word in argv], {_encoded(key): _encoded(env[key]) for key in env})
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            status = _COMMAND_NOT_FOUND
        os.write(2, f"cannot start {argv[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _exec(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Execute ``argv`` like os.execvpe, which would import :mod:`warnings`. Raise the most specific error."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606  an argv, no shell
    refused: OSError = FileNotFoundError(2, os.strerror(2))
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve((folder or b".") + b"/" + argv[0], argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = error
    raise refused


def process_stats() -> dict[int, tuple[int, int, bytes]]:
    """Return parent, session and start of every visible process that is not a zombie, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if words[0] not in (b"Z", b"X"):
            found[int(entry)] = int(words[1]), int(words[3]), words[19]
    return found


def parents_of_all() -> dict[int, int]:
    """Return the parent of every visible process that is not a zombie, by pid."""
    return {pid: parent for pid, (parent, _, _) in process_stats().items()}


def members(containers: Collection[bytes]) -> dict[int, bytes]:
    """Return the processes in containers, which their control groups name by id, each with that id."""
    found: dict[int, bytes] = {}
    for entry in os.listdir("/proc") if containers else ():
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cgroup", "rb") as file:
                groups = file.read()
        except OSError:
            continue
        found.update((int(entry), name) for name in containers if name in groups)
    return found


def descendants(root: int) -> list[int]:
    """Return every living process below ``root``, parents before their children."""
    return below(root, parents_of_all())


def below(root: int, parents: dict[int, int]) -> list[int]:
    """Return what of these processes is below ``root``, by each one's parent."""
    children_of: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children_of.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        children = children_of.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def boot() -> bytes:
    """Return the id of the machine's boot."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip()


def has_children() -> bool:
    """Return whether this process, a subreaper, has living descendants; reap its ended children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def signal_descendants(
    number: int,
    listed: Callable[[], list[int]] | None = None,
    spared: Callable[[], Collection[int]] = tuple,
) -> list[int]:
    """Send the signal once to every descendant of this process; return the descendants' pids.

    ``listed`` gives other processes in their place, of which those in ``spared`` do not get the signal.

    Signal whole process groups, which the kernel does in one step: a process that forks meanwhile either gets
    the signal with its child or forks afterwards, in its handler. What a handler starts, to save the rank's
    state, is not signalled. List again, because a group may be made between listing and signalling. Continue
    stopped processes after a SIGTERM, so that they handle it.
    """
    own_group = os.getpgid(0)
    found: list[int] = []
    signalled: set[int] = set()
    for _ in range(_PASSES):
        new = [pid for pid in (listed() if listed else descendants(os.getpid())) if pid not in found]
        if not new:
            break
        left_out = spared()
        for pid in new:
            if pid in left_out:
                continue
            try:
                group = os.getpgid(pid)
            except ProcessLookupError:
                continue
            target = pid if group == own_group else -group
            if target in signalled:
                continue
            signalled.add(target)
            kill(target, number)
            if number == SIGTERM:
                kill(target, SIGCONT)
        found += new
    return found


def end_descendants(seconds: float, listed: Callable[[], list[int]] | None = None) -> list[int]:
    """Kill all descendants of this process, or what ``listed`` gives, as often as one forks meanwhile; return
    the pids left after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        left = signal_descendants(SIGKILL, listed)
        has_children()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def start_time(pid: int) -> bytes:
    """Return a process's start in the kernel's ticks, by which equal pids differ; b"" without such a
    process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[19]
    except OSError:
        return b""


def end_idle_launcher(launcher: int, started: bytes, child: int) -> None:
    """End the MPI's own daemon on this node once ``child`` is its only process left.

    ``started`` is the daemon's :func:`start_time`: another process that has its pid by now is left alone.

    The daemon waits for an mpirun that is cut off or dead as long as TCP does, which may be for ever. Only
    the youngest of its processes ends it, after the others have had their time to end.
    """

    def others() -> list[int]:
        return [pid for pid, parent in parents_of_all().items() if parent == launcher and pid != child]

    if any(pid > child for pid in others()):
        return
    until = time.monotonic() + timing.LONGEST_GRACE_S
    while others() and time.monotonic() < until:
        time.sleep(0.1)
    if started and start_time(launcher) == started:
        kill(launcher, SIGTERM)


def runners_of_job(job: str) -> list[int]:
    """Return the runners of ``job`` on this node with their guardians, under mpirun also mpirun, its ssh and
    its daemons.

    :func:`children_of_job` does not find these. Over ssh a runner's command line names the job; under mpirun,
    where the command line is the same for every job, the environment does.
    """
    mark, last = f"{RUNNER_OF}={job}".encode(), [b"node", job.encode(), b""]
    found = []
    for pid in parents_of_all():
        words = words_of(pid, "cmdline")
        is_runner = words[-3:] == last and b"".join(words[-4:-3]).endswith(b"/__main__.py")
        if is_runner or mark in words_of(pid, "environ"):
            found.append(pid)
    return found


def words_of(pid: int, name: str) -> list[bytes]:
    """Return the words of a process's ``cmdline`` or ``environ``; [] where that cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def kill(pid: int, number: int) -> None:
    """Send the signal to a process; ignore one that has ended or is another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def identity(pid: int) -> Process:
    """Return what distinguishes a process from any later one. Raise OSError when there is no such process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    booted = boot().decode()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(f"process {pid} has ended")
    return {"pid": pid, "started": int(fields[19]), "boot": booted}


def is_alive(process: Process | None) -> bool:
    """Return whether the process that :func:`identity` described still runs; True when that is unknown."""
    if not process:
        return False
    try:
        return identity(process["pid"]) == process
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True  # no file descriptor is left, for example, which must not end a job
