"""Errors of an update, from the engine's events: their kind, and what to do about each.

The engine writes its events as JSON lines (``pulumi up --event-log FILE``); a provider's errors are text in
them, with Azure's own codes: azure-native writes them ``Status=409 Code="…" Message="…"``
(pulumi/pulumi-azure-native pull request 4765 shows one), the SDKs below it in other ways. The codes are from
Microsoft's pages "Troubleshoot common Azure deployment errors" and "Troubleshoot allocation failures"
(learn.microsoft.com); errors with other codes are shown in Azure's words alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.arm.errors import MissingRight, NotSignedIn, Throttled, explained, requested_pause, throttling
from infra.arm.pulumi_state import resource_name
from launch.errors import RankliftError

__all__ = [
    "AzureFailed",
    "Kind",
    "Progress",
    "Trouble",
    "advice",
    "kind_of",
    "patience",
    "plain_diagnostic",
    "troubles",
]

Kind = Literal[
    "again",
    "throttled",
    "replicating",
    "partial",
    "no-boot",
    "quota",
    "size",
    "login",
    "rights",
    "in-use",
    "other",
]
"""What an error calls for: the same command again, a decision about partial capacity, or a person."""

_KINDS: Mapping[Kind, frozenset[str]] = {
    "again": frozenset(
        {
            "anotheroperationinprogress",
            "conflict",
            "conflictingconcurrentwritenotallowed",
            "conflictingserveroperation",
            "operationpreempted",
            "referencedresourcenotprovisioned",
            "resourcegroupbeingdeleted",
            "retryableerror",
            "retryableerrorduetoanotheroperation",
        }
    ),
    "throttled": frozenset(
        {"429", "subscriptionrequeststhrottled", "toomanyrequests", "toomanyrequestsreceived"}
    ),
    # A role or identity that was just made is not known everywhere at once:
    # hashicorp/terraform-provider-azurerm issue 10442, MicrosoftDocs/azure-docs issue 103085.
    "replicating": frozenset({"principalnotfound", "roledefinitiondoesnotexist"}),
    "partial": frozenset(
        {
            "allocationfailed",
            "overconstrainedallocationrequest",
            "overconstrainedzonalallocationrequest",
            "zonalallocationfailed",
        }
    ),
    "no-boot": frozenset({"osprovisioningtimedout"}),
    "quota": frozenset({"quotaexceeded"}),
    "size": frozenset({"skunotavailable", "notavailableforsubscription"}),
    "login": frozenset(
        {"expiredauthenticationtoken", "invalidauthenticationtoken", "authenticationfailed", "unauthorized"}
    ),
    "rights": frozenset({"authorizationfailed", "linkedauthorizationfailed", "requestdisallowedbypolicy"}),
    "in-use": frozenset({"inusesubnetcannotbedeleted"}),
}
_CODES = (
    re.compile(r'Code="(\w+)"'),
    re.compile(r"ERROR CODE:\s*(\w+)"),
    re.compile(r'"code"\s*:\s*"(\w+)"'),
    re.compile(r"(?:^|\*\s+|error: )([A-Z]\w*[a-z][A-Z]\w*|Conflict|Unauthorized): ", re.MULTILINE),
)
_MESSAGES = (re.compile(r'Message="((?:[^"\\]|\\.)*)"'), re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"'))
_SIGNED_OUT = re.compile(r"AADSTS\d+|az login|Please run 'az login'|DefaultAzureCredential")
_COLOUR = re.compile(r"<\{%.*?%\}>")
"""Pulumi's marks of colours, which its log has where its output is a terminal."""
_CANCELLING = "received; cancelling"
"""In what Pulumi prints when Ctrl-C or SIGTERM comes (its backend/cancellation_scope.go)."""
_TOO_MANY = 429
_IN_AZURE = re.compile(r"azure-native:\w+:\w+::")
_UNKNOWN_RIGHT = re.compile(
    r"^VirtualMachineImageTemplate .*: .*(Not authorized to access the resource|action 'Microsoft\.Compute/)",
    re.DOTALL,
)
"""How Image Builder refuses a template while it does not see the right of the identity in it, which was just
assigned (danielsollondon/azvmimagebuilder issue 29); the user's own missing right is to another action."""
_HOLDER = re.compile(r"is in use by (/\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The error of one resource that could not be made, changed or removed."""

    resource: str
    """Its type and name in the program; empty if the program itself or Pulumi failed."""
    code: str
    """Azure's code; empty if there is none."""
    message: str

    def __str__(self) -> str:
        front = ": ".join(filter(None, (self.resource, self.code)))
        return f"{front}: {self.message}" if front else self.message


@dataclass(slots=True)
class Progress:
    """The state of an update, from its events so far."""

    under_way: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Operation and start (engine's clock) of each resource in progress, by urn; no unchanged ones."""
    cancelled: dict[str, tuple[str, float]] | None = None
    """The same at the time at which Pulumi took Ctrl-C or SIGTERM; None if none came."""
    failed: list[Trouble] = field(default_factory=list)
    has_begun: bool = False
    """Whether it has begun to change anything: a preview does not."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Take the next event."""
        begun = event.get("resourcePreEvent") or {}
        if begun and not begun.get("planning") and begun["metadata"]["op"] not in ("same", "read"):
            metadata = begun["metadata"]
            self.has_begun |= metadata["op"] != "refresh"
            if _IN_AZURE.search(metadata["urn"]):
                self.under_way[metadata["urn"]] = (metadata["op"], float(event.get("timestamp", 0)))
        for ended in ("resOutputsEvent", "resOpFailedEvent"):
            if ended in event:
                self.under_way.pop(event[ended]["metadata"]["urn"], None)
        if self.cancelled is None and _CANCELLING in str((event.get("stdoutEvent") or {}).get("message")):
            self.cancelled = dict(self.under_way)
        self.failed += troubles([event])


def troubles(events: Iterable[Mapping[str, Any]]) -> list[Trouble]:
    """Return the errors in the events, in order, without the final one that the update failed."""
    found = []
    for event in events:
        said = event.get("diagnosticEvent")
        if said is None or said.get("severity") != "error":
            continue
        name, text = plain_diagnostic(said)
        if not text or text in (
            "update failed",
            "update canceled",
            "resource monitor shut down while waiting on step's done channel",
        ):
            continue
        # Errors of the program or of Pulumi itself have no code of Azure's, though they may look so.
        found.append(Trouble(name, _code(text) if name else "", _message(text)))
    return found


def plain_diagnostic(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return a diagnostic's resource, empty for the program and Pulumi itself, and its uncoloured text."""
    urn = str(found.get("urn") or "")
    name = "" if not urn or "pulumi:pulumi:Stack" in urn.rpartition("$")[2] else resource_name(urn)
    return name, _COLOUR.sub("", str(found.get("message", ""))).strip()


def _code(text: str) -> str:
    codes = [match[1] for pattern in _CODES for match in pattern.finditer(text)]
    telling = [code for code in codes if _by_code(code) != "other"]
    return next(iter(telling or codes), "")


def _message(text: str) -> str:
    for pattern in _MESSAGES:
        match = pattern.search(text)
        if match is not None:
            return match[1].replace('\\"', '"').strip()
    words = re.sub(r"^\d+ errors? occurred:\s*\*\s*", "", text)
    return " ".join(re.sub(r"^\w+: ", "", words, count=1).split() if _code(text) else words.split())


def _by_code(code: str) -> Kind:
    lowered = code.lower()
    return next((kind for kind, codes in _KINDS.items() if lowered in codes), "other")


def kind_of(trouble: Trouble) -> Kind:
    """Return what the error calls for."""
    if trouble.code.lower() == "operationnotallowed":
        # Compute answers so for quotas and for too many requests.
        if "quota" in trouble.message.lower():
            return "quota"
        if "too many requests" in trouble.message.lower():
            return "throttled"
    if _UNKNOWN_RIGHT.match(str(trouble)):
        return "replicating"
    kind = _by_code(trouble.code)
    return "login" if kind == "other" and _SIGNED_OUT.search(trouble.message) else kind


def patience(trouble: Trouble) -> int | None:
    """Return the seconds that Azure asks to wait; None if it names none.

    >>> patience(Trouble("", "429", "Please try again after '17' seconds after additional tokens."))
    17
    """
    return requested_pause(trouble.message)


def advice(trouble: Trouble, update: str, removal: str) -> str:
    """Return what to do about it, in one line; empty if Azure's message is all there is.

    ``update`` and ``removal`` are the commands that continue with the stack and remove it.
    """
    holder = _HOLDER.search(trouble.message)
    what = holder[1].rstrip(".,") if holder else "something"
    return {
        "again": "Azure is still working on a resource of that name: repeat the command",
        "throttled": f"{throttling(patience(trouble))}: nothing is lost, it continues where it stopped",
        "replicating": "Azure does not know a role or identity of the stack's everywhere yet, or somebody "
        "deleted it: repeat the command in some minutes",
        "partial": "",
        "no-boot": f"`{update}` makes another node in its place",
        "quota": "ask for more quota (portal: Subscriptions, Usage + quotas) or fewer nodes; see `fab plan`",
        "size": "choose another region or size (`fab plan` shows what is offered), or ask for access to it",
        "login": "the sign-in has expired: run `az login`, then repeat the command; it continues from there",
        "rights": "the signed-in identity lacks a right: ask for Contributor on the subscription, and for "
        "User Access Administrator where roles are given: for storage, monitor, ttlHours, idleStopMinutes, "
        "images",
        "in-use": f"{what} is in it and is not of the stack: remove it, then `{removal}`",
        "other": "",
    }[kind_of(trouble)]


class AzureFailed(RankliftError):
    """An SDK's error while doing ``what``: Azure's message, and what to do about it."""

    def __init__(self, what: str, stack: str, error: Exception) -> None:
        self.trouble = _trouble_of(error)
        known = explained(error)
        if isinstance(known, NotSignedIn | MissingRight | Throttled):
            # These have shorter text than the SDKs', the missing right's name, or the pause that only the
            # headers have.
            super().__init__(f"{what}: {known}")
            return
        update, removal = f"fab up --stack {stack}", f"fab down --stack {stack}"
        hint = advice(self.trouble, update, removal)
        if self.trouble.code in ("ResourceNotFound", "ResourceGroupNotFound"):
            hint = (
                f"it was removed, by an interrupted `fab down` or in Azure: "
                f"`{update}` makes it again, `{removal}` removes the rest"
            )
        super().__init__(f"{what}: {self.trouble}" + (f"\n{hint}" if hint else ""))


def _trouble_of(error: Exception) -> Trouble:
    known = getattr(error, "error", None)
    code = getattr(known, "code", None) or ""
    text = getattr(known, "message", None) or getattr(error, "message", None) or str(error)
    throttled = "429" if getattr(error, "status_code", None) == _TOO_MANY else ""
    return Trouble("", str(code) or throttled, " ".join(str(text).split()))
