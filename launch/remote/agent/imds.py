"""Questions to a VM's metadata service, and what its answers say of the VM's end and of its tags.

Without :mod:`http` and :mod:`socket`, which would take more memory than all the rest of the agent. Facts and
their sources are in docs/evictions.md.
"""

from __future__ import annotations

import _socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[int, dict[str, str], bytes]

__all__ = [
    "IDENTITY",
    "IDLE",
    "OK",
    "TTL",
    "Event",
    "ask",
    "ask_and_stay",
    "events",
    "identity",
    "moment",
    "parse",
    "settings",
]

OK = 200
TAKING = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Types of events after which a VM's processes are gone; in a Freeze they only pause."""
TTL, IDLE = "ranklift-ttl-hours", "ranklift-idle-stop-minutes"
"""The scale set's tags that limit a cluster's life, and for how long it may have no job."""
IDENTITY = "ranklift-identity"
"""The scale set's tag with the client id of the nodes' identity: a VM may have others beside it."""
_LIMIT_BYTES = 4 << 20


class Event:
    """A scheduled event that takes this VM, no other where ``alone``, at somebody's request where
    ``by_user``; ``not_before`` is None once it has begun."""

    def __init__(self, id: str, kind: str, not_before: float | None, alone: bool, by_user: bool) -> None:
        self.id, self.kind, self.not_before, self.alone, self.by_user = id, kind, not_before, alone, by_user


def moment(text: str) -> float | None:
    """Return a time in UTC as seconds since 1970; None for anything else.

    >>> moment("Mon, 19 Sep 2016 18:29:47 GMT"), moment("2016-09-19T18:29:47.1234567+00:00"), moment("soon")
    (1474309787, 1474309787, None)
    """
    from calendar import timegm

    is_iso = text[10:11] == "T" and text[19:].lstrip(".0123456789") in ("", "Z", "+00:00")
    try:
        if is_iso:
            return timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
        return timegm(time.strptime(text, "%a, %d %b %Y %H:%M:%S GMT"))
    except ValueError:
        return None


def events(document: Any, name: str) -> tuple[list[Event], list[str]]:
    """Return the events that take the VM ``name``, and in words what of the document is not understood;
    without such words the list is whole."""
    listed = document.get("Events") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return [], ["the metadata service returned no list of Events"]
    found, odd = [], []
    for event in listed:
        kind = event.get("EventType") if isinstance(event, dict) else None
        if not isinstance(kind, str):
            odd.append("an event has no EventType")
            continue
        if kind not in TAKING:
            continue
        id, names = event.get("EventId"), event.get("Resources")
        if not (isinstance(id, str) and id and isinstance(names, list)):
            odd.append(f"a {kind} event has no EventId or no Resources")
            continue
        if name not in names:
            continue
        has_begun = event.get("EventStatus") == "Started"
        not_before = None if has_begun else moment(str(event.get("NotBefore")))
        if not_before is None and not has_begun:
            odd.append(f"{kind} event {id}: NotBefore is {event.get('NotBefore')!r:.60}")
            continue
        found.append(Event(id, kind, not_before, len(names) == 1, event.get("EventSource") == "User"))
    return found, odd


def settings(tags: Any) -> tuple[dict[str, float], list[str]]:
    """Return the seconds of the spans in the scale set's tags, by tag, and in words what is not a span.

    >>> settings([{"name": "ranklift-ttl-hours", "value": "1.5"}, {"name": "stack", "value": "dev"}])
    ({'ranklift-ttl-hours': 5400.0}, [])
    """
    spans, odd = {}, []
    for tag in tags if isinstance(tags, list) else []:
        name = tag.get("name") if isinstance(tag, dict) else None
        if name not in (TTL, IDLE):
            continue
        try:
            span = float(tag["value"]) * (3600 if name == TTL else 60)
        except (KeyError, TypeError, ValueError):
            span = 0.0
        if 0 < span < float("inf"):
            spans[name] = span
        else:
            odd.append(f"tag {name} is {tag.get('value')!r:.60}: ignored")
    return spans, odd


def identity(tags: Any) -> str:
    """Return the client id in the tag :data:`IDENTITY`; empty without one.

    >>> identity([{"name": "ranklift-identity", "value": "1b4e28ba"}]), identity(None)
    ('1b4e28ba', '')
    """
    for tag in tags if isinstance(tags, list) else []:
        if isinstance(tag, dict) and tag.get("name") == IDENTITY and isinstance(tag.get("value"), str):
            return str(tag["value"]).strip()
    return ""


def parse(data: bytes) -> Answer | None:
    """Return status, headers by lower-case name, and body of an HTTP answer; None while it is not whole.
    Raise ValueError for anything else."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1."):
        raise ValueError(f"no answer over HTTP: {first[:60]!r}")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    status = int([*first.split(), ""][1])
    if headers.get("transfer-encoding", "").lower() == "chunked":
        whole, size = b"", -1
        while size:
            line, found, body = body.partition(b"\r\n")
            size = int(line.partition(b";")[0], 16) if found else 0
            if not found or len(body) < size + 2:
                return None
            whole, body = whole + body[:size], body[size + 2 :]
        return status, headers, whole
    length = int(headers.get("content-length", "0"))
    return (status, headers, body[:length]) if len(body) >= length else None


def ask(method: str, base: str, path: str, body: bytes, limit: float) -> Answer:
    """Return the answer to one question over plain HTTP, past any proxy; ``base`` is ``http://HOST[:PORT]``
    or ``unix:PATH``. Raise OSError without an answer within ``limit`` seconds, and as :func:`parse`."""
    answer, link = ask_and_stay(method, base, path, body, limit)
    link.close()
    return answer


def ask_and_stay(
    method: str, base: str, path: str, body: bytes, limit: float
) -> tuple[Answer, _socket.socket]:
    """Return the answer as :func:`ask` does, and the connection, which is still open."""
    path_of_socket = base[len("unix:") :] if base.startswith("unix:") else ""
    address = "localhost" if path_of_socket else base.partition("://")[2]
    host, _, port = address.partition(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nMetadata: true\r\nConnection: close\r\n"
    if body:
        head += "Content-Type: application/json\r\n"
    link = _socket.socket(_socket.AF_UNIX if path_of_socket else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        link.settimeout(limit)
        link.connect(path_of_socket or (host, int(port or 80)))
        link.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return _answer(link, limit), link
    except BaseException:
        link.close()
        raise


def _answer(link: _socket.socket, limit: float) -> Answer:
    data, until = b"", time.monotonic() + limit
    while True:
        piece = link.recv(65536)
        data += piece
        answer = parse(data)
        if answer is not None:
            return answer
        if not piece or len(data) > _LIMIT_BYTES or time.monotonic() > until:
            raise OSError(f"the answer breaks off after {len(data)} bytes")
