"""Directory of the subscription's tenant: its application, and the token endpoint where that signs in.

It stands for ``login.microsoftonline.com``: discovery, and version 2.0 tokens by client credentials
(learn.microsoft.com, "OAuth 2.0 client credentials flow on the Microsoft identity platform").
"""

from __future__ import annotations

import hmac
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from rehearsal.arm.auth.authentication import UNPROVEN, Unproven
from rehearsal.imds.tokens import TENANT_ID, Identity, Token, TokenError, Tokens, check_audience

__all__ = ["Application", "make_directory"]

_HOST = "login.microsoftonline.com"
_BASE = f"https://{_HOST}/{TENANT_ID}/oauth2/v2.0"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_DEFAULT = "/.default"
_BODY_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Application:
    """An application with its service principal, a client secret and a federated credential."""

    client_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    object_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Of the service principal, to which roles are assigned."""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)
    assertion: str = field(default_factory=lambda: secrets.token_urlsafe(96), repr=False)
    """The token of the pipeline that the federated credential trusts. It is not signed: only this one is
    valid.
    """

    @property
    def variables(self) -> dict[str, str]:
        """Variables of a sign-in by the secret, and the id to which roles are assigned."""
        return {
            "ARM_TENANT_ID": TENANT_ID,
            "ARM_CLIENT_ID": self.client_id,
            "ARM_CLIENT_SECRET": self.secret,
            "APPLICATION_OBJECT_ID": self.object_id,
        }


def make_directory(application: Application, tokens: Tokens) -> web.Application:
    """Return the token endpoint of the application, over the tokens that the other services accept."""

    async def sign_in(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        try:
            token = _signed_in(application, tokens, request.match_info["tenant"], form)
        except TokenError as error:
            status = 401 if error.error == "invalid_client" else 400
            return web.json_response(error.body(), status=status)
        left = int(token.expires_on - tokens.now())
        answer = {"expires_in": left, "ext_expires_in": left, "access_token": token.text}
        return web.json_response({"token_type": "Bearer", **answer})

    app = web.Application(client_max_size=_BODY_LIMIT)
    app[UNPROVEN] = Unproven()  # no request proves a connection: each lasts for some seconds
    app.router.add_get("/common/discovery/instance", _instances)
    app.router.add_get("/{tenant}/v2.0/.well-known/openid-configuration", _configuration)
    app.router.add_post("/{tenant}/oauth2/v2.0/token", sign_in)
    return app


async def _instances(_request: web.Request) -> web.Response:
    known = {"preferred_network": _HOST, "preferred_cache": _HOST, "aliases": [_HOST]}
    found = f"https://{_HOST}/{TENANT_ID}/v2.0/.well-known/openid-configuration"
    return web.json_response({"tenant_discovery_endpoint": found, "metadata": [known]})


async def _configuration(request: web.Request) -> web.Response:
    try:
        _check_tenant(request.match_info["tenant"])
    except TokenError as error:
        return web.json_response(error.body(), status=400)
    places = {"token_endpoint": f"{_BASE}/token", "authorization_endpoint": f"{_BASE}/authorize"}
    return web.json_response({**places, "issuer": f"https://{_HOST}/{TENANT_ID}/v2.0"})


def _signed_in(application: Application, tokens: Tokens, tenant: str, form: Mapping[str, str]) -> Token:
    """Return a token of the application; codes and texts of refusals are Entra's (AADSTS error codes)."""
    _check_tenant(tenant)
    given, client = form.get("grant_type", ""), form.get("client_id", "")
    if given != "client_credentials":
        problem = f"AADSTS70003: The app requested an unsupported grant type '{given}'."
        raise TokenError("unsupported_grant_type", problem)
    if client.lower() != application.client_id:
        problem = f"Application with identifier '{client}' was not found in the directory '{TENANT_ID}'."
        raise TokenError("unauthorized_client", f"AADSTS700016: {problem}")
    _check_proof(application, form)
    scope = form.get("scope", "").split(" ")[0]
    if not scope.endswith(_DEFAULT):
        problem = f"AADSTS1002012: The provided value for scope {scope} is not valid."
        raise TokenError("invalid_scope", problem)
    audience = scope.removesuffix(_DEFAULT)
    check_audience(audience)
    return tokens.issue(Identity("", application.object_id, application.client_id), audience)


def _check_tenant(tenant: str) -> None:
    if tenant.lower() != TENANT_ID:
        problem = f"Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID."
        raise TokenError("invalid_request", f"AADSTS90002: {problem}")


def _check_proof(application: Application, form: Mapping[str, str]) -> None:
    if "client_assertion" in form:
        known = form.get("client_assertion_type") == _ASSERTION_TYPE
        if not known or not _same(form["client_assertion"], application.assertion):
            problem = "AADSTS70021: No matching federated identity record found for presented assertion."
            raise TokenError("invalid_client", problem)
    elif "client_secret" not in form:
        problem = "'client_assertion', 'client_secret' or 'request' is required for the "
        raise TokenError("invalid_client", f"AADSTS7000216: {problem}'client_credentials' grant type.")
    elif not _same(form["client_secret"], application.secret):
        raise TokenError(
            "invalid_client",
            "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is "
            "the client secret value, not the client secret ID, for a secret added to app "
            f"'{application.client_id}'.",
        )


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), known.encode())
