"""The check of a job's torch on a node with GPUs: whether it can use them, and what its ranks get."""

from __future__ import annotations

import os

from launch.remote.node import rank_recorder, torch_build

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.base.records import Checks

__all__ = ["TorchCheck"]


class TorchCheck:
    """A part of the check of modules, in the job's Python; ``folder`` is the job's on this node."""

    def __init__(self, checks: Checks, folder: str, *, in_image: bool) -> None:
        self._capability, self._in_image, self._folder = checks["gpu"], in_image, folder
        self._driver = torch_build.driver_version()
        self._is_recorded = bool(self._driver and checks.get("recorder"))

    @property
    def program(self) -> str:
        """What the job's Python runs; empty on a node without a driver."""
        program = torch_build.LOOK if self._driver else ""
        return program + rank_recorder.look(self._folder) if self._is_recorded else program

    def unfit(self, output: bytes) -> str:
        """Return why this torch cannot use the node's GPUs, by the program's output; "" when it can."""
        return torch_build.unfit_torch(output, self._capability, self._driver, in_image=self._in_image)

    def variables(self, output: bytes) -> dict[str, str]:
        """Return what ranks get for torch, under all else; report on stderr why they get less."""
        if not self._is_recorded:
            return {}
        version = torch_build.torch_version(output)
        found, why = rank_recorder.variables(output, version, self._folder)
        if why:
            os.write(2, f"{os.uname().nodename}: ranks have no flight recorder: {why}\n".encode())
        return found
