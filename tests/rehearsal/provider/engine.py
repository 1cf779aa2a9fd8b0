"""The engine's side of the protocol, as far as the tests need it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from pulumi.runtime.proto import provider_pb2 as p
from pulumi.runtime.proto import provider_pb2_grpc, status_pb2

from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.provider import serve
from rehearsal.provider.values import decode, encode
from tests.rehearsal.doubles import TOKEN

GROUP = "azure-native:resources:ResourceGroup"
VNET = "azure-native:network:VirtualNetwork"
SUBNET = "azure-native:network:Subnet"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"


class Refused(Exception):
    """What the engine would show; ``initialised`` when the resource exists half made."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.half_made: Any = None
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                self.half_made = p.ErrorResourceInitFailed()
                assert status.details[0].Unpack(self.half_made)
        super().__init__(error.details())


class Engine:
    """Calls one provider."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.stub: Any = provider_pb2_grpc.ResourceProviderStub(self._channel)

    async def call(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self.stub, method)(request)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from error

    @staticmethod
    def urn(token: str, name: str) -> str:
        return f"urn:pulumi:rehearsal::ranklift::ranklift:TrainingCluster${token}::{name}"

    async def check(
        self, token: str, name: str, news: dict[str, Any], olds: dict[str, Any] | None = None
    ) -> Any:
        request = p.CheckRequest(
            urn=self.urn(token, name), news=encode(news), olds=encode(olds or {}), randomSeed=b"seed"
        )
        return await self.call("Check", request)

    async def create(self, token: str, inputs: dict[str, Any], preview: bool = False) -> Any:
        request = p.CreateRequest(urn=self.urn(token, "x"), properties=encode(inputs), preview=preview)
        return await self.call("Create", request)

    async def make(self, token: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs of a resource really made, with its id."""
        made = await self.create(token, inputs)
        return {**decode(made.properties), "id": made.id}

    async def diff(
        self, token: str, before: dict[str, Any], after: dict[str, Any], ignore: tuple[str, ...] = ()
    ) -> Any:
        request = p.DiffRequest(
            urn=self.urn(token, "x"), old_inputs=encode(before), news=encode(after), ignoreChanges=ignore
        )
        return await self.call("Diff", request)

    async def update(
        self, token: str, rid: str, news: dict[str, Any], olds: Any = None, preview: bool = False
    ) -> Any:
        request = p.UpdateRequest(
            urn=self.urn(token, "x"), id=rid, news=encode(news), olds=encode(olds or {}), preview=preview
        )
        return await self.call("Update", request)

    async def read(self, token: str, rid: str, inputs: dict[str, Any] | None = None) -> Any:
        request = p.ReadRequest(urn=self.urn(token, "x"), id=rid, inputs=encode(inputs or {}))
        return await self.call("Read", request)

    async def delete(self, token: str, rid: str) -> None:
        await self.call("Delete", p.DeleteRequest(urn=self.urn(token, "x"), id=rid))

    async def close(self) -> None:
        await self._channel.close()


def with_engine(
    url: str, scenario: Callable[[Engine], Awaitable[Any]], types: ResourceTypes = RESOURCE_TYPES
) -> Any:
    """Runs ``scenario`` with an engine connected to a provider in front of ``url``."""

    async def run(folder: Path) -> Any:
        provider = await serve(url, TOKEN, folder, types)
        engine = Engine(provider.port)
        try:
            return await scenario(engine)
        finally:
            await engine.close()
            await provider.stop()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))
