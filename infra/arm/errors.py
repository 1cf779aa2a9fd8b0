"""Errors of Azure's management API, each in one line with its remedy.

::

    AzureRefused            Azure refused, or did not answer
    ├── NotSignedIn         no valid sign-in: `az login`
    ├── MissingRight        the identity lacks a right, which is named
    └── Throttled           too many requests: wait
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.errors import RankliftError, RetryError

__all__ = [
    "AzureRefused",
    "MissingRight",
    "NotSignedIn",
    "Throttled",
    "explained",
    "refusal",
    "requested_pause",
    "sign_in_failed",
    "throttling",
]

_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 401, 403, 429
_PAUSE = re.compile(r"(?:try again|retry) (?:after|in) '?(\d+)'? seconds", re.IGNORECASE)
_LACKS = re.compile(r"perform action '(?P<action>[^']+)' over scope '(?P<scope>[^']+)'")


class AzureRefused(RankliftError):
    """Azure answered with an error: ``code`` is Azure's, ``status`` HTTP's."""

    def __init__(self, text: str, code: str = "", status: int = 0) -> None:
        self.code, self.status = code, status
        super().__init__(text)


class NotSignedIn(AzureRefused):
    """There is no sign-in to Azure, or it has expired."""


class MissingRight(AzureRefused):
    """The signed-in identity lacks the right to ``action`` on ``scope``, as Azure names them."""

    def __init__(self, text: str, code: str, status: int, action: str | None, scope: str | None) -> None:
        self.action, self.scope = action, scope
        super().__init__(text, code, status)


class Throttled(AzureRefused, RetryError):
    """Azure asks for a longer pause than a command should take."""


def explained(error: Exception) -> RankliftError:
    """Return an SDK's exception as an error of this project: one line with the remedy.

    >>> class ClientAuthenticationError(Exception):
    ...     message = "DefaultAzureCredential failed to retrieve a token from the included credentials."
    >>> str(explained(ClientAuthenticationError()))
    'not signed in to Azure; run `az login`'
    """
    if isinstance(error, RankliftError):
        return error
    inner = getattr(error, "error", None)
    # The SDKs' text repeats Azure's message, as "(Code) message" and as "Message: message".
    text = getattr(inner, "message", None) or getattr(error, "message", None) or str(error)
    code = str(getattr(inner, "code", None) or "")
    status = int(getattr(error, "status_code", None) or 0)
    names = {kind.__name__ for kind in type(error).__mro__}
    if status == 0 and names & {"ClientAuthenticationError", "CredentialUnavailableError"}:
        return sign_in_failed(text)
    headers = getattr(getattr(error, "response", None), "headers", None)
    return refusal(status, code, text, headers)


def requested_pause(text: str, headers: Mapping[str, str] | None = None) -> int | None:
    """Return the seconds that Azure asks to wait, by message or header; None if neither has them.

    >>> requested_pause("Please try again after '17' seconds after additional tokens.")
    17
    >>> requested_pause("slow down")
    >>> requested_pause("slow down", {"retry-after": "41"})
    41
    """
    said = _PAUSE.search(text)
    if said is not None:
        return int(said[1])
    given = {name.lower(): value for name, value in (headers or {}).items()}
    seconds = str(given.get("retry-after", ""))  # it may also be a date, which Azure's ARM does not send
    return int(seconds) if seconds.isascii() and seconds.isdigit() else None


def throttling(seconds: int | None) -> str:
    """Return the sentence for too many requests, with the pause that Azure asks for.

    >>> throttling(17)
    'Azure throttles: this subscription had too many requests; wait 17 s, then repeat the command'
    """
    span = "some minutes" if seconds is None else f"{seconds} s"
    return f"Azure throttles: this subscription had too many requests; wait {span}, then repeat the command"


def sign_in_failed(text: str) -> NotSignedIn:
    """Return the error for azure-identity's text, which has a paragraph for every way that it tried.

    Codes that begin with 7000, 70021 or 900 are about an application and its tenant (learn.microsoft.com,
    "Microsoft Entra authentication and authorization error codes").

    >>> str(sign_in_failed("Authentication failed: AADSTS7000222: The secret is expired"))
    'Azure refuses the sign-in by ARM_* variables: AADSTS7000222: The secret is expired; correct them'
    """
    if expired := re.search(r"AADSTS(?:70043|700082|50173|700084)\b", text):
        return NotSignedIn(f"the sign-in to Azure has expired ({expired[0]}); run `az login`")
    if own := re.search(r"AADSTS(?:7000(?!8)\d+|70021\d*|900\d+)\b[^\n]*", text):
        return NotSignedIn(f"Azure refuses the sign-in by ARM_* variables: {own[0].strip()}; correct them")
    if other := re.search(r"AADSTS\d+[^\n]*", text):
        return NotSignedIn(f"Azure refuses the sign-in: {other[0].strip()}; run `az login`")
    if "failed to retrieve a token" in text or "az login" in text or "not found on path" in text:
        return NotSignedIn("not signed in to Azure; run `az login`")
    return NotSignedIn(f"the sign-in to Azure failed: {text.strip().splitlines()[0]}; run `az login`")


def refusal(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> AzureRefused:
    """Return the error for an answer with this HTTP status and Azure's ``code`` and ``text``."""
    said = f"{code}: {text}" if code and code not in text else text or f"HTTP status {status}"
    if status == _UNAUTHORIZED or code in ("ExpiredAuthenticationToken", "InvalidAuthenticationToken"):
        why = "has expired" if code.startswith("Expired") else "is refused by Azure"
        return NotSignedIn(f"the sign-in to Azure {why}; run `az login`", code, status)
    if "AuthorizationFailed" in code or (status == _FORBIDDEN and _LACKS.search(text)):
        lacks = _LACKS.search(text)
        if lacks is None:
            return MissingRight(
                f"Azure refuses the request of the signed-in identity: {said}", code, status, None, None
            )
        action, scope = lacks["action"], lacks["scope"]
        return MissingRight(
            f"the signed-in identity lacks the right {action} on {scope}; ask for a role that has it, like "
            f"Reader for reading and Contributor for changes",
            code,
            status,
            action,
            scope,
        )
    if status == _TOO_MANY:
        return Throttled(f"{throttling(requested_pause(text, headers))}\n{said}", code, status)
    return AzureRefused(f"Azure answered: {said}", code, status)
