"""Loads the fabfile without letting the files beside it stand in for modules of this program."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from invoke.loader import FilesystemLoader
from invoke.tasks import Task

from launch.errors import InputError
from playbooks.cli.invoke_patches import is_ours

__all__ = ["FabfileLoader"]


class FabfileLoader(FilesystemLoader):
    """Invoke's loader, with the fabfile's folder last on the module path instead of first.

    A ``yaml.py`` of a repository would be run in the place of the module that every task imports. The folder
    leaves the path again where the fabfile has no task of its own, which could still import from it.
    """

    def load(self, name: str | None = None) -> tuple[ModuleType, str]:
        """Return the fabfile's module and its folder.

        Raise :class:`~launch.errors.InputError` for settings written in Python beside it: Invoke would run
        them.
        """
        spec = self.find(name or self.config.tasks.collection_name)
        folder = Path((spec and spec.origin) or "").parent
        settings = (folder.parent if spec and spec.parent else folder) / "fabric.py"
        if settings.exists():
            problem, remedy = "is code that Fabric would run as its settings", "write them into fabric.yaml"
            raise InputError("file", str(settings), problem, remedy)
        if is_added := str(folder) not in sys.path:
            sys.path.append(str(folder))
        module, parent = super().load(name)
        if is_added and not _has_own_tasks(module):
            sys.path.remove(str(folder))
        return module, parent


def _has_own_tasks(module: ModuleType) -> bool:
    collection: Any = getattr(module, "ns", None) or getattr(module, "namespace", None)
    tasks = [one for one in vars(module).values() if isinstance(one, Task)]
    tasks += [collection[name] for name in collection.task_names] if collection is not None else []
    return not all(map(is_ours, tasks))
