"""Protocol of the data plane of storage accounts.

Without Azurite it is :class:`NoBlobs`: accounts and containers exist, nothing can be put into them, and the
log says so.
"""

from __future__ import annotations

import logging
from typing import Protocol

from rehearsal.arm.core.records import Record

__all__ = ["Blobs", "NoBlobs"]

_log = logging.getLogger("rehearsal.storage")


class Blobs(Protocol):
    """Data plane of the storage accounts."""

    async def open(self, account: Record) -> dict[str, str]:
        """Start the account's blob service; return its endpoints by service, empty when there is none."""

    async def close_account(self, account: Record) -> None:
        """Stop the account's blob service and remove what is in it."""

    async def create_container(self, account: Record, name: str) -> None:
        """Create a container; one that exists is fine."""

    async def delete_container(self, account: Record, name: str) -> None:
        """Delete a container with what is in it."""

    async def close(self) -> None:
        """Stop every blob service."""


class NoBlobs:
    """No data plane; a warning for each account."""

    async def open(self, account: Record) -> dict[str, str]:
        """Warn that the account has no data plane."""
        _log.warning(
            "storage account %s has no data plane here: Azurite is not installed (tools/setup --azure); "
            "its containers exist by name only",
            account.id.name,
        )
        return {}

    async def close_account(self, account: Record) -> None:
        """Do nothing: no service runs."""

    async def create_container(self, account: Record, name: str) -> None:
        """Do nothing: the container exists in the resource manager alone."""

    async def delete_container(self, account: Record, name: str) -> None:
        """Do nothing: the container existed in the resource manager alone."""

    async def close(self) -> None:
        """Do nothing: no service runs."""
