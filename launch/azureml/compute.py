"""``ComputeTarget`` and ``AmlCompute``: in Ranklift, a stack's name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from launch.azureml.exceptions import ComputeTargetException, NotSupported
from launch.azureml.missing import Element, named
from launch.azureml.notices import report
from launch.azureml.program import project_folder

__all__ = ["AmlCompute", "AmlComputeStatus", "ComputeTarget", "ComputeTargetException", "Targets"]


def __getattr__(name: str) -> Any:
    return named(__name__, name)


class ComputeTarget(Element):
    """The name of a stack, whose existence is checked when a run is submitted; always an AmlCompute."""

    _known_as = "ComputeTarget"

    def __new__(cls, *_: Any, **__: Any) -> ComputeTarget:
        """Return a target, as in azureml-core an instance of the kind that it is."""
        return super().__new__(AmlCompute if cls is ComputeTarget else cls)

    def __init__(self, workspace: Any, name: str) -> None:
        self.workspace = workspace
        self.name = name
        self.type = "AmlCompute"
        self._complete = True

    @staticmethod
    def create(workspace: Any, name: str, provisioning_configuration: Any) -> ComputeTarget:
        """Return the target of a stack that is there, as it is.

        Raise NotSupported for a stack that is not: nothing is created from a script.
        """
        stack = os.environ.get("RANKLIFT_STACK") or name
        if stack == name and name not in list(Targets(workspace)):
            size = getattr(provisioning_configuration, "vm_size", "") or "SIZE"
            steps = f"pulumi stack init {name}; pulumi config set ranklift:vmSize {size}; fab up"
            raise NotSupported(
                f"creation of the compute target {name} from a script",
                f"make a stack of that name first: `{steps}`; or set RANKLIFT_STACK to the stack to use",
            )
        report([f"compute target {name}: stack {stack} is used as it is; `fab scale` changes its nodes"])
        return AmlCompute(workspace, name)

    def wait_for_completion(self, show_output: bool = False, is_delete_operation: bool = False) -> None:
        """Return at once: `fab up` waits for a stack's nodes."""

    def get_status(self) -> AmlComputeStatus:
        """Return a status that names the command for it."""
        return AmlComputeStatus(self.name)


class AmlCompute(ComputeTarget):
    """The one kind of :class:`ComputeTarget`."""

    @staticmethod
    def provisioning_configuration(  # noqa: PLR0913, PLR0917
        vm_size: str = "",
        vm_priority: str = "dedicated",
        min_nodes: int = 0,
        max_nodes: int | None = None,
        idle_seconds_before_scaledown: int = 1800,
        admin_username: str | None = None,
        admin_user_password: str | None = None,
        admin_user_ssh_key: str | None = None,
        vnet_resourcegroup_name: str | None = None,
        vnet_name: str | None = None,
        subnet_name: str | None = None,
        tags: Any = None,
        description: str | None = None,
        remote_login_port_public_access: str = "NotSpecified",
        identity_type: str | None = None,
        identity_id: Any = None,
        location: str | None = None,
        enable_node_public_ip: bool = True,
    ) -> SimpleNamespace:
        """Return the size, which the error of :meth:`create` names."""
        return SimpleNamespace(vm_size=vm_size)

    def wait_for_completion(  # type: ignore[override]  # as in azureml-core
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: int = 25,
        is_delete_operation: bool = False,
    ) -> None:
        """Return at once: `fab up` waits for a stack's nodes."""


class AmlComputeStatus(Element):
    """The status of a target, which no attribute has."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._complete = True

    def serialize(self) -> dict[str, str]:
        """Return the command that shows the nodes."""
        return {"see": f"fab status --stack {self._name}"}


class Targets(Mapping[str, ComputeTarget]):
    """A mapping that has every name, as an old one may stand for a stack; it lists the project's stacks."""

    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace

    def __getitem__(self, name: str) -> ComputeTarget:
        return AmlCompute(self._workspace, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        project = project_folder()
        kept = sorted((project / ".ranklift").glob("*/inventory.json")) if project else ()
        return iter([path.parent.name for path in kept])

    def __len__(self) -> int:
        return len(list(iter(self)))
