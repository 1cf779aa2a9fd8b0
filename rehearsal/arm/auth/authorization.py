"""Authorization of requests.

The operator owns the subscription. An identity may do what role assignments give it.
"""

from __future__ import annotations

from aiohttp import web

from rehearsal.arm.auth.roles import ASSIGNMENTS, allows, refused
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.core.resource_type import API_VERSIONS
from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.tokens import Token

__all__ = ["action_of", "check_right", "sees"]

_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_PROVIDERS = "/providers/"
_OPERATIONS = tuple(
    f"{provider}/locations/{what}/read"
    for provider in API_VERSIONS
    for what in ("operations", "operationResults")
)
"""Polling an operation needs a token only: the right that Azure wants for it is not known here, and only who
started the operation knows its address.
"""

_WITHOUT_ROLE = ("/subscriptions", "/api/retail/prices")
"""Subscriptions are listed by :func:`sees`; prices are public (Azure Retail Prices overview)."""


def sees(subscription: Subscription, token: Token | None) -> bool:
    """Whether the subscription is listed to the sender: an identity needs a role in it, wherever."""
    if token is None:
        return True
    own = token.identity.principal_id.lower()
    return any(r.properties["principalId"].lower() == own for r in subscription.of_type(ASSIGNMENTS))


def check_right(request: web.Request, subscription: Subscription, token: Token | None) -> None:
    """Refuse what no role allows the token's identity; None is the operator, who may do everything."""
    if token is None or request.path.rstrip("/").lower() in _WITHOUT_ROLE:
        return
    who = token.identity
    action, scope = action_of(request.method, request.path.rstrip("/"), subscription.types)
    if action in _OPERATIONS:
        return
    if not allows(subscription, who.principal_id, action, scope):
        raise refused(who.client_id, who.principal_id, action, scope)


def action_of(method: str, path: str, types: ResourceTypes) -> tuple[str, ResourceId]:
    """Return the action that a request is, and its scope; a poll of an operation is a read.

    >>> base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v"
    >>> types = ResourceTypes(())
    >>> action_of("POST", f"{base}/virtualMachines/0/reimage", types)[0]
    'Microsoft.Compute/virtualMachineScaleSets/virtualMachines/reimage/action'
    >>> action_of("GET", f"{base}/virtualMachines", types)[1].name
    'v'
    """
    cut = path.lower().rfind(_PROVIDERS)
    if cut < 0:
        rid = ResourceId.parse(path)
        if rid is not None:
            return f"{_cased(rid.type, types)}/{_VERBS.get(method, 'action')}", rid
        base, _, last = path.rpartition("/")
        return f"Microsoft.Resources/{last}/read", ResourceId.parse(base) or ResourceId(path.split("/")[2])
    scope = ResourceId.parse(path[:cut]) or ResourceId(path.split("/")[2])
    namespace, *parts = path[cut + len(_PROVIDERS) :].split("/")
    if len(parts) % 2 == 0:
        rid = scope.extended(namespace, tuple(parts))
        return f"{_cased(rid.type, types)}/{_VERBS.get(method, 'action')}", rid
    rid = scope.extended(namespace, tuple(parts[:-1])) if len(parts) > 1 else scope
    names = "/".join((namespace, *parts[:-1:2]))
    if method == "POST":
        return f"{_cased(names, types)}/{parts[-1]}/action", rid
    return f"{names}/{parts[-1]}/read", rid


def _cased(resource_type: str, types: ResourceTypes) -> str:
    kind = types.find(resource_type)
    return kind.type if kind is not None else resource_type
