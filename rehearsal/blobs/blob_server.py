"""Server of blobs: ``https://<account>.blob.core.windows.net`` on nodes, and its like for the operator.

A request is checked (:mod:`rehearsal.blobs.blob_access`), then passed on to the account's Azurite. Its sender
is the node with the address that the connection comes from, or the operator by a loopback port that this user
alone reaches. Names resolve on the nodes to :data:`PUBLIC_IP`, in a network that is linked to a private DNS
zone to the private endpoint's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Protocol
from xml.sax.saxutils import escape

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rehearsal.arm.core.records import Record
from rehearsal.arm.core.subscription import OPERATOR
from rehearsal.arm.network.private_endpoints import account_addresses, resolved_accounts
from rehearsal.arm.services import SharedState
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.azurite import Azurite
from rehearsal.blobs.blob_access import (
    BlobError,
    Source,
    busy,
    check_firewall,
    check_key,
    check_right,
    denied,
)
from rehearsal.blobs.blob_request import HOST_SUFFIX, BlobRequest, read_request
from rehearsal.blobs.storage_link import Link, Traffic
from rehearsal.faults.fault_kinds import FaultSpec
from rehearsal.imds.tokens import Token
from rehearsal.imds.vm_registry import find_vm
from rehearsal.listener import Listener
from rehearsal.vms.api import Machines

__all__ = ["PUBLIC_IP", "BlobServer", "StorageFaults"]

PUBLIC_IP = "192.0.2.1"
"""Address of all accounts' public endpoints, of a block for documentation (RFC 5737): it is nobody's."""

_PORT = 443
_BLOCK = 1 << 20
_BACKLOG = 1024
_ACCOUNTS = "Microsoft.Storage/storageAccounts"
_NETWORKS = "Microsoft.Network/virtualNetworks"
# Of the connection, not of what is sent (RFC 9110, 7.6.1), and what this server answers itself.
_OWN = ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect")
_MB = 1e6
_END_S = 0.1
_UNKNOWN = BlobError(400, "InvalidUri", "The requested URI does not represent any resource on the server.")

_log = logging.getLogger("rehearsal.blobs")


class StorageFaults(Protocol):
    """Faults of storage that are set."""

    def hits_storage(self, kind: str) -> FaultSpec | None:
        """Return the fault of this kind that hits a request now, and count it."""


class BlobServer(Blobs):
    """Blob endpoint of a subscription, whose operator has this ``token``, over the accounts' processes."""

    def __init__(
        self, accounts: Azurite, shared: SharedState, machines: Machines, token: str, faults: StorageFaults
    ) -> None:
        self._accounts, self._shared, self._machines = accounts, shared, machines
        self._subscription, self._token, self._faults = shared.subscription, token, faults
        self._servers: dict[tuple[str, str], tuple[asyncio.Server, web.Server]] = {}
        self._operator = web.Server(partial(self._answer, ""), access_log=None)
        self._listener: Listener | None = None
        self._publishing = asyncio.Lock()
        self._link = Link()
        self.traffic: dict[str, Traffic] = {}
        """By account, since the rehearsal began."""

    async def listen(self) -> int:
        """Start to serve the operator; return the port."""
        server, tls = self._operator, self._accounts.tls()

        async def serve(client: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(server, client, ssl=tls, ssl_shutdown_timeout=_END_S)

        self._listener = Listener(serve)
        self._listener.start()
        return self._listener.port

    async def publish(self) -> None:
        """Serve each network at the addresses that it has for accounts, and let their names lead there."""
        async with self._publishing:
            names = self._accounts.names()
            for network in list(self._subscription.of_type(_NETWORKS)):
                if network.state == "Deleting":
                    continue
                name = str(network.id)
                private = account_addresses(self._subscription, network.id)
                wanted = {PUBLIC_IP, *private} if names else set()
                for _, address in [key for key in self._servers if key[0] == name and key[1] not in wanted]:
                    await self._close(name, address)
                    await self._machines.close_port(name, address)
                for address in sorted(wanted):
                    await self._open(name, address)
                resolved = resolved_accounts(self._subscription, network.id)
                hosts = {f"{one}{HOST_SUFFIX}": resolved.get(one, PUBLIC_IP) for one in names}
                await self._machines.set_names(name, hosts)

    async def open(self, account: Record) -> None:
        """Start the account's process and let its name resolve."""
        await self._accounts.open(account)
        await self.publish()

    async def close_account(self, account: Record) -> None:
        """End the account's process and remove what is in it."""
        await self._accounts.close_account(account)
        await self.publish()

    async def create_container(self, account: Record, name: str) -> None:
        """Create a container; one that exists is fine."""
        await self._accounts.create_container(account, name)

    async def delete_container(self, account: Record, name: str) -> None:
        """Delete a container with what is in it."""
        await self._accounts.delete_container(account, name)

    async def leave(self, network: str) -> None:
        """End the service of a network that goes."""
        async with self._publishing:
            for _, address in [key for key in self._servers if key[0] == network]:
                await self._close(network, address)

    async def close(self) -> None:
        """End the service everywhere, and every account's process."""
        if self._listener is not None:
            await self._listener.close()
        for network, address in tuple(self._servers):
            await self._close(network, address)
        await self._operator.shutdown(_END_S)
        await asyncio.sleep(2 * _END_S)  # the connections' TLS ends after their servers
        await self._accounts.close()

    async def _open(self, network: str, address: str) -> None:
        if (network, address) in self._servers:
            return
        listener = await self._machines.open_port(network, address, _PORT)
        if listener is None:
            return  # the network is still being made, and publishes when it is
        server = web.Server(partial(self._answer, network), access_log=None)
        loop = asyncio.get_running_loop()
        tls = self._accounts.tls()
        made = await loop.create_server(
            server, sock=listener, backlog=_BACKLOG, ssl=tls, ssl_shutdown_timeout=_END_S
        )
        self._servers[network, address] = made, server

    async def _close(self, network: str, address: str) -> None:
        listening, server = self._servers.pop((network, address))
        listening.close()
        await server.shutdown(_END_S)

    # Requests.

    async def _answer(self, network: str, request: web.BaseRequest) -> web.StreamResponse:
        try:
            path = request.raw_path.partition("?")[0]
            asked = read_request(request.method, request.host, path, request.query)
            account = self._find(asked.account) if asked is not None else None
            if asked is None or account is None:
                raise _UNKNOWN
            principal = self._check(network, request, asked, account)
            return await self._pass_on(request, account.id.name, principal)
        except BlobError as error:
            return _refused(request, error)
        except aiohttp.ClientError as error:
            _log.warning("%s %s: %s", request.method, request.path, error)
            return _refused(
                request, BlobError(500, "InternalError", "The server encountered an internal error.")
            )

    def _find(self, account: str) -> Record | None:
        found = self._subscription.of_type(_ACCOUNTS) if account in self._accounts.names() else ()
        return next((one for one in found if one.id.name == account), None)

    def _check(
        self, network: str, request: web.BaseRequest, asked: BlobRequest, account: Record
    ) -> str | None:
        """Return who sends a request; None where its own signature says so."""
        check_firewall(self._subscription, account, self._source(network, request))
        if spec := self._faults.hits_storage("storage-busy"):
            raise busy(round(spec.seconds or 1))
        if self._faults.hits_storage("storage-denied"):
            raise denied()
        authorization = request.headers.get("Authorization", "")
        check_key(account, request.query, authorization)
        if authorization.lower().startswith("bearer"):
            return check_right(self._subscription, account, asked, self._principal(authorization))
        if delegate := request.query.get("skoid"):
            check_right(self._subscription, account, asked, delegate)
        return None

    def _principal(self, authorization: str) -> Token | str | None:
        text = authorization.partition(" ")[2].strip()
        if hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self._token.encode()):
            return OPERATOR
        return self._shared.tokens.find(text)

    def _source(self, network: str, request: web.BaseRequest) -> Source:
        peer, here = request.get_extra_info("peername")[0], request.get_extra_info("sockname")[0]
        if not network:
            return Source(peer)
        found = find_vm(self._subscription, network, peer)
        rid = next((r.id for r in self._subscription.of_type(_NETWORKS) if str(r.id) == network), None)
        private = account_addresses(self._subscription, rid) if rid is not None else {}
        return Source(peer, found.subnet if found is not None else network, private.get(here, ""))

    async def _pass_on(
        self, request: web.BaseRequest, account: str, principal: str | None
    ) -> web.StreamResponse:
        traffic = self.traffic.setdefault(account, Traffic())
        traffic.requests += 1
        headers = _kept(request.headers)
        if principal is not None:
            headers["Authorization"] = self._accounts.authorization(principal)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            assert isinstance(request.transport, asyncio.WriteTransport)  # noqa: S101
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        url = URL(f"http://{request.host}{request.raw_path}", encoded=True)
        body = self._received(request, traffic) if request.body_exists else None
        async with self._accounts.session(account).request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            shown = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_kept(answer.headers)
            )
            await shown.prepare(request)
            cut, rate = self._cut(request, answer), self._rate()
            async for block in answer.content.iter_chunked(_BLOCK):
                if cut is not None and (cut := cut - len(block)) < 0:
                    await shown.write(block[:cut])
                    if request.transport is not None:
                        request.transport.close()
                    raise ConnectionResetError("storage-cut")
                await self._link.pass_on(len(block), rate)
                traffic.bytes_out += len(block)
                await shown.write(block)
            with contextlib.suppress(ConnectionError):
                await shown.write_eof()
            return shown

    def _cut(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> int | None:
        """Return after how many bytes an answer breaks off."""
        length = answer.content_length or 0
        is_content = request.method == "GET" and "x-ms-blob-type" in answer.headers and length > 1
        return length // 2 if is_content and self._faults.hits_storage("storage-cut") else None

    def _rate(self) -> float | None:
        spec = self._faults.hits_storage("storage-slow")
        return spec.rate * _MB if spec is not None and spec.rate else None

    async def _received(self, request: web.BaseRequest, traffic: Traffic) -> AsyncIterator[bytes]:
        rate = self._rate()
        async for block in request.content.iter_chunked(_BLOCK):
            await self._link.pass_on(len(block), rate)
            traffic.bytes_in += len(block)
            yield block


def _kept(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OWN)


def _refused(request: web.BaseRequest, error: BlobError) -> web.Response:
    headers = {"x-ms-error-code": error.code, **error.headers}
    if request.body_exists:
        headers["Connection"] = "close"  # what is left of the body would be read as the next request
    text = f"<Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
    body = f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
    return web.Response(status=error.status, body=body, content_type="application/xml", headers=headers)
