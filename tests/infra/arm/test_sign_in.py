"""The commands sign in as Pulumi does: by the same variables, in the same order."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure import identity
from azure.core.exceptions import ClientAuthenticationError

from infra.arm.errors import explained
from infra.arm.rest import Rest
from infra.arm.sign_in import SCOPE, credential, sign_in_method
from launch.errors import InputError
from tests.infra.arm.token_endpoint import ASSERTION, CLIENT, SECRET, TENANT, ToEndpoint, token_endpoint
from tests.rehearsal.doubles import TOKEN, RecordingMachines, endpoint

WHO = {"ARM_TENANT_ID": TENANT, "ARM_CLIENT_ID": CLIENT}


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, identity.AzureCliCredential),
        (WHO, identity.AzureCliCredential),
        ({"ARM_USE_MSI": "false", "ARM_USE_OIDC": ""}, identity.AzureCliCredential),
        ({"ARM_USE_MSI": "true"}, identity.ManagedIdentityCredential),
        ({"ARM_USE_MSI": "true", "ARM_USE_OIDC": "true", **WHO}, identity.ClientAssertionCredential),
        ({"ARM_USE_OIDC": "true", "ARM_CLIENT_SECRET": SECRET, **WHO}, identity.ClientSecretCredential),
        ({"ARM_USE_DEFAULT_AZURE_CREDENTIAL": "true"}, identity.DefaultAzureCredential),
    ],
)
def test_the_first_method_that_the_variables_choose_is_taken(
    environment: dict[str, str], kind: type[object]
) -> None:
    assert type(credential(environment)) is kind


def test_a_certificate_comes_before_a_secret() -> None:
    given = {"ARM_CLIENT_CERTIFICATE_PATH": "/none.pem", "ARM_CLIENT_SECRET": SECRET, **WHO}
    with pytest.raises(InputError, match=r"ARM_CLIENT_CERTIFICATE_PATH = '/none.pem': cannot be read"):
        credential(given)


@pytest.mark.parametrize("missing", sorted(WHO))
@pytest.mark.parametrize("method", ["ARM_CLIENT_SECRET", "ARM_USE_OIDC"])
def test_a_variable_that_is_missing_is_named_with_the_one_that_asks_for_it(missing: str, method: str) -> None:
    with pytest.raises(InputError, match=rf"{missing}: is not set, and {method} asks for a sign-in by"):
        credential({method: "true", **WHO, missing: ""})


def test_the_order_is_that_of_pulumis_provider() -> None:
    order = "USE_DEFAULT_AZURE_CREDENTIAL CLIENT_CERTIFICATE_PATH CLIENT_SECRET USE_OIDC USE_MSI"
    names = [f"ARM_{name}" for name in order.split()]
    for place, name in enumerate(names):
        assert sign_in_method(dict.fromkeys(names[place:], "true")) == name
    assert sign_in_method({}) is None


@pytest.mark.parametrize("method", ["secret", "token", "file", "request"])
def test_a_rehearsal_is_reached_by_the_variables_without_the_cli(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "token").write_text(f"{ASSERTION}\n")
    with token_endpoint(TOKEN) as (url, requests), endpoint(RecordingMachines()) as it:
        oidc = {"ARM_USE_OIDC": "true"}
        given = {
            "secret": {"ARM_CLIENT_SECRET": SECRET},
            "token": {**oidc, "ARM_OIDC_TOKEN": ASSERTION},
            "file": {**oidc, "ARM_OIDC_TOKEN_FILE_PATH": str(tmp_path / "token")},
            "request": {
                **oidc,
                "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/oidc?v=1",
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of this job",
            },
        }[method]
        signed_in = credential({**WHO, **given}, transport=ToEndpoint(url))
        rest = Rest(it.url, lambda: signed_in.get_token(SCOPE).token)
        assert list(rest.pages("/subscriptions", **{"api-version": "2022-12-01"}))
    assert [form["grant_type"] for form in requests] == ["client_credentials"]
    assert requests[0]["scope"] == SCOPE


def test_a_wrong_secret_is_refused_in_one_line_that_names_the_variables() -> None:
    with token_endpoint(TOKEN) as (url, _asked):
        given = {**WHO, "ARM_CLIENT_SECRET": "another"}
        with pytest.raises(ClientAuthenticationError) as raised:
            credential(given, transport=ToEndpoint(url)).get_token(SCOPE)
    why = "AADSTS7000215: Invalid client secret provided."
    assert str(explained(raised.value)) == (
        f"Azure refuses the sign-in by ARM_* variables: {why}; correct them"
    )


def test_an_openid_sign_in_without_a_token_names_where_one_may_come_from() -> None:
    with token_endpoint(TOKEN) as (url, _asked):
        found = credential({"ARM_USE_OIDC": "true", **WHO}, transport=ToEndpoint(url))
        with pytest.raises(InputError, match="set ARM_OIDC_TOKEN or ARM_OIDC_TOKEN_FILE_PATH"):
            found.get_token(SCOPE)
