"""The data plane of storage accounts, as the resource manager asks for it.

:class:`NoBlobs` is what there is without Azurite: accounts and containers exist, and that nothing can be
put into them is said where somebody would look.
"""

from __future__ import annotations

import logging
from typing import Protocol

from rehearsal.arm.core.records import Record

__all__ = ["Blobs", "NoBlobs"]

_log = logging.getLogger("rehearsal.storage")


class Blobs(Protocol):
    """Where the blobs of the accounts are."""

    async def open(self, account: Record) -> dict[str, str]:
        """Makes the account's blob service; its endpoints by service, empty when there is none."""

    async def close_account(self, account: Record) -> None:
        """Ends the account's blob service and removes what is in it."""

    async def create_container(self, account: Record, name: str) -> None:
        """Makes a container real; one that exists is fine."""

    async def delete_container(self, account: Record, name: str) -> None:
        """Removes a container with what is in it."""

    async def close(self) -> None:
        """Ends every blob service."""


class NoBlobs:
    """No data plane: said once for each account."""

    async def open(self, account: Record) -> dict[str, str]:
        """Nothing is there to open."""
        _log.warning(
            "storage account %s has no data plane here: Azurite is not installed (tools/setup --azure); "
            "its containers exist by name only",
            account.id.name,
        )
        return {}

    async def close_account(self, account: Record) -> None:
        """Nothing was opened."""

    async def create_container(self, account: Record, name: str) -> None:
        """It exists in the resource manager alone."""

    async def delete_container(self, account: Record, name: str) -> None:
        """It existed in the resource manager alone."""

    async def close(self) -> None:
        """Nothing was opened."""
