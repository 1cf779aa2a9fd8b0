"""gRPC service of the resource provider ``azure-native``."""

# ruff: noqa: ARG002  (gRPC gives every method the request and the context)

from __future__ import annotations

import asyncio
import hashlib
import secrets
import uuid
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from rehearsal.arm.core.errors import ArmError, not_found
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.core.resource_type import GROUP, ResourceType
from rehearsal.provider import translate
from rehearsal.provider.client import ArmClient, Interrupted
from rehearsal.provider.diff import changes
from rehearsal.provider.values import decode, encode, has_unknown, plain

__all__ = ["SUBSCRIPTION_ID", "AzureNative"]

SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000001"
"""The one subscription of a rehearsal."""
_VERSION = "3.29.0"
_CLIENT_CONFIG = "azure-native:authorization:getClientConfig"
_DIFF = provider_pb2.PropertyDiff
_GONE = {"ResourceGroupNotFound", "ResourceNotFound", "ResourceGroupBeingDeleted", "ParentResourceNotFound"}
_UNKNOWN, _INVALID = grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT

Call = Callable[["AzureNative", Any, Any], Awaitable[Any]]
"""One of the engine's calls: its request and context in, its response out."""


def _guarded(call: Call) -> Call:
    """Return the call, which aborts with what failed in it."""

    @wraps(call)
    async def guarded(self: AzureNative, request: Any, context: Any) -> Any:
        limit = getattr(request, "timeout", 0) or None
        try:
            async with asyncio.timeout(limit):
                return await call(self, request, context)
        except ArmError as error:
            await context.abort(_UNKNOWN, f'Code="{error.code}" Message="{error.message}"')
        except Interrupted:
            await context.abort(grpc.StatusCode.CANCELLED, "cancelled")
        except TimeoutError:
            problem = f"did not end within {limit:g} s" if limit is not None else "did not answer in time"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"Azure {problem}")
        except OSError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the resource manager does not answer: {error}")

    return guarded


class AzureNative(provider_pb2_grpc.ResourceProviderServicer):
    """Translation of the engine's calls into requests to the resource manager behind ``client``."""

    def __init__(self, client: ArmClient, types: ResourceTypes) -> None:
        self._client, self._types = client, types
        # One provider serves the engines of all stacks: a Cancel is meant for its sender's own calls.
        self._cancelled: set[str] = set()

    # -- the provider itself ------------------------------------------------------------------------------

    async def Handshake(self, request: Any, context: Any) -> Any:
        """Accept secrets; resource references and output values come as plain values."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    async def Attach(self, request: Any, context: Any) -> Any:
        """Do nothing: no call goes back to the engine."""
        return empty_pb2.Empty()

    async def GetPluginInfo(self, request: Any, context: Any) -> Any:
        """Return the version of the SDK whose types are served."""
        return plugin_pb2.PluginInfo(version=_VERSION)

    async def CheckConfig(self, request: Any, context: Any) -> Any:
        """Accept any configuration: there is one subscription and no credential."""
        return provider_pb2.CheckResponse(inputs=request.news)

    async def DiffConfig(self, request: Any, context: Any) -> Any:
        """Report no difference: no configuration matters."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    async def Configure(self, request: Any, context: Any) -> Any:
        """Repeat :meth:`Handshake` for engines that do not shake hands; forget a cancellation."""
        self._cancelled.discard(context.peer())  # an engine of long ago may have had the same port
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    async def Cancel(self, request: Any, context: Any) -> Any:
        """Stop the waits of this engine's calls, and refuse its later ones, which may be on their way.

        Operations that Azure has started go on.
        """
        self._cancelled.add(context.peer())
        return empty_pb2.Empty()

    async def Invoke(self, request: Any, context: Any) -> Any:
        """Return the client's configuration; refuse every other function."""
        if request.tok != _CLIENT_CONFIG:
            await context.abort(_INVALID, f"{request.tok} is not emulated; known functions: {_CLIENT_CONFIG}")
        nobody = "00000000-0000-0000-0000-000000000000"
        known = {
            "clientId": nobody,
            "objectId": nobody,
            "subscriptionId": SUBSCRIPTION_ID,
            "tenantId": nobody,
        }
        return provider_pb2.InvokeResponse(**{"return": encode(known)})

    # -- resources ----------------------------------------------------------------------------------------

    async def Check(self, request: Any, context: Any) -> Any:
        """Return the inputs with the resource's name: the old one, or the Pulumi name and 8 hex digits."""
        kind = await self._kind(request, context)
        before, after = decode(request.olds), decode(request.news)
        *parents, name = kind.inputs
        if after.get(name) is None:
            after[name] = before.get(name) or _automatic_name(request, kind)
        failures = [
            provider_pb2.CheckFailure(property=n, reason=f"missing required property '{n}'")
            for n in parents
            if after.get(n) is None
        ]
        return provider_pb2.CheckResponse(inputs=encode(after), failures=failures)

    async def Diff(self, request: Any, context: Any) -> Any:
        """Return exactly the inputs that changed."""
        kind = await self._kind(request, context)
        before, after = decode(request.old_inputs), decode(request.news)
        found = changes(kind, before, after, list(request.ignoreChanges))
        names = {c.path: f"{c.kind.upper()}{'_REPLACE' if c.replace else ''}" for c in found}
        detail = {path: _DIFF(kind=_DIFF.Kind.Value(name), inputDiff=True) for path, name in names.items()}
        same_id = all(plain(before.get(n)) == plain(after.get(n)) for n in kind.inputs)
        response = provider_pb2.DiffResponse
        return response(
            changes=response.DIFF_SOME if found else response.DIFF_NONE,
            replaces=[c.path for c in found if c.replace],
            diffs=list(dict.fromkeys(c.path.split(".")[0].split("[")[0] for c in found)),
            detailedDiff=detail,
            hasDetailedDiff=True,
            # Azure has one resource of an id at a time.
            deleteBeforeReplace=same_id,
        )

    @_guarded
    async def Create(self, request: Any, context: Any) -> Any:
        """Create the resource and wait for its operation."""
        kind, inputs = await self._kind(request, context), decode(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=encode(translate.predicted(kind, inputs)))
        try:
            rid = translate.resource_id(kind, SUBSCRIPTION_ID, inputs)
        except ValueError as error:
            await context.abort(_INVALID, str(error))
        if not kind.singleton and await self._client.get(rid) is not None:
            await context.abort(_UNKNOWN, f"cannot create already existing resource '{rid}'")
        shown = await self._write(kind, rid, inputs, context)
        return provider_pb2.CreateResponse(id=str(rid), properties=encode(shown))

    @_guarded
    async def Update(self, request: Any, context: Any) -> Any:
        """Change the resource in place and wait for its operation."""
        kind, inputs = await self._kind(request, context), decode(request.news)
        if request.preview:
            shown = translate.predicted(kind, inputs, decode(request.olds))
        else:
            shown = await self._write(kind, _parsed(request.id), inputs, context)
        return provider_pb2.UpdateResponse(properties=encode(shown))

    @_guarded
    async def Read(self, request: Any, context: Any) -> Any:
        """Return the resource as it is; an empty answer when it does not exist."""
        kind, rid = await self._kind(request, context), _parsed(request.id)
        before, answer = decode(request.inputs), await self._client.get(rid)
        if answer is None:
            await self._refuse_without_scope(kind, rid)
            return provider_pb2.ReadResponse()
        shown = translate.outputs(kind, before, answer)
        inputs = translate.inputs_of(kind, rid, before, shown)
        return provider_pb2.ReadResponse(id=str(rid), properties=encode(shown), inputs=encode(inputs))

    @_guarded
    async def Delete(self, request: Any, context: Any) -> Any:
        """Delete the resource; one that does not exist is fine."""
        kind = await self._kind(request, context)
        # A singleton cannot be deleted: it is reset.
        verb, body = ("PUT", dict[str, Any]()) if kind.singleton else ("DELETE", None)
        cancelled = self._cancelled_in(context)
        try:
            answer = await self._client.start(verb, _parsed(request.id), body, cancelled)
        except ArmError as error:
            if error.code not in _GONE:
                raise
        else:
            await self._client.wait(answer, cancelled)
        return empty_pb2.Empty()

    async def _refuse_without_scope(self, kind: ResourceType, rid: ResourceId) -> None:
        """Fail to read what extends a resource that is gone, as azure-native does.

        pulumi/pulumi-azure-native#4528: a role assignment, whose scope was deleted. It was fixed and reported
        again (#4802), so the program must not depend on the fix.
        """
        scope = rid.base
        if kind.extends and scope.parts and await self._client.get(scope) is None:
            raise not_found(scope.short, scope.group)

    # -- shared steps -------------------------------------------------------------------------------------

    async def _kind(self, request: Any, context: Any) -> ResourceType:
        token = str(request.type or request.urn.split("::")[2].rpartition("$")[2])
        kind = self._types.by_token(token)
        if kind is None:
            known = ", ".join(self._types.tokens)
            await context.abort(_INVALID, f"the rehearsal does not emulate {token}; it knows {known}")
            raise AssertionError  # abort has raised
        return kind

    def _cancelled_in(self, context: Any) -> Callable[[], bool]:
        peer = context.peer()
        return lambda: peer in self._cancelled

    async def _write(
        self, kind: ResourceType, rid: ResourceId, inputs: dict[str, Any], context: Any
    ) -> dict[str, Any]:
        if has_unknown(inputs):
            await context.abort(_INVALID, f"{rid}: some inputs are not known yet")
        body = translate.body(kind, rid, inputs)
        if kind.tracked and kind is not GROUP and "location" not in body:
            group = await self._client.get(ResourceId(rid.subscription, rid.group))
            body["location"] = (group or {}).get("location")
        if kind.children:
            await self._keep_children(kind, rid, body)
        cancelled = self._cancelled_in(context)
        answer = await self._client.start("PUT", rid, body, cancelled)
        try:
            await self._client.wait(answer, cancelled)
        except (ArmError, Interrupted) as error:
            # Azure took the request, so the resource exists: the engine must know it to repair it later.
            shown = translate.outputs(kind, inputs, await self._client.get(rid) or {})
            await _abort_partial(
                context, rid, inputs, shown, str(error) or "cancelled; Azure continues the operation"
            )
        return translate.outputs(kind, inputs, await self._client.get(rid) or {})

    async def _keep_children(self, kind: ResourceType, rid: ResourceId, body: dict[str, Any]) -> None:
        # Children may be resources of their own in the program: a parent written without them keeps them.
        current = await self._client.get(rid)
        for collection in kind.children:
            properties = (current or {}).get("properties") or {}
            if properties.get(collection) and collection not in (body.get("properties") or {}):
                body.setdefault("properties", {})[collection] = properties[collection]


def _parsed(text: str) -> ResourceId:
    rid = ResourceId.parse(text)
    if rid is None:
        raise ValueError(text)
    return rid


def _automatic_name(request: Any, kind: ResourceType) -> str:
    name = str(request.name or request.urn.rpartition("::")[2])
    seed = bytes(request.randomSeed)
    if kind.singleton:
        return "default"
    if kind.extends:
        return str(uuid.UUID(bytes=hashlib.sha256(seed).digest()[:16], version=4) if seed else uuid.uuid4())
    return name + (hashlib.sha256(seed).hexdigest()[:8] if seed else secrets.token_hex(4))


async def _abort_partial(
    context: Any, rid: ResourceId, inputs: dict[str, Any], shown: dict[str, Any], reason: str
) -> NoReturn:
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=str(rid), properties=encode(shown), inputs=encode(inputs), reasons=[reason]
        )
    )
    status = status_pb2.Status(code=_UNKNOWN.value[0], message=reason, details=[detail])
    metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_UNKNOWN, reason, trailing_metadata=metadata)
    raise AssertionError  # abort has raised
