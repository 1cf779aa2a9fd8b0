"""The creation of a job's folder on a node, before the ranks start."""

from __future__ import annotations

import os

from launch.remote.base.paths import (
    UNWRITABLE,
    expand_home,
    python_folder,
    temporary_folder,
    unwritable,
    which,
)
from launch.remote.base.whole_file import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.payloads import RunnerSpec

__all__ = ["Unfit", "prepare_folder"]


class Unfit(Exception):
    """This node cannot run the job's ranks; ``reasons`` are for the job's user."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)
        super().__init__("; ".join(reasons))


def prepare_folder(spec: RunnerSpec) -> str:
    """Make the job's folder on this node, except the working folder; return the path.

    Raise :class:`Unfit` when a folder cannot be written.
    """
    folder = expand_home(spec["folder"])
    try:
        for path in ("/logs", "/outputs", *("/outputs/" + name for name in spec["outputs"])):
            os.makedirs(folder + path, mode=0o700, exist_ok=True)
        _make_python(folder, spec)
        if spec["hostfile"]:
            replace_file(folder + "/hostfile", spec["hostfile"].encode(), outlives_machine=False)
    except OSError as error:
        raise Unfit(UNWRITABLE.format(folder=folder, why=error.strerror)) from error
    reasons = unwritable(folder, temporary_folder())
    if reasons:
        raise Unfit(*reasons)
    return folder


def _make_python(folder: str, spec: RunnerSpec) -> None:
    """Make a ``python`` for a node without one; :mod:`launch.remote.node.rank_env` puts it last on PATH.

    It is a script, because a link would lose a virtual environment's packages.
    """
    path = spec["user_env"].get("PATH", os.environ.get("PATH", os.defpath))
    if python_folder(spec["python"]) or which("python", path):
        return
    found = which(expand_home(spec["python"]), path)
    if found:
        os.makedirs(folder + "/bin", mode=0o700, exist_ok=True)
        quoted = "'" + os.path.abspath(found).replace("'", "'\\''") + "'"
        script = f'#!/bin/sh\nexec {quoted} "$@"\n'.encode("utf-8", "surrogateescape")
        replace_file(folder + "/bin/python", script, mode=0o700, outlives_machine=False)
