"""Data of one resource type: model, children, Pulumi's names, what cannot change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rehearsal.arm.core.errors import ArmError, change_not_allowed
from rehearsal.arm.core.models import model

__all__ = ["API_VERSIONS", "GROUP", "InUse", "ResourceType"]

API_VERSIONS = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.Compute": "2024-11-01",
    "Microsoft.ContainerRegistry": "2023-01-01-preview",
    "Microsoft.Insights": "2022-06-01",
    "Microsoft.ManagedIdentity": "2023-01-31",
    "Microsoft.Monitor": "2023-04-03",
    "Microsoft.Network": "2024-05-01",
    "Microsoft.Resources": "2024-03-01",
    "Microsoft.Storage": "2024-01-01",
    "Microsoft.VirtualMachineImages": "2024-02-01",
}
"""Default API version of each provider in pulumi-azure-native 3.29.0; a type may have its own."""


@dataclass(frozen=True, slots=True)
class InUse:
    """Azure's refusal to delete a resource that another one refers to."""

    code: str
    message: str = "{rid.short} cannot be deleted because it is in use by the following resources: {holder}."
    """Format of the resource's id, ``rid``, and the ``holder``'s."""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource type, or a child type such as subnets, which lives in a list of its parent's body."""

    type: str
    """E.g. ``Microsoft.Network/virtualNetworks``."""
    model_name: str
    """For :func:`~rehearsal.arm.core.models.model`: the body of a PUT."""
    names: tuple[str, ...]
    """Pulumi's input for each name in the id, outermost first; ``=default`` for a fixed name."""
    patch_model: str = "network.TagsObject"
    shown_model: str = ""
    """Model of a GET, where it is another one."""
    pulumi_type: str | None = None
    """Pulumi's type token where the model's name does not give it; empty when the emulation offers none."""
    children: Mapping[str, str] = field(default_factory=dict)
    """Type of the embedded children in each list under ``properties``."""
    immutable: tuple[str, ...] = ()
    """Paths, as Pulumi's inputs have them, that Azure never changes on a resource that exists."""
    immutable_error: Callable[[str], ArmError] = change_not_allowed
    """Azure's refusal to change the immutable property at a path."""
    merges: bool = False
    """A PUT leaves the properties that it lacks as they are."""
    keeps: tuple[str, ...] = ()
    """Lists under ``properties`` that a PUT without them leaves as they are; other lists are replaced."""
    in_use: InUse | None = None
    """None: a reference from another resource does not stop a deletion."""
    shows_state: bool = True
    """A GET shows its ``provisioningState``."""
    tracked: bool = True
    """Has a location and tags of its own."""
    embedded: bool = False
    """Lives in its parent's body."""
    loose: tuple[str, ...] = ()
    """Names under ``properties`` whose references do not protect their target from deletion."""
    extends: bool = False
    """Exists below any scope: a subscription, a group or a resource."""
    singleton: bool = False
    """Exists with its parent, and is never created or deleted by itself."""
    sync: bool = False
    """Complete when the request is answered."""
    sync_later: bool = False
    """Creation is long-running; changes and deletion are complete when the request is answered."""
    created: int = 201
    """HTTP status of the answer to the first PUT; 202 is polled through ``Location`` only."""
    version: str = ""
    """Pulumi's default API version, where it is not the provider's."""
    before_parent: bool = False
    """Must be deleted before its parent; other types are deleted with their parent."""
    group_rank: int = 0
    """Order in which a group is emptied, the highest first: users before what they use."""
    guid_name: str = ""
    """Name under ``properties`` of the resource's GUID in a GET, e.g. ``resourceGuid``."""
    referrers: str = ""
    """List under ``properties``, in a GET, of the resources that refer to this one."""

    @property
    def model(self) -> Any:
        """Microsoft's model of it."""
        return model(self.model_name)

    @property
    def shown(self) -> Any:
        """Microsoft's model of the answer to a GET."""
        return model(self.shown_model or self.model_name)

    @property
    def token(self) -> str:
        """Pulumi's type token; empty when the emulation offers none."""
        if self.pulumi_type is not None:
            return self.pulumi_type
        return f"azure-native:{(self.shown_model or self.model_name).replace('.', ':')}"

    @property
    def namespace(self) -> str:
        """The resource provider."""
        return self.type.partition("/")[0]

    @property
    def collection(self) -> str:
        """The last part of the type."""
        return self.type.rpartition("/")[2]

    @property
    def api_version(self) -> str:
        """The API version that Pulumi asks for."""
        return self.version or API_VERSIONS[self.namespace]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Pulumi's inputs that stand in the id and not in the body, the name of the resource last."""
        if self.type == "Microsoft.Resources/resourceGroups":
            return self.names
        own = tuple(n for n in self.names if not n.startswith("="))
        return ("scope" if self.extends else "resourceGroupName", *own)


GROUP = ResourceType(
    "Microsoft.Resources/resourceGroups",
    "resources.ResourceGroup",
    ("resourceGroupName",),
    patch_model="resources.ResourceGroupPatchable",
    immutable=("managedBy",),
)
