"""The provider ``azure-native`` of a rehearsal, found by the engine through ``PULUMI_DEBUG_PROVIDERS``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from infra.rehearsal import callers
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


class _OwnUserOnly(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc carries no types
    """Refuses calls of other users of this machine."""

    port = 0

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def answer(request: Any, context: Any) -> Any:
            _, address, port = context.peer().split(":")
            if not callers.is_trusted((address, int(port)), ("127.0.0.1", self.port)):
                problem = "this rehearsal belongs to another user of this machine"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )


async def serve(arm_url: str, subscription_id: str = SUBSCRIPTION_ID, port: int = 0) -> Provider:
    """Starts the provider in front of the resource manager at ``arm_url``; 0 takes a free port."""
    client = ArmClient(arm_url.rstrip("/"))
    options = [("grpc.max_receive_message_length", _BIGGEST), ("grpc.max_send_message_length", _BIGGEST)]
    guard = _OwnUserOnly()
    server = grpc.aio.server(interceptors=[guard], options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AzureNative(client, subscription_id), server)
    guard.port = bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return Provider(bound, server, client)
