"""The directory: its application signs in by a secret or its pipeline's token, and gets one of its own."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rehearsal.arm.auth.directory import Application, make_directory
from rehearsal.imds.tokens import TENANT_ID, Tokens

APPLICATION = Application()
BY_SECRET = {"client_secret": APPLICATION.secret}
BY_TOKEN = {
    "client_assertion": APPLICATION.assertion,
    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
}
FORM = {
    "grant_type": "client_credentials",
    "client_id": APPLICATION.client_id,
    "scope": "https://management.azure.com/.default",
}


def sign_in(tokens: Tokens, tenant: str = TENANT_ID, **form: str) -> tuple[int, dict[str, str]]:
    """Status and body of the directory's answer."""

    async def ask() -> tuple[int, dict[str, str]]:
        async with TestClient(TestServer(make_directory(APPLICATION, tokens))) as client:
            path = f"/{tenant}/oauth2/v2.0/token"
            async with client.post(path, data=form) as answer:
                return answer.status, await answer.json()

    return asyncio.run(ask())


@pytest.mark.parametrize("proof", [BY_SECRET, BY_TOKEN])
def test_the_application_gets_a_token_that_the_endpoints_know_as_its_own(proof: dict[str, str]) -> None:
    tokens = Tokens()
    status, answer = sign_in(tokens, **FORM, **proof)
    assert (status, answer["token_type"]) == (200, "Bearer")
    token = tokens.find(answer["access_token"])
    assert token is not None
    assert token.audience == "https://management.azure.com"
    held = token.identity
    assert (held.principal_id, held.client_id) == (APPLICATION.object_id, APPLICATION.client_id)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"tenant": "another"}, 400, "AADSTS90002"),
        ({"client_id": "another"}, 400, "AADSTS700016"),
        ({"client_secret": "another"}, 401, "AADSTS7000215"),
        ({"client_secret": APPLICATION.client_id}, 401, "AADSTS7000215"),
        ({"client_assertion": "another"}, 401, "AADSTS70021"),
        ({"client_assertion": APPLICATION.assertion}, 401, "AADSTS70021"),
        ({"client_assertion": APPLICATION.secret, "client_assertion_type": ""}, 401, "AADSTS70021"),
        ({"grant_type": "password"}, 400, "AADSTS70003"),
        ({"scope": "https://management.azure.com"}, 400, "AADSTS1002012"),
        ({"scope": "https://graph.microsoft.com/.default"}, 400, "AADSTS500011"),
    ],
)
def test_everything_else_is_refused_with_entras_code(change: dict[str, str], status: int, code: str) -> None:
    refused, answer = sign_in(Tokens(), **{**FORM, **BY_SECRET, **change})
    assert (refused, answer["error_description"].partition(":")[0]) == (status, code)
    assert "access_token" not in answer


def test_a_sign_in_needs_a_proof() -> None:
    assert sign_in(Tokens(), **FORM)[1]["error_description"].startswith("AADSTS7000216:")


def test_no_error_shows_a_secret() -> None:
    assert APPLICATION.secret not in repr(APPLICATION)
    assert APPLICATION.assertion not in repr(APPLICATION)
