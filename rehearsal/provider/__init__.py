"""Pulumi provider ``azure-native`` of a rehearsal: the engine finds it by ``PULUMI_DEBUG_PROVIDERS``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.listener import Listener, relay_to
from rehearsal.provider.client import ArmClient
from rehearsal.provider.service import SUBSCRIPTION_ID, AzureNative
from rehearsal.run_dir import short_path

__all__ = ["SUBSCRIPTION_ID", "AzureNative", "Provider", "serve"]

_BIGGEST = 400 * 1024 * 1024
"""Bytes in one message: what Pulumi's own engine and SDKs allow."""
_SOCKET = "provider"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that listens on ``port`` of the loopback address."""

    port: int
    listener: Listener
    server: grpc.aio.Server
    client: ArmClient

    async def stop(self) -> None:
        """End the calls under way and release the port."""
        await self.listener.close()
        await self.server.stop(grace=None)
        await self.client.close()


async def serve(arm_url: str, token: str, folder: Path, types: ResourceTypes = RESOURCE_TYPES) -> Provider:
    """Start the provider of these resource types in front of the resource manager at ``arm_url``.

    The engine finds a provider by its port alone and shows it no secret. So the server itself listens on a
    Unix socket in ``folder``, which must be closed to other users, and the port is a :class:`Listener`.
    """
    client = ArmClient(arm_url.rstrip("/"), token, types)
    options = [("grpc.max_receive_message_length", _BIGGEST), ("grpc.max_send_message_length", _BIGGEST)]
    server = grpc.aio.server(options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AzureNative(client, types), server)
    path = folder / _SOCKET
    with short_path(path) as name:
        server.add_insecure_port(f"unix:{name}")
        await server.start()
    listener = Listener(relay_to(path))
    listener.start()
    return Provider(listener.port, listener, server, client)
