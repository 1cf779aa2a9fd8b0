"""Enroot: a squashfs image, a user namespace for each rank, no daemon.

What enroot does with variables, mounts and descriptors is in its source alone: NVIDIA/enroot, src/runtime.sh,
src/common.sh and bin/enroot-switchroot.c of version 3.
"""

from __future__ import annotations

import os

from launch.remote.base.files import replace_file, which
from launch.remote.node.prepare import Unfit, not_here
from launch.remote.node.runtimes.container import Container, refuse_colons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from launch.remote.base.payloads import RunnerSpec
    from launch.remote.node.runtimes.container import Run
    from launch.remote.node.runtimes.node_facts import NodeFacts

__all__ = ["Enroot", "enroot_argv"]

_NO_SINGLE_COPY = {
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_btl_sm_single_copy_mechanism": "none",
}
"""For Open MPI 4 and 5: ranks in different user namespaces cannot read each other's memory."""
_MOUNTERS = ("fuse-shim", "squashfuse", "fuse-overlayfs")
"""Processes by which enroot mounts an image: descendants of the rank's process, which end after it."""
_PROGRAMS = ("enroot", "squashfuse", "fuse-overlayfs")
"""What has to be on PATH to start an image without unpacking it: NVIDIA/enroot, doc/cmd/start.md."""
_RC = b'#!/bin/sh\ncd "$1" && shift && exec "$@"\n'
"""Runs in place of the image's entry point: NVIDIA/enroot, doc/cmd/start.md."""


def enroot_argv(
    enroot: str, image: str, rc: str, names: Iterable[str], cwd: str, node: NodeFacts, argv: list[str]
) -> list[str]:
    """Return the command line of a rank; ``names`` are its variables, whose values enroot takes from its own.

    ``rc`` is the script that changes to ``cwd`` and becomes the command. Mounts are lines of an fstab, with
    colons between the fields.
    """
    paths = [path.replace("\\", "\\134").replace(" ", "\\040") for path in (*node.folders, *node.files)]
    mounts = [f"{path}:{path}:none:x-create=auto,rbind" for path in paths]
    return [
        *(enroot, "start"),
        *(word for mount in mounts for word in ("--mount", mount)),
        *(word for name in sorted(names) if _is_name(name) for word in ("--env", name)),
        *("--rc", rc, image, cwd, *argv),
    ]


def _is_name(name: str) -> bool:
    """Return whether enroot takes a variable of this name: it refuses bash's functions of the node."""
    return name.isidentifier() and name.isascii()


def _is_altered(value: str) -> bool:
    """Return whether enroot would pass on another value: it keeps variables as lines, and strips quotes."""
    return "\n" in value or (len(value) > 1 and value[0] in "\"'" and value.rstrip()[-1] in "\"'")


class Enroot(Container):
    """Ranks in enroot: descendants of the runner, which end and exit as bare ranks do."""

    name = "enroot"
    passes_descriptors = False

    def __init__(self, spec: RunnerSpec, node: NodeFacts) -> None:
        super().__init__(spec, node)
        self._given = {**spec["env"], **spec["user_env"]}

    def inherited(self, node: Mapping[str, str]) -> dict[str, str]:
        """Return what a rank inherits, with the variables by which enroot's hooks give it devices
        (NVIDIA/enroot, doc/standard-hooks.md)."""
        wanted = {**_NO_SINGLE_COPY}
        if self.node.has_gpus:
            wanted.update(NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
        if self.node.devices:
            wanted.update(MELLANOX_VISIBLE_DEVICES="all")
        return {**wanted, **super().inherited(node)}

    def ready(self, run: Run, keep_alive: Callable[[int], object]) -> None:
        """Write the script that ranks start by. Raise Unfit without enroot or the image, and for variables
        and folders that enroot does not pass on."""
        del run, keep_alive
        path = os.environ.get("PATH", os.defpath)
        self._enroot = which("enroot", path)
        self._file, self._rc = f"{self.image}/image.sqsh", f"{self.job_folder}/rc"
        missing = [name for name in _PROGRAMS if not which(name, path)]
        if missing:
            raise Unfit(
                f"runtime = enroot: {', '.join(missing)}: command not found; choose an image of the nodes "
                "that has it"
            )
        refuse_colons(self.name, self.node)
        for name, value in {**self.inherited(os.environ), **self._given}.items():
            if _is_name(name) and _is_altered(value):
                raise Unfit(
                    f"runtime = enroot: environment variable {name}: enroot changes values of several lines "
                    "or in quotes; change it, or use --runtime docker"
                )
        if not os.path.exists(self._file):
            raise Unfit(not_here(self._file, os.path.basename(self.image)))
        replace_file(self._rc, _RC, mode=0o700, outlives_machine=False)

    def command(
        self, argv: list[str], env: dict[str, str], cwd: str, rank: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return enroot's command line; the rank's variables are its own.

        Without a login shell, which would set PATH as the image's /etc/profile does.
        """
        del rank
        argv = enroot_argv(self._enroot, self._file, self._rc, env, cwd, self.node, argv)
        return argv, {**env, "ENROOT_LOGIN_SHELL": "no"}

    def spared(self) -> set[int]:
        """Return the processes that hold the image mounted, which a rank needs to handle SIGTERM."""
        return {pid for pid in self.list_processes() if os.path.basename(_program(pid)) in _MOUNTERS}


def _program(pid: int) -> str:
    """Return the first word of a process's command line; "" where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsdecode(file.read().partition(b"\0")[0])
    except OSError:
        return ""
