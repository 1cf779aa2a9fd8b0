"""Azure's refusals and azure-identity's paragraphs, in one line each."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from azure.identity import CredentialUnavailableError

from infra.arm.errors import AzureRefused, MissingRight, NotSignedIn, Throttled, explained, refusal
from launch.errors import InputError, RankliftError

NOBODY = """DefaultAzureCredential failed to retrieve a token from the included credentials.
Attempted credentials:
\tEnvironmentCredential: EnvironmentCredential authentication unavailable. Environment variables are \
not fully configured.
\tAzureCliCredential: Please run 'az login' to set up an account
To mitigate this issue, please refer to the troubleshooting guidelines here at https://aka.ms/azsdk/x."""
EXPIRED = """AzureCliCredential: ERROR: AADSTS700082: The refresh token has expired due to inactivity. The \
token was issued on 2026-01-01.
Trace ID: 1"""
UNTRUSTED = "AADSTS700213: No matching federated identity record found for presented assertion subject 'a'."
REVOKED = "ERROR: AADSTS50076: Due to a change, you must use more.\nTrace ID"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ClientAuthenticationError(message=NOBODY), "not signed in to Azure; run `az login`"),
        (
            CredentialUnavailableError(message="Azure CLI not found on path"),
            "not signed in to Azure; run `az login`",
        ),
        (
            ClientAuthenticationError(message=EXPIRED),
            "the sign-in to Azure has expired (AADSTS700082); run `az login`",
        ),
        (
            ClientAuthenticationError(message=REVOKED),
            "Azure refuses the sign-in: AADSTS50076: Due to a change, you must use more.; run `az login`",
        ),
        (
            ClientAuthenticationError(message=UNTRUSTED),
            f"Azure refuses the sign-in by ARM_* variables: {UNTRUSTED}; correct them",
        ),
        (ClientAuthenticationError(message="odd\nlines"), "the sign-in to Azure failed: odd; run `az login`"),
    ],
)
def test_who_is_not_signed_in_is_told_how(error: Exception, text: str) -> None:
    result = explained(error)
    assert isinstance(result, NotSignedIn)
    assert str(result) == text


def test_our_own_errors_stay_what_they_are() -> None:
    error = InputError("a", 1, "b", "c")
    assert explained(error) is error


def test_an_sdks_error_keeps_azures_words() -> None:
    result = explained(HttpResponseError(message="(Conflict) it is being deleted"))
    assert isinstance(result, AzureRefused)
    assert "(Conflict) it is being deleted" in str(result)
    assert isinstance(explained(ServiceRequestError("Connection refused")), RankliftError)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "InvalidAuthenticationToken", NotSignedIn),
        (401, "", NotSignedIn),
        (403, "AuthorizationFailed", MissingRight),
        (403, "LinkedAuthorizationFailed", MissingRight),
        (403, "RequestDisallowedByPolicy", AzureRefused),
        (429, "TooManyRequests", Throttled),
        (409, "Conflict", AzureRefused),
    ],
)
def test_each_refusal_is_the_error_that_says_what_to_do(
    status: int, code: str, kind: type[AzureRefused]
) -> None:
    error = refusal(status, code, "words")
    assert type(error) is kind
    assert (error.status, error.code) == (status, code)


def test_a_policy_is_no_missing_right() -> None:
    error = refusal(403, "RequestDisallowedByPolicy", "Resource 'x' was disallowed by policy.")
    assert not isinstance(error, MissingRight)
    assert "disallowed by policy" in str(error)


@pytest.mark.parametrize(
    ("text", "headers", "pause"),
    [
        ("Please try again after '17' seconds after more", {}, "17 s"),
        ("Please try again after '17' seconds after more", {"Retry-After": "41"}, "17 s"),
        ("slow down", {"retry-after": "41"}, "41 s"),
        ("slow down", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "some minutes"),
        ("slow down", {}, "some minutes"),
    ],
)
def test_throttling_is_a_sentence_with_its_cause_and_azures_own_pause(
    text: str, headers: dict[str, str], pause: str
) -> None:
    assert str(refusal(429, "TooManyRequests", text, headers)) == (
        f"Azure throttles: this subscription had too many requests; wait {pause}, then repeat the command\n"
        f"TooManyRequests: {text}"
    )


def test_azures_words_come_once_where_an_sdk_has_them_twice() -> None:
    refused = HttpResponseError(message="(Busy) later\nCode: Busy\nMessage: later")
    refused.status_code = 429
    refused.error = Mock(code="Busy", message="later")
    assert str(explained(refused)).splitlines()[1:] == ["Busy: later"]
