"""Public IP addresses of a rehearsal: loopback addresses that no other rehearsal of this machine has."""

from __future__ import annotations

import ipaddress
import random
import socket

__all__ = ["PublicAddresses"]

_RESERVED_PORT = 49999  # held on every public address, so that no other rehearsal takes the address
_RANGE = (int(ipaddress.IPv4Address("127.64.0.1")), int(ipaddress.IPv4Address("127.127.255.254")))


class PublicAddresses:
    """Addresses that are held, each by a listening socket."""

    def __init__(self) -> None:
        self._holders: dict[str, socket.socket] = {}

    def take(self) -> str:
        """Return an address (127.x.y.z) that is free, and hold it."""
        while True:
            address = str(ipaddress.IPv4Address(random.randint(*_RANGE)))  # noqa: S311 - any free one will do
            holder = socket.socket()
            try:
                holder.bind((address, _RESERVED_PORT))
                holder.listen(1)
            except OSError:
                holder.close()
                continue
            self._holders[address] = holder
            return address

    def release(self, address: str) -> None:
        """Give an address back: another rehearsal may have it."""
        holder = self._holders.pop(address, None)
        if holder is not None:
            holder.close()

    def held(self) -> list[str]:
        """Return the addresses that are held, sorted."""
        return sorted(self._holders)

    def close(self) -> None:
        """Give all addresses back."""
        for address in self.held():
            self.release(address)
