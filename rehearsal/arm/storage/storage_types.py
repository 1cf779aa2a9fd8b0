"""Storage accounts with their services, containers and shares."""

from __future__ import annotations

from rehearsal.arm.core.resource_type import Kind

__all__ = ["ACCOUNTS", "BLOB_SERVICES", "CONTAINERS", "FILE_SERVICES", "SHARES", "STORAGE"]

ACCOUNTS = "Microsoft.Storage/storageAccounts"
BLOB_SERVICES = f"{ACCOUNTS}/blobServices"
CONTAINERS = f"{BLOB_SERVICES}/containers"
FILE_SERVICES = f"{ACCOUNTS}/fileServices"
SHARES = f"{FILE_SERVICES}/shares"

STORAGE = (
    Kind(
        ACCOUNTS,
        "storage.StorageAccountCreateParameters",
        "azure-native:storage:StorageAccount",
        ("accountName",),
        patch_model="storage.StorageAccountUpdateParameters",
        shown_model="storage.StorageAccount",
        immutable=(
            "kind",
            "extendedLocation",
            "isHnsEnabled",
            "enableNfsV3",
            "encryption.requireInfrastructureEncryption",
        ),
        loose=("networkAcls",),
        sync_later=True,
        created=202,
    ),
    Kind(
        BLOB_SERVICES,
        "storage.BlobServiceProperties",
        "azure-native:storage:BlobServiceProperties",
        ("accountName", "blobServicesName"),
        tracked=False,
        singleton=True,
        sync=True,
    ),
    Kind(
        CONTAINERS,
        "storage.BlobContainer",
        "azure-native:storage:BlobContainer",
        ("accountName", "=default", "containerName"),
        patch_model="storage.BlobContainer",
        immutable=("defaultEncryptionScope", "denyEncryptionScopeOverride"),
        tracked=False,
        sync=True,
    ),
    Kind(
        FILE_SERVICES,
        "storage.FileServiceProperties",
        "azure-native:storage:FileServiceProperties",
        ("accountName", "fileServicesName"),
        tracked=False,
        singleton=True,
        sync=True,
    ),
    Kind(
        SHARES,
        "storage.FileShare",
        "azure-native:storage:FileShare",
        ("accountName", "=default", "shareName"),
        patch_model="storage.FileShare",
        immutable=("enabledProtocols",),
        tracked=False,
        sync=True,
    ),
)
