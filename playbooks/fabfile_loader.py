"""Loads the fabfile without letting the files beside it stand in for modules of this program."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from invoke.loader import FilesystemLoader
from invoke.tasks import Task

from launch.errors import InputError
from launch.project_folder import DISTRUSTED, is_trusted
from playbooks.cli.invoke_patches import is_ours

__all__ = ["FabfileLoader"]

_REMEDY = (
    'the project is named by ns.configure({"ranklift": {"project": …}}) in the fabfile, or RANKLIFT_PROJECT'
)


class _Source(SourceFileLoader):
    """Runs what the source says: a repository's ``__pycache__`` may hold anything (PEP 552, unchecked)."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


_LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES))


class _InPackages(FileFinder):
    """Finds what a fabfile that is a package imports from itself, and nothing by a name without a dot."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        return super().find_spec(fullname, target) if "." in fullname else None


class _Beside:
    """Finds the modules beside the fabfile, after all other finders: those of editable installations come
    behind the module path."""

    def __init__(self, folder: str) -> None:
        self._folder, self._modules = folder, FileFinder(folder, *_LOADERS)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return self._modules.find_spec(fullname) if path is None else None

    def hook(self, path: str) -> FileFinder:
        """Return a finder for a package beside the fabfile; raise ImportError for other paths, such as a
        virtual environment there."""
        above = [entry for entry in (*sys.path, self._folder) if Path(path).is_relative_to(entry)]
        if path == self._folder or max(above, key=len, default="") != self._folder:
            raise ImportError(path)
        return FileFinder(path, *_LOADERS)


class FabfileLoader(FilesystemLoader):
    """Invoke's loader, with the fabfile's folder behind all other places of modules instead of first.

    A ``yaml.py`` of a repository would be run in the place of the module that every task imports. The folder
    is left out again where the fabfile has no task of its own, which could still import from it.
    """

    def find(self, name: str) -> ModuleSpec | None:
        """Return the fabfile, to be run from its source; None where there is none."""
        spec = super().find(name)
        if spec is not None and spec.origin is not None:
            spec.loader = _Source(spec.name, spec.origin)
        return spec

    def load(self, name: str | None = None) -> tuple[ModuleType, str]:
        """Return the fabfile's module and its folder.

        Raise :class:`~launch.errors.InputError` for one that another user may have put there, for settings
        beside it that are code, which Invoke would run, and for any where no task of its own could read them:
        they could choose another project.
        """
        spec = self.find(name or self.config.tasks.collection_name)
        origin = Path((spec and spec.origin) or "")
        folder = origin.parent
        if spec and self._start is None and not is_trusted(origin):
            remedy = f"if you trust it, give fab --search-root {folder.parent if spec.parent else folder}"
            raise InputError("file", str(origin), DISTRUSTED, remedy)
        settings = (folder.parent if spec and spec.parent else folder) / "fabric"
        _refuse(
            settings, (".py",), "is code that Fabric would run as its settings", "write them into fabric.yaml"
        )
        beside = _Beside(str(folder))
        if is_added := str(folder) not in sys.path:
            sys.path.append(str(folder))  # else Invoke puts it first
            sys.path_importer_cache[str(folder)] = _InPackages(str(folder), *_LOADERS)
            sys.meta_path.append(beside)
            sys.path_hooks.insert(0, beside.hook)
        module, parent = super().load(name)
        if is_added and not _has_own_tasks(module):
            sys.path.remove(str(folder))
            sys.meta_path.remove(beside)
            problem = "are settings of Fabric's, and the fabfile has no task of its own that could read them"
            _refuse(settings, (".yaml", ".yml", ".json"), problem, f"remove it; {_REMEDY}")
        return module, parent


def _refuse(settings: Path, suffixes: tuple[str, ...], problem: str, remedy: str) -> None:
    for suffix in suffixes:
        if os.path.lexists(file := settings.with_suffix(suffix)):
            raise InputError("file", str(file), problem, remedy)


def _has_own_tasks(module: ModuleType) -> bool:
    collection: Any = getattr(module, "ns", None) or getattr(module, "namespace", None)
    tasks = [one for one in vars(module).values() if isinstance(one, Task)]
    tasks += [collection[name] for name in collection.task_names] if collection is not None else []
    return not all(map(is_ours, tasks))
