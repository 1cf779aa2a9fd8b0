"""What a rank is started in, and with that the command line of a rank."""

from __future__ import annotations

from typing import Protocol

from launch.launchers.base import Spec
from launch.remote.base.files import python_folder

__all__ = ["RUNTIMES", "Bare", "Runtime"]


class Runtime(Protocol):
    """One thing that ranks can be started in."""

    def argv(self, spec: Spec) -> tuple[str, ...]:
        """Return what each rank runs, before a launcher's variables in it are filled in on its node."""


class Bare:
    """The node itself."""

    def argv(self, spec: Spec) -> tuple[str, ...]:
        """Return the command, under the interpreter that its first word's ending asks for."""
        first = spec.command[0]
        if spec.shell:
            return ("bash", "-c", first)
        if first.endswith(".py"):
            return ("python" if python_folder(spec.python) else spec.python, "-u", *spec.command)
        return ("bash", *spec.command) if first.endswith(".sh") else spec.command


RUNTIMES: dict[str, Runtime] = {"bare": Bare()}
