"""``Workspace``: in Ranklift, a project's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.azureml.compute import ComputeTarget, Targets
from launch.azureml.dataset import Dataset, Datastore
from launch.azureml.environment import Environment
from launch.azureml.exceptions import NotSupported, UserErrorException
from launch.azureml.missing import Element
from launch.azureml.program import project_folder

if TYPE_CHECKING:
    from launch.azureml.run import Run

__all__ = ["Workspace"]

_PLACES = (".azureml/config.json", "aml_config/config.json", "config.json")


class _ByName(Mapping[str, Any]):
    """A mapping that has every name, which a run looks for when it is submitted; it cannot be listed."""

    def __init__(self, kind: str, make: Callable[[str], Any]) -> None:
        self._kind, self._make = kind, make

    def __getitem__(self, name: str) -> Any:
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        raise NotSupported(f"a list of the {self._kind}", "use them by their names")

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
        # Texts in any case: scripts print them with + between.
        self.name = workspace_name
        self.subscription_id = subscription_id or ""
        self.resource_group = resource_group or ""
        self.location = _location or ""
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
        return Workspace(subscription_id, resource_group, name, _location=location)

    def write_config(self, path: str | None = None, file_name: str | None = None) -> None:
        """Write ``.azureml/config.json`` below ``path`` (the current folder), for :meth:`from_config`."""
        config = Path(path or ".").expanduser() / ".azureml" / (file_name or "config.json")
        names = {
            "subscription_id": self.subscription_id,
            "resource_group": self.resource_group,
            "workspace_name": self.name,
        }
        try:
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(json.dumps(names, indent=4) + "\n")
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise UserErrorException("path", str(config), problem, "name another folder") from None

    def get_details(self) -> dict[str, Any]:
        """Return Azure ML's names, as given."""
        return {
            "name": self.name,
            "resourceGroup": self.resource_group,
            "location": self.location,
            "subscriptionId": self.subscription_id,
        }

    @property
    def datastores(self) -> Mapping[str, Datastore]:
        """Datastores by name."""
        return _ByName("datastores", partial(Datastore.get, self))

    @property
    def datasets(self) -> Mapping[str, Any]:
        """Datasets by name."""
        return _ByName("datasets", partial(Dataset.get_by_name, self))

    @property
    def environments(self) -> Mapping[str, Environment]:
        """Environments by name."""
        return _ByName("environments", partial(Environment.get, self))

    @property
    def compute_targets(self) -> Mapping[str, ComputeTarget]:
        """Compute targets by name: every name has one, and the project's stacks are listed."""
        return Targets(self)

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
