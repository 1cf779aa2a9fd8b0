"""Enroot: a squashfs image, a user namespace for each rank, no daemon."""

from __future__ import annotations

import os

from launch.remote.base.files import replace_file, which
from launch.remote.node.prepare import Unfit
from launch.remote.node.runtimes.container import Container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from launch.remote.node.runtimes.container import Run
    from launch.remote.node.runtimes.node_facts import NodeFacts

__all__ = ["Enroot", "enroot_argv"]

_NO_SINGLE_COPY = {
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_btl_sm_single_copy_mechanism": "none",
}
"""For Open MPI 4 and 5: ranks in different user namespaces cannot read each other's memory."""
_RC = b'#!/bin/sh\ncd "$1" && shift && exec "$@"\n'
"""Runs in place of the image's entry point: NVIDIA/enroot, doc/cmd/start.md."""


def enroot_argv(
    enroot: str, image: str, rc: str, names: Iterable[str], cwd: str, node: NodeFacts, argv: list[str]
) -> list[str]:
    """Return the command line of a rank; ``names`` are its variables, whose values enroot takes from its own.

    ``rc`` is the script that changes to ``cwd`` and becomes the command. Mounts are lines of an fstab, with
    colons between the fields.
    """
    mounts = [f"{path}:{path}:none:x-create=auto,rbind" for path in (*node.folders, *node.files)]
    return [
        *(enroot, "start"),
        *(word for mount in mounts for word in ("--mount", mount)),
        *(word for name in sorted(names) for word in ("--env", name)),
        *("--rc", rc, image, cwd, *argv),
    ]


class Enroot(Container):
    """Ranks in enroot: descendants of the runner, which end and exit as bare ranks do."""

    name = "enroot"

    def inherited(self, node: Mapping[str, str]) -> dict[str, str]:
        """Return what a rank inherits, with the variables by which enroot's hooks give it devices
        (NVIDIA/enroot, doc/standard-hooks.md)."""
        wanted = {**_NO_SINGLE_COPY}
        if self.node.has_gpus:
            wanted.update(NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
        if self.node.devices:
            wanted.update(MELLANOX_VISIBLE_DEVICES="all")
        return {**wanted, **super().inherited(node)}

    def ready(self, run: Run, rest: Callable[[int], object]) -> None:
        """Write the script that ranks start by. Raise Unfit without enroot or the image."""
        del run, rest
        self._enroot = which("enroot", os.environ.get("PATH", os.defpath))
        self._file, self._rc = f"{self.image}/image.sqsh", f"{self.job_folder}/rc"
        if not self._enroot:
            raise Unfit("runtime = enroot: command not found; choose an image of the nodes that has it")
        if not os.path.exists(self._file):
            raise Unfit(f"{self._file} is not on this node: launch the job again")
        replace_file(self._rc, _RC, mode=0o700, outlives_machine=False)

    def command(
        self, argv: list[str], env: dict[str, str], cwd: str, rank: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return enroot's command line; the rank's variables are its own."""
        del rank
        return enroot_argv(self._enroot, self._file, self._rc, env, cwd, self.node, argv), env
