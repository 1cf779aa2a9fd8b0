"""What an engine's events say went wrong in Azure, and what that means for whoever asked for it.

The engine writes its events as JSON lines (``pulumi up --event-log FILE``); a provider's errors are in them
as text, whose codes are Azure's own: azure-native words them ``Status=409 Code="…" Message="…"``
(pulumi/pulumi-azure-native pull request 4765 shows one), the SDKs below it in other ways. The codes are from
Microsoft's pages "Troubleshoot common Azure deployment errors" and "Troubleshoot allocation failures"
(learn.microsoft.com); what is not listed here is shown in Azure's words alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.arm.errors import MissingRight, NotSignedIn, Throttled, asked_pause, explained, throttling
from launch.errors import RankliftError

__all__ = ["AzureFailed", "Progress", "Trouble", "advice", "kind_of", "patience", "troubles"]

Kind = Literal[
    "again", "throttled", "partial", "no-boot", "quota", "size", "login", "rights", "in-use", "other"
]
"""What a trouble asks for: the same once more, a decision about the nodes that came, or a person."""

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
_MESSAGES = (
    re.compile(r'Message="((?:[^"\\]|\\.)*)"'),
    re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"'),
)
_SIGNED_OUT = re.compile(r"AADSTS\d+|az login|Please run 'az login'|DefaultAzureCredential")
_TOO_MANY = 429
_IN_AZURE = re.compile(r"azure-native:\w+:\w+::")
_HOLDER = re.compile(r"is in use by (/\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One resource that could not be made, changed or removed."""

    resource: str
    """Its kind and name in the program; empty when it is the program itself, or Pulumi, that failed."""
    code: str
    """Azure's; empty when there is none."""
    message: str

    def __str__(self) -> str:
        front = ": ".join(filter(None, (self.resource, self.code)))
        return f"{front}: {self.message}" if front else self.message


@dataclass(slots=True)
class Progress:
    """What an update is doing, from its events as they come."""

    under_way: dict[str, tuple[str, float]]
    """By urn, what is done with a resource and since when, in the engine's clock; nothing for what is the
    same."""
    failed: list[Trouble]

    @classmethod
    def begin(cls) -> Progress:
        """Nothing has come yet."""
        return cls({}, [])

    def take(self, event: Mapping[str, Any]) -> None:
        """The next event."""
        if "resourcePreEvent" in event:
            metadata = event["resourcePreEvent"]["metadata"]
            if metadata["op"] not in ("same", "read") and _IN_AZURE.search(metadata["urn"]):
                self.under_way[metadata["urn"]] = (metadata["op"], float(event.get("timestamp", 0)))
        for ended in ("resOutputsEvent", "resOpFailedEvent"):
            if ended in event:
                self.under_way.pop(event[ended]["metadata"]["urn"], None)
        self.failed += troubles([event])


def troubles(events: Iterable[Mapping[str, Any]]) -> list[Trouble]:
    """What the events say failed, in order; that the update failed because of it is left out."""
    found = []
    for event in events:
        said = event.get("diagnosticEvent")
        if said is None or said.get("severity") != "error":
            continue
        text = str(said.get("message", "")).strip()
        urn = str(said.get("urn") or "")
        if not text or text in (
            "update failed",
            "resource monitor shut down while waiting on step's done channel",
        ):
            continue
        name = _name(urn)
        # What the program or Pulumi itself says has no codes of Azure's, though it may look so.
        found.append(Trouble(name, _code(text) if name else "", _message(text)))
    return found


def _name(urn: str) -> str:
    """A resource as people know it.

    >>> _name("urn:pulumi:dev::ranklift::a$azure-native:network:Subnet::nodes")
    'Subnet nodes'
    """
    if not urn or "pulumi:pulumi:Stack" in urn.rpartition("$")[2]:
        return ""
    kind, _, name = urn.rpartition("::")
    return f"{re.split('[:/$]', kind)[-1]} {name}"


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
    """What the trouble asks for."""
    if trouble.code.lower() == "operationnotallowed":
        # Compute says so of quotas, and of requests that are too many.
        if "quota" in trouble.message.lower():
            return "quota"
        if "too many requests" in trouble.message.lower():
            return "throttled"
    kind = _by_code(trouble.code)
    return "login" if kind == "other" and _SIGNED_OUT.search(trouble.message) else kind


def patience(trouble: Trouble) -> int | None:
    """How many seconds Azure asks to wait; None when it does not say.

    >>> patience(Trouble("", "429", "Please try again after '17' seconds after additional tokens."))
    17
    """
    return asked_pause(trouble.message)


def advice(trouble: Trouble, stack: str) -> str:
    """What to do about it, in one line; empty when nobody but Azure's own words can tell."""
    holder = _HOLDER.search(trouble.message)
    what = holder[1].rstrip(".,") if holder else "something"
    return {
        "again": "Azure is still busy with something of that name: repeat the command",
        "throttled": f"{throttling(patience(trouble))}: nothing is lost, it goes on where it was",
        "partial": "",
        "no-boot": f"`fab up --stack {stack}` makes another node in its place",
        "quota": "ask for more quota (portal: Subscriptions, Usage + quotas) or fewer nodes; see `fab plan`",
        "size": "choose another region or size (`fab plan` says what is offered), or ask for access to it",
        "login": "the login has expired: run `az login`, then repeat the command; it goes on where it was",
        "rights": "the identity you are logged in with may not do that: ask for Contributor on the "
        "subscription, and for User Access Administrator where storage, ttlHours or idleStopMinutes is set",
        "in-use": f"{what} is in it, not of the stack's making: remove that, then `fab down --stack {stack}`",
        "other": "",
    }[kind_of(trouble)]


class AzureFailed(RankliftError):
    """Azure did not do or tell something: its own words, and what to do about it.

    ``error`` is what one of its SDKs raised.
    """

    def __init__(self, what: str, stack: str, error: Exception) -> None:
        self.trouble = _trouble_of(error)
        known = explained(error)
        if isinstance(known, NotSignedIn | MissingRight | Throttled):
            # azure-identity says in paragraphs what is one line; of a right its name is what helps; and for
            # how long Azure throttles may be in its answer's headers alone.
            super().__init__(f"{what}: {known}")
            return
        hint = advice(self.trouble, stack)
        if self.trouble.code in ("ResourceNotFound", "ResourceGroupNotFound"):
            hint = (
                f"it was removed, by a `fab down` that was interrupted or by somebody in Azure: "
                f"`fab up --stack {stack}` makes it again, `fab down --stack {stack}` removes the rest"
            )
        super().__init__(f"{what}: {self.trouble}" + (f"\n{hint}" if hint else ""))


def _trouble_of(error: Exception) -> Trouble:
    known = getattr(error, "error", None)
    code = getattr(known, "code", None) or ""
    text = getattr(known, "message", None) or getattr(error, "message", None) or str(error)
    throttled = "429" if getattr(error, "status_code", None) == _TOO_MANY else ""
    return Trouble("", str(code) or throttled, " ".join(str(text).split()))
