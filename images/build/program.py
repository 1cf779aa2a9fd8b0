"""Gallery, image definition, the builder's identity with its rights, and the template that runs at once."""

from __future__ import annotations

import uuid
from typing import Any

import pulumi
from pulumi_azure_native.authorization._inputs import PermissionArgs
from pulumi_azure_native.authorization.role_assignment import RoleAssignment
from pulumi_azure_native.authorization.role_definition import RoleDefinition
from pulumi_azure_native.compute._enums import OperatingSystemStateTypes, OperatingSystemTypes
from pulumi_azure_native.compute._inputs import GalleryImageIdentifierArgs
from pulumi_azure_native.compute.gallery import Gallery
from pulumi_azure_native.compute.gallery_image import GalleryImage
from pulumi_azure_native.managedidentity.user_assigned_identity import UserAssignedIdentity
from pulumi_azure_native.resources.resource_group import ResourceGroup
from pulumi_azure_native.virtualmachineimages._enums import AutoRunState, ResourceIdentityType
from pulumi_azure_native.virtualmachineimages._inputs import (
    ImageTemplateAutoRunArgs,
    ImageTemplateIdentityArgs,
    ImageTemplatePlatformImageSourceArgs,
    ImageTemplateSharedImageDistributorArgs,
    ImageTemplateShellCustomizerArgs,
    ImageTemplateVmProfileArgs,
    PlatformImagePurchasePlanArgs,
    TargetRegionArgs,
)
from pulumi_azure_native.virtualmachineimages.virtual_machine_image_template import (
    VirtualMachineImageTemplate,
)

from images.build.config import ImageConfig
from images.image_builders import shell_customizer
from images.steps import steps

__all__ = ["ACTIONS", "TAG", "NodeImage"]

TAG = "ranklift-images-stack"
"""On everything of a stack, with its name as value. Not the clusters' tag: an image outlives them."""

ACTIONS = (
    "Microsoft.Compute/galleries/read",
    "Microsoft.Compute/galleries/images/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/galleries/images/versions/write",
    "Microsoft.Compute/images/write",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/images/delete",
)
"""What Image Builder's identity may do in the one resource group (azvmimagebuilder, aibRoleImageCreation)."""

_UUIDS = uuid.UUID("6a6d6d0c-0f5e-5f0b-8a55-0d9a35a0bb31")


class NodeImage(pulumi.ComponentResource):
    """One image, by its size, Ubuntu and version.

    Azure runs a template as soon as it is there (``autoRun``) and says that it is there before it has run:
    ``up`` is through in minutes, the image comes an hour or more later. ``outputs["progress"]`` is the
    command that says how far it is. A version is made once: whoever changes a setting gives a new one.

    Pulumi knows of no version, and a gallery with versions is not deleted: gallery and definition go with
    their resource group, which ``destroy`` deletes whole.
    """

    outputs: dict[str, pulumi.Input[object]]

    def __init__(self, stack: str, config: ImageConfig, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the image of ``stack`` with everything it takes."""
        super().__init__("ranklift:images:NodeImage", stack, None, opts)
        self._stack, self._config = stack, config
        self._tags = {**config.tags, TAG: stack}
        self._child = pulumi.ResourceOptions(parent=self)
        self._group = ResourceGroup(
            "group",
            resource_group_name=f"ranklift-images-{stack}",
            location=config.location,
            tags=self._tags,
            opts=self._child,
        )
        self._common: dict[str, Any] = {
            "resource_group_name": self._group.name,
            "location": config.location,
            "tags": self._tags,
        }
        definition = self._build_definition()
        version_id = pulumi.Output.concat(definition.id, "/versions/", config.version)
        template = f"{config.definition}-{config.version}"
        identity = self._build_identity()
        self._build_template(template, version_id, *identity)
        self.outputs = {
            "image": version_id,
            "template": template,
            "progress": pulumi.Output.format(
                "az image builder show -g {0} -n {1} --query lastRunStatus", self._group.name, template
            ),
        }
        self.register_outputs(self.outputs)

    def _build_definition(self) -> GalleryImage:
        config = self._config
        kept = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(retain_on_delete=True))
        gallery = Gallery(
            "gallery",
            gallery_name="ranklift_" + self._stack.replace("-", "_"),
            description="Images of InfiniBand nodes",
            **self._common,
            opts=kept,
        )
        return GalleryImage(
            "definition",
            gallery_name=gallery.name,
            gallery_image_name=config.definition,
            identifier=GalleryImageIdentifierArgs(
                publisher="ranklift", offer=config.recipe.size, sku=f"ubuntu{config.recipe.ubuntu}"
            ),
            os_type=OperatingSystemTypes.LINUX,
            os_state=OperatingSystemStateTypes.GENERALIZED,
            hyper_v_generation="V2",
            architecture=config.recipe.cpu_arch,
            **self._common,
            opts=kept,
        )

    def _build_identity(self) -> tuple[UserAssignedIdentity, RoleAssignment]:
        identity = UserAssignedIdentity(
            "builder",
            resource_name_=f"ranklift-images-{self._stack}-builder",
            **self._common,
            opts=self._child,
        )
        role = RoleDefinition(
            "builder-role",
            role_definition_id=self._uuid("role"),
            role_name=self._uuid("role").apply(lambda own: f"ranklift-images-{self._stack}-{own[:8]}"),
            role_type="CustomRole",
            description="Lets Azure Image Builder put an image into one gallery.",
            permissions=[PermissionArgs(actions=list(ACTIONS), not_actions=[])],
            assignable_scopes=[self._group.id],
            scope=self._group.id,
            opts=self._child,
        )
        right = RoleAssignment(
            "builder-right",
            role_assignment_name=self._uuid("right"),
            principal_id=identity.principal_id,
            # Said, so that Azure does not look an identity up that its directory may not show yet.
            principal_type="ServicePrincipal",
            role_definition_id=role.id,
            scope=self._group.id,
            opts=self._child,
        )
        return identity, right

    def _build_template(
        self, name: str, version_id: pulumi.Output[str], identity: UserAssignedIdentity, right: RoleAssignment
    ) -> None:
        config = self._config
        plan = config.base.plan
        VirtualMachineImageTemplate(
            "template",
            image_template_name=name,
            auto_run=ImageTemplateAutoRunArgs(state=AutoRunState.AUTO_RUN_ENABLED),
            build_timeout_in_minutes=config.minutes,
            identity=ImageTemplateIdentityArgs(
                type=ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[identity.id]
            ),
            vm_profile=ImageTemplateVmProfileArgs(vm_size=config.build_size, os_disk_size_gb=config.disk_gib),
            source=ImageTemplatePlatformImageSourceArgs(
                type="PlatformImage",
                publisher=config.base.publisher,
                offer=config.base.offer,
                sku=config.base.sku,
                version=config.base.version,
                plan_info=PlatformImagePurchasePlanArgs(
                    plan_name=plan.name, plan_product=plan.product, plan_publisher=plan.publisher
                )
                if plan
                else None,
            ),
            customize=[
                ImageTemplateShellCustomizerArgs(**shell_customizer(step)) for step in steps(config.recipe)
            ],
            distribute=[
                ImageTemplateSharedImageDistributorArgs(
                    type="SharedImage",
                    run_output_name="node",
                    gallery_image_id=version_id,
                    target_regions=[
                        TargetRegionArgs(
                            name=config.location, replica_count=1, storage_account_type="Standard_LRS"
                        )
                    ],
                    artifact_tags=self._tags,
                )
            ],
            **self._common,
            opts=pulumi.ResourceOptions.merge(
                self._child,
                pulumi.ResourceOptions(
                    depends_on=[right],
                    # Azure changes no template: the build of another one is another template.
                    replace_on_changes=["*"],
                    delete_before_replace=True,
                ),
            ),
        )

    def _uuid(self, purpose: str) -> pulumi.Output[str]:
        return self._group.id.apply(
            lambda group: str(uuid.uuid5(_UUIDS, f"{group.split('/')[2].lower()}/{self._stack}/{purpose}"))
        )
