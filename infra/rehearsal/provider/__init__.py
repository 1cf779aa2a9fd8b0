"""The provider ``azure-native`` of a rehearsal, found by the engine through ``PULUMI_DEBUG_PROVIDERS``."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from infra.rehearsal.provider.client import ArmClient
from infra.rehearsal.provider.service import SUBSCRIPTION_ID, AzureNative

__all__ = ["SUBSCRIPTION_ID", "AzureNative", "Provider", "serve"]

_BIGGEST = 400 * 1024 * 1024
"""Bytes in one message: what Pulumi's own engine and SDKs allow."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that listens on ``port`` of the loopback address."""

    port: int
    server: grpc.aio.Server
    client: ArmClient

    async def stop(self) -> None:
        """Ends the calls under way and gives the port back."""
        await self.server.stop(grace=None)
        await self.client.close()


async def serve(arm_url: str, subscription_id: str = SUBSCRIPTION_ID, port: int = 0) -> Provider:
    """Starts the provider in front of the resource manager at ``arm_url``; 0 takes a free port."""
    client = ArmClient(arm_url.rstrip("/"))
    options = [("grpc.max_receive_message_length", _BIGGEST), ("grpc.max_send_message_length", _BIGGEST)]
    server = grpc.aio.server(options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AzureNative(client, subscription_id), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return Provider(bound, server, client)
