"""What all container runtimes have in common: the variables of a rank, and what a runner asks of them."""

from __future__ import annotations

import json
import os

from launch.remote.base import processes
from launch.remote.base.files import expand_home
from launch.remote.node.prepare import Unfit, not_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.node.runtimes.node_facts import NodeFacts

    Run = Callable[[list[str], float], tuple[int, bytes]]
    """Runs a command on the node, with signs of life, for at most so many seconds; returns its exit status
    and its output."""

__all__ = ["Container", "container_variables", "last_line", "read_image_variables", "refuse_colons"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What Docker sets where an image does not set PATH."""
_OF_NODE = {
    *("BASH_ENV", "ENV", "LD_LIBRARY_PATH", "LD_PRELOAD", "MANPATH", "PATH", "PYTHONHOME", "PYTHONPATH"),
    *("PYTHONSTARTUP", "VIRTUAL_ENV", "OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "PRTE_PREFIX", "I_MPI_ROOT"),
}
"""Variables of the node that name its own programs and libraries, which an image does not have."""
_NEVER_OF_IMAGE = {"HOME", "HOSTNAME", "LOGNAME", "TMPDIR", "USER"}
"""Variables that say who and where a rank is: on the node, whatever the image says."""


def container_variables(node: Mapping[str, str], image: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks in a container inherit, in place of the node's variables.

    The image's variables replace the node's. Of the node's, those do not count that name its programs and
    libraries; of the image's, those that say who and where a rank is. The job's own variables and the user's
    come over both, as :func:`launch.remote.node.rank_env.environment` has it.

    >>> image = {"PATH": "/opt/conda/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    >>> node = {"PATH": "/bin", "LD_LIBRARY_PATH": "/opt/x", "HOME": "/home/me", "LANG": "C"}
    >>> container_variables(node, image)
    {'PATH': '/opt/conda/bin:/bin', 'PYTHONNOUSERSITE': '1', 'HOME': '/home/me', 'LANG': 'C.UTF-8'}
    """
    env = {"PATH": _PATH, "PYTHONNOUSERSITE": "1"}  # packages in the node's home are for the node's Python
    env.update((name, value) for name, value in node.items() if name not in _OF_NODE)
    env.update((name, value) for name, value in image.items() if name not in _NEVER_OF_IMAGE)
    return env


def read_image_variables(folder: str) -> dict[str, str]:
    """Return the variables that an image sets, from its configuration in ``folder``. Raise Unfit."""
    path = f"{folder}/config.json"
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        pairs = [one.partition("=") for one in (config.get("config") or config).get("Env") or ()]
    except FileNotFoundError as error:
        raise Unfit(not_here(folder, os.path.basename(folder))) from error
    except (OSError, ValueError, AttributeError) as error:
        raise Unfit(
            f"{path} cannot be read: {error}; run `fab environment.rm {os.path.basename(folder)}` and launch "
            "the job again"
        ) from error
    return {name: value for name, _, value in pairs}


def refuse_colons(runtime: str, node: NodeFacts) -> None:
    """Raise Unfit where the runtime would take a part of a folder's name for its next option."""
    for path in node.folders:
        if ":" in path:
            raise Unfit(
                f"runtime = {runtime}: it cannot mount {path}, with a colon in its name: mount it elsewhere"
            )


def last_line(output: bytes) -> str:
    """Return the last line of a command's output that is not empty."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


class Container:
    """A runtime that starts ranks in an image, as a runner uses it."""

    name: str
    passes_descriptors = True
    """Whether a rank inherits open descriptors, by which MPICH's and Intel MPI's launcher reaches it."""

    def __init__(self, spec: RunnerSpec, node: NodeFacts) -> None:
        self.node = node
        self.job, self.job_folder = spec["job"], expand_home(spec["folder"])
        self.image, self.title = expand_home(spec["environment"]["path"]), spec["environment"]["title"]
        self._variables = read_image_variables(self.image)

    def inherited(self, node: Mapping[str, str]) -> dict[str, str]:
        """Return what a rank inherits, made from the variables of the node."""
        return container_variables(node, self._variables)

    def ready(self, run: Run, keep_alive: Callable[[int], object]) -> None:
        """Prepare what all ranks of this runner need, before any rank starts. Call ``keep_alive`` while
        waiting. Raise Unfit."""
        raise NotImplementedError

    def command(
        self, argv: list[str], env: dict[str, str], cwd: str, rank: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts ``argv`` in the image, and the command's own variables."""
        raise NotImplementedError

    def enter(self) -> None:
        """Enter the image, in the new process of a rank. Raise OSError."""

    def spawn(self, argv: list[str], env: dict[str, str], cwd: str, rank: int) -> tuple[int, int, int]:
        """Start a rank, as :func:`launch.remote.base.processes.spawn` does."""
        argv, env = self.command(argv, env, cwd, rank)
        return processes.spawn(argv, env, cwd, self.enter)

    def list_processes(self) -> list[int]:
        """Return the processes that a signal to all ranks concerns."""
        return processes.descendants(os.getpid())

    def started_in(self, pid: int) -> str:
        """Return what a daemon has started a rank's processes in, as
        :class:`~launch.remote.debug.debug_records.DebugOrder` has it; empty where they descend from ``pid``.
        """
        del pid
        return ""

    def spared(self) -> set[int]:
        """Return those of them that do not get the signal, because they end with a rank."""
        return set()

    def exit_of(self, rank: int, pid: int, status: int, signal: int) -> tuple[int, int, str]:
        """Return a rank's true exit status and signal, and a line for its log, from those of its process."""
        del rank, pid
        return status, signal, ""

    def end(self) -> list[int]:
        """End what this runner's ranks have left outside its descendants; return the pids left."""
        return []
