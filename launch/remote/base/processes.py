"""Starting one process of a rank and ending everything that came of it.

A runner is a child subreaper, so that also a double-forked daemon of a rank stays among its
descendants: they are found by walking /proc, never by name.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os
import time

from launch.remote.base import timing

__all__ = [
    "RUNNER_OF",
    "become_subreaper",
    "children_of_job",
    "descendants",
    "die_with_parent",
    "end_descendants",
    "end_idle_launcher",
    "has_children",
    "kill",
    "runners_of_job",
    "signal_descendants",
    "spawn",
    "start_time",
]

RUNNER_OF = "RANKLIFT_RUNNER_OF"
"""The variable by which a runner under mpirun is known for its job's; ranks do not have it."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGCONT, SIGXFSZ = 1, 2, 9, 13, 15, 17, 18, 25
_HANDLED = (SIGHUP, SIGINT, SIGTERM, SIGCHLD)
_PASSES = 3
_COMMAND_NOT_EXECUTABLE, _COMMAND_NOT_FOUND = 126, 127

_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # ctypes itself costs each rank 3 ms of processor
_prctl = _ctypes.dlsym(_libc, "prctl")


def become_subreaper() -> None:
    """From now on orphans among this process's descendants become its children."""
    _ctypes.call_function(_prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def die_with_parent(signal_number: int) -> None:
    """Asks the kernel to send this process ``signal_number`` when its parent ends."""
    _ctypes.call_function(_prctl, (_PR_SET_PDEATHSIG, signal_number, 0, 0, 0))


def spawn(argv: list[str], env: dict[str, str], cwd: str) -> tuple[int, int, int]:
    """Starts ``argv`` in a session of its own; gives its pid and the read ends of its stdout and stderr.

    The command is looked up in the new environment's PATH. What cannot be started says so on its own
    stderr and ends with 127 (not found) or 126, as under a shell. Signals are held back until the child has
    given up this process's handlers, or one that came before exec would be swallowed by them.
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
        os.chdir(cwd)
        # UTF-8 whatever the node's locale is: every byte arrives as it was sent
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
    """Like os.execvpe, which imports :mod:`warnings` first. Raises the error that says most."""
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


def _parents() -> dict[int, int]:
    """The parent of every process that can be seen, zombies left out."""
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            parents[int(entry)] = int(parent)
    return parents


def descendants(root: int) -> list[int]:
    """Every living process below ``root``, parents before their children."""
    below: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        below.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        children = below.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def has_children() -> bool:
    """Whether anything is left below this process, ended children that nobody waited for aside.

    Every descendant of a subreaper hangs on one of its children, so that no look into /proc is needed.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def signal_descendants(number: int) -> list[int]:
    """Sends the signal once to everything below this process; gives the pids that were there.

    What is stopped goes on at a SIGTERM, to be reached by it. It looks again for what was forked between
    listing and signalling.
    """
    told: list[int] = []
    for _ in range(_PASSES):
        new = [pid for pid in descendants(os.getpid()) if pid not in told]
        if not new:
            break
        for pid in new:
            kill(pid, number)
            if number == SIGTERM:
                kill(pid, SIGCONT)
        told += new
    return told


def end_descendants(seconds: float) -> list[int]:
    """Kills until nothing is left below this process; gives the pids still there after ``seconds``.

    Again and again, because a process may fork between being listed and being killed.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = signal_descendants(SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def start_time(pid: int) -> bytes:
    """When a process started, in the kernel's ticks; empty when there is none with that number.

    Number and start together are one process and no later one.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[19]
    except OSError:
        return b""


def end_idle_launcher(launcher: int, started: bytes, child: int) -> None:
    """Ends the MPI's own daemon on this node once it has none of its processes left but ``child``.

    ``started`` is the daemon's :func:`start_time`: its number may be another process's by now, which is left
    alone.

    It waits for an mpirun that is cut off or dead for as long as TCP does, which may be for ever. Only the
    youngest of its processes sees to that, after the others have had their time to end.
    """

    def others() -> list[int]:
        return [pid for pid, parent in _parents().items() if parent == launcher and pid != child]

    if any(pid > child for pid in others()):
        return
    until = time.monotonic() + timing.LONGEST_GRACE_S
    while others() and time.monotonic() < until:
        time.sleep(0.1)
    if started and start_time(launcher) == started:
        kill(launcher, SIGTERM)


def children_of_job(job: str) -> list[int]:
    """Processes of this user whose environment says they belong to ``job``, this one and its parents not.

    For what is left when a runner itself was killed: nothing walks up to it any more.
    """
    wanted = b"RANKLIFT_JOB_ID=" + job.encode()
    parents = _parents()
    above = set()
    pid = os.getpid()
    while pid:
        above.add(pid)
        pid = parents.get(pid, 0)
    found = []
    for pid in parents:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if pid not in above and wanted in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue
    return found


def runners_of_job(job: str) -> list[int]:
    """Return the runners of ``job`` on this node, and under mpirun what started them: mpirun, its ssh and its
    daemons. :func:`children_of_job` does not find them.

    Over ssh a runner's command line names the job; under mpirun, where it is the same for every job, the
    environment does.
    """
    found = []
    for pid in _parents():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")[:-1]
            is_of_job = words[-2:] == [b"node", job.encode()] and words[-3:-2][0].endswith(b"/__main__.py")
            if not is_of_job:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_of_job = f"{RUNNER_OF}={job}".encode() in file.read().split(b"\0")
        except (OSError, IndexError):
            continue
        if is_of_job:
            found.append(pid)
    return found


def kill(pid: int, number: int) -> None:
    """Sends the signal, if the process is still there and this user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
