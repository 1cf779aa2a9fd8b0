"""``Workspace`` and ``ComputeTarget``: in Ranklift, a project's folder and its stacks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.azureml.dataset import Datastore
from launch.azureml.exceptions import UserErrorException
from launch.azureml.missing import Element

if TYPE_CHECKING:
    from launch.azureml.run import Run

__all__ = ["AmlCompute", "ComputeTarget", "Workspace", "project_folder"]

_PLACES = (".azureml/config.json", "aml_config/config.json", "config.json")


class ComputeTarget(Element):
    """The name of a stack, whose existence is checked when a run is submitted."""

    _known_as = "ComputeTarget"

    def __init__(self, workspace: Any, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self.type = "AmlCompute"
        self._complete = True


class AmlCompute(ComputeTarget):
    """:class:`ComputeTarget` under azureml-core's other name."""


class _Targets(Mapping[str, ComputeTarget]):
    """A mapping that has every name, as an old one may stand for a stack; it lists the project's stacks."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def __getitem__(self, name: str) -> ComputeTarget:
        return ComputeTarget(self._workspace, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        project = project_folder()
        kept = sorted((project / ".ranklift").glob("*/inventory.json")) if project else ()
        return iter([path.parent.name for path in kept])

    def __len__(self) -> int:
        return len(list(iter(self)))


class Workspace(Element):
    """The project, which the fab tasks find by themselves; Azure ML's names are stored without an effect."""

    def __init__(
        self,
        subscription_id: str | None,
        resource_group: str | None,
        workspace_name: str,
        auth: Any = None,
        _location: Any = None,
        _disable_service_check: bool = False,
        _workspace_id: Any = None,
        sku: str = "basic",
        tags: Any = None,
        _cloud: str = "AzureCloud",
    ) -> None:
        self.name = workspace_name
        self.subscription_id = subscription_id
        self.resource_group = resource_group
        self._complete = True

    @staticmethod
    def from_config(
        path: str | None = None, auth: Any = None, _logger: Any = None, _file_name: str | None = None
    ) -> Workspace:
        """Return the workspace that a config.json names, else one with the project's name.

        The file is searched as in Azure ML, in ``path`` (the current folder) and above. Raise
        UserErrorException for an unreadable file, and when ``path`` does not exist.
        """
        start = Path(path or ".").expanduser().resolve()
        if not start.exists():
            remedy = "name a config.json or the folder to begin in"
            raise UserErrorException("path", str(path), "is not there", remedy)
        found = start if start.is_file() else _find(start, _file_name)
        if found is None:
            project = project_folder()
            return Workspace(None, None, (project or Path.cwd()).name)
        try:
            read = json.loads(found.read_text())
            return Workspace(read.get("subscription_id"), read.get("resource_group"), read["workspace_name"])
        except (OSError, ValueError, KeyError, AttributeError, RecursionError):
            remedy = 'write {"workspace_name": "…"}, or remove it'
            raise UserErrorException("path", str(found), "is not a workspace's config.json", remedy) from None

    @staticmethod
    def get(
        name: str,
        auth: Any = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        location: str | None = None,
        cloud: str = "AzureCloud",
        id: Any = None,
    ) -> Workspace:
        """Return the project under ``name``."""
        return Workspace(subscription_id, resource_group, name)

    @property
    def compute_targets(self) -> Mapping[str, ComputeTarget]:
        """Compute targets by name: every name has one, and the project's stacks are listed."""
        return _Targets(self)

    def get_default_datastore(self) -> Datastore:
        """Return ``workspaceblobstore``: the container ``data`` of the stack's account."""
        return Datastore(self)

    def get_run(self, run_id: str) -> Run:
        """Return a run that was submitted earlier. Raise UserErrorException when no node has it."""
        from launch.azureml.experiment import Experiment
        from launch.azureml.run import Run

        run = Run(Experiment(self, "unknown", _skip_name_validation=True), run_id)
        run.experiment.name = run.record().get("experiment") or "unknown"
        return run


def _find(start: Path, file_name: str | None) -> Path | None:
    for place in _PLACES:
        wanted = Path(place).with_name(file_name or Path(place).name)
        for folder in (start, *start.parents):
            if (folder / wanted).is_file():
                return folder / wanted
    return None


def project_folder() -> Path | None:
    """Return the project's folder: RANKLIFT_PROJECT, else the nearest around the current folder.

    Return None without one. A fabfile may name another project, which commands then use.
    """
    named = os.environ.get("RANKLIFT_PROJECT")
    if named:
        return Path(named).expanduser()
    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            text = (folder / "Pulumi.yaml").read_text()
        except OSError:
            continue
        if re.search(r"^name:\s*[\"']?ranklift[\"']?\s*$", text, re.MULTILINE):
            return folder
    return None
