"""Data plane of storage accounts: none, unless Azurite is there (:mod:`rehearsal.azurite`)."""

from __future__ import annotations

import logging

from rehearsal.arm.core.records import Record

__all__ = ["Blobs"]

_log = logging.getLogger("rehearsal.storage")


class Blobs:
    """No data plane: accounts and containers exist, nothing can be put into them, and the log says so."""

    async def open(self, account: Record) -> None:
        """Start the account's blob service."""
        _log.warning(
            "storage account %s has no data plane here: Azurite is not installed (tools/setup --azure); "
            "its containers exist by name only",
            account.id.name,
        )

    async def close_account(self, account: Record) -> None:
        """Stop the account's blob service and remove what is in it."""

    async def create_container(self, account: Record, name: str) -> None:
        """Create a container; one that exists is fine."""

    async def delete_container(self, account: Record, name: str) -> None:
        """Delete a container with what is in it."""

    async def publish(self) -> None:
        """Let accounts' names resolve in every network, by its private endpoints and DNS zones."""

    async def leave(self, network: str) -> None:
        """Stop serving a network, which is being removed."""

    async def close(self) -> None:
        """Stop every blob service."""
