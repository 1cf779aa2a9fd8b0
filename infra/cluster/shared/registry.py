"""The kinds of shared storage, by the value of ``ranklift:nfs`` that chooses them."""

from __future__ import annotations

from infra.cluster.shared.base import SharedStorage
from infra.cluster.shared.files import AzureFiles
from infra.cluster.shared.nfs_vm import NfsVm

__all__ = ["KINDS"]

KINDS: dict[str, SharedStorage] = {kind.name: kind for kind in (AzureFiles(), NfsVm())}
