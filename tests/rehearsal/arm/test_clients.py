"""Microsoft's own clients of storage, identity, roles and images, each with its way to wait."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError
from azure.core.pipeline.policies import HeadersPolicy
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.imagebuilder import ImageBuilderClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from azure.mgmt.privatedns import PrivateDnsManagementClient
from azure.mgmt.storage import StorageManagementClient

from tests.rehearsal.arm.auth.test_roles import BLOBS, CONTRIBUTOR, assign, make_identity
from tests.rehearsal.arm.compute.test_galleries import GALLERY, IMAGE, image, template
from tests.rehearsal.arm.network.test_private_link import disk
from tests.rehearsal.arm.storage.test_accounts import account
from tests.rehearsal.bodies import build
from tests.rehearsal.doubles import AUTHORIZED, BASE, SUBSCRIPTION_ID, Endpoint

HERE = {"location": "westeurope"}


def client(cls: Any, azure: Endpoint) -> Any:
    """One of Microsoft's clients, with the operator's token."""
    common: dict[str, Any] = {"authentication_policy": HeadersPolicy(AUTHORIZED), "credential_scopes": ["x"]}
    return cls(object(), SUBSCRIPTION_ID, base_url=azure.url, **common)


@pytest.fixture
def group(azure: Endpoint) -> Endpoint:
    assert azure.ask("PUT", BASE, HERE)[0] == 201
    return azure


def test_a_storage_account_from_beginning_to_end(group: Endpoint) -> None:
    with client(StorageManagementClient, group) as storage:
        made = storage.storage_accounts.begin_create("lab", "labstore1", account()).result(30)
        assert made.provisioning_state == "Succeeded"
        storage.blob_services.set_service_properties(
            "lab", "labstore1", {"properties": {"isVersioningEnabled": True}}
        )
        assert storage.blob_services.get_service_properties("lab", "labstore1").is_versioning_enabled
        storage.blob_containers.create("lab", "labstore1", "data", {})
        assert [c.name for c in storage.blob_containers.list("lab", "labstore1")] == ["data"]
        with pytest.raises(ResourceExistsError, match="already taken"):
            group.ask("PUT", BASE.replace("/lab", "/other"), HERE)
            storage.storage_accounts.begin_create("other", "labstore1", account())
        changed = storage.storage_accounts.update("lab", "labstore1", {"tags": {"a": "b"}})
        assert changed.tags == {"a": "b"}
        assert len(storage.storage_accounts.list_keys("lab", "labstore1").keys_property) == 2
        storage.blob_containers.delete("lab", "labstore1", "data")
        storage.storage_accounts.delete("lab", "labstore1")
        assert list(storage.storage_accounts.list()) == []


def test_an_identity_with_a_role(group: Endpoint) -> None:
    with (
        client(ManagedServiceIdentityClient, group) as msi,
        client(AuthorizationManagementClient, group) as roles,
    ):
        identity = msi.user_assigned_identities.create_or_update("lab", "nodes", HERE)
        name = str(uuid.uuid4())
        wanted = {"properties": {"principalId": identity.principal_id, "roleDefinitionId": BLOBS}}
        made = roles.role_assignments.create(BASE, name, wanted)
        assert (made.scope, made.principal_type) == (BASE, "ServicePrincipal")
        (listed,) = roles.role_assignments.list_for_scope(BASE, filter="atScope()")
        assert listed.id == made.id
        with pytest.raises(HttpResponseError, match="RoleAssignmentExists"):
            roles.role_assignments.create(BASE, str(uuid.uuid4()), wanted)
        (blobs,) = roles.role_definitions.list(BASE, filter="roleName eq 'Storage Blob Data Contributor'")
        assert blobs.id == BLOBS
        roles.role_assignments.delete(BASE, name)
        msi.user_assigned_identities.delete("lab", "nodes")


def test_a_private_zone(group: Endpoint) -> None:
    with client(PrivateDnsManagementClient, group) as dns:
        zones = dns.private_zones
        zones.begin_create_or_update(
            "lab", "privatelink.blob.core.windows.net", {"location": "global"}
        ).result(30)
        assert [z.name for z in zones.list_by_resource_group("lab")] == ["privatelink.blob.core.windows.net"]
        zones.begin_delete("lab", "privatelink.blob.core.windows.net").result(30)
        assert list(zones.list()) == []


def test_a_disk(group: Endpoint) -> None:
    disks = group.clients().compute.disks
    made = disks.begin_create_or_update("lab", "d0", disk()).result(30)
    assert (made.disk_state, made.disk_size_gb) == ("Unattached", 512)
    disks.begin_delete("lab", "d0").result(30)
    assert list(disks.list()) == []


def test_who_saw_a_scale_set_before_it_changed_does_not_change_it(azure: Endpoint) -> None:
    build(azure, 2)
    sets = azure.clients().compute.virtual_machine_scale_sets
    (name,) = [one.name for one in sets.list("lab")]

    def resize(capacity: int, etag: str) -> None:
        seen = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        sets.begin_update("lab", name, {"sku": {"capacity": capacity}}, **seen).result(30)

    before = sets.get("lab", name).etag
    assert before == sets.get("lab", name).etag
    resize(3, before)
    with pytest.raises(ResourceModifiedError, match="PreconditionFailed"):
        resize(0, before)
    grown = sets.get("lab", name)
    assert (grown.sku.capacity, grown.etag != before) == (3, True)
    sets.begin_delete_instances("lab", name, {"instanceIds": ["0"]}).result(30)
    with pytest.raises(ResourceModifiedError, match="PreconditionFailed"):
        resize(0, grown.etag)
    resize(0, sets.get("lab", name).etag)
    assert sets.get("lab", name).sku.capacity == 0


def test_an_image_is_built(group: Endpoint) -> None:
    principal = make_identity(group)["principalId"]
    compute = group.clients().compute
    compute.galleries.begin_create_or_update("lab", "images", HERE).result(30)
    compute.gallery_images.begin_create_or_update("lab", "images", "hpc", image()).result(30)
    assert assign(group, principal, CONTRIBUTOR, f"{BASE}/{GALLERY}")[0] == 201
    with client(ImageBuilderClient, group) as builder:
        templates = builder.virtual_machine_image_templates
        templates.begin_create_or_update("lab", "hpc", template()).result(30)
        templates.begin_run("lab", "hpc").result(30)
        assert templates.get("lab", "hpc").last_run_status.run_state == "Succeeded"
        (output,) = templates.list_run_outputs("lab", "hpc")
        assert f"{BASE}/{IMAGE}/versions/" in output.artifact_id
    (version,) = compute.gallery_image_versions.list_by_gallery_image("lab", "images", "hpc")
    assert version.id == output.artifact_id
