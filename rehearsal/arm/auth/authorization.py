"""Whether whoever sends a request may do what it asks.

The operator owns the subscription. An identity may do what role assignments give it.
"""

from __future__ import annotations

from aiohttp import web

from rehearsal.arm.auth.roles import allows, refused
from rehearsal.arm.core.ids import ResourceId
from rehearsal.arm.core.registry import kind_of
from rehearsal.arm.core.resource_type import API_VERSIONS
from rehearsal.arm.core.subscription import Subscription
from rehearsal.imds.tokens import Token

__all__ = ["action_of", "check_right"]

_VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}
_PROVIDERS = "/providers/"
_OPERATIONS = tuple(
    f"{provider}/locations/{what}/read"
    for provider in API_VERSIONS
    for what in ("operations", "operationResults")
)
"""How far an operation is may be asked by whoever has a token: which right Azure wants for it is not known
here, and its address is told only to who has begun it.
"""


def check_right(request: web.Request, subscription: Subscription, token: Token | None) -> None:
    """Raise :class:`~rehearsal.arm.core.errors.ArmError` for what no role allows the token's identity.

    ``None``: the operator sends it, to whom nothing is refused.
    """
    if token is None:
        return
    who = token.identity
    action, scope = action_of(request.method, request.path.rstrip("/"))
    if action in _OPERATIONS:
        return
    if not allows(subscription, who.principal_id, action, scope):
        raise refused(who.client_id, who.principal_id, action, scope)


def action_of(method: str, path: str) -> tuple[str, ResourceId]:
    """The action that a request is, and where; what is asked of an operation is a read.

    >>> base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v"
    >>> action_of("POST", f"{base}/virtualMachines/0/reimage")[0]
    'Microsoft.Compute/virtualMachineScaleSets/virtualMachines/reimage/action'
    >>> action_of("GET", f"{base}/virtualMachines")[1].name
    'v'
    """
    cut = path.lower().rfind(_PROVIDERS)
    if cut < 0:
        rid = ResourceId.parse(path)
        if rid is not None:
            return f"{_cased(rid.type)}/{_VERBS.get(method, 'action')}", rid
        base, _, last = path.rpartition("/")
        return f"Microsoft.Resources/{last}/read", ResourceId.parse(base) or ResourceId(path.split("/")[2])
    scope = ResourceId.parse(path[:cut]) or ResourceId(path.split("/")[2])
    namespace, *parts = path[cut + len(_PROVIDERS) :].split("/")
    if len(parts) % 2 == 0:
        rid = scope.extended(namespace, tuple(parts))
        return f"{_cased(rid.type)}/{_VERBS.get(method, 'action')}", rid
    rid = scope.extended(namespace, tuple(parts[:-1])) if len(parts) > 1 else scope
    types = "/".join((namespace, *parts[:-1:2]))
    if method == "POST":
        return f"{_cased(types)}/{parts[-1]}/action", rid
    return f"{types}/{parts[-1]}/read", rid


def _cased(resource_type: str) -> str:
    kind = kind_of(resource_type)
    return kind.type if kind is not None else resource_type
