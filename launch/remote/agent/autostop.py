"""The end of a whole cluster: when its time is over, or when no job ran on it for long enough.

Every node's agent, where the scale set's tags limit either, runs this now and then as ``watch.py lead
'{"compute": {...}, "spans": {...}, "idle_s": 0, "new": 0, "memory": {...}, "imds": "...", "home": "..."}'``:
it checks once and answers in JSON. A process of its own, for Python's TLS takes more memory than the agent
may have.

The lowest node of the scale set leads whose agent runs and whose last check succeeded, as its file ``leads``
says; the next one steps in where Azure refuses a node or cannot be reached from it. Others check the more
rarely the more nodes come before them: 300 nodes query Azure some six times a minute together. The leader
deletes the set, or the nodes that it found idle, with the rights of the nodes' identity, which has no others.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from typing import Any
from urllib.parse import quote

from launch.remote.agent.entry import WATCH
from launch.remote.agent.idleness import idleness, numbers
from launch.remote.agent.imds import IDLE, OK, TTL, identity, moment

__all__ = [
    "Nodes",
    "Refused",
    "ScaleSet",
    "look",
    "main",
    "members",
    "pause",
    "time_left",
]

LOOK_S, REFUSED_S = 60.0, 600.0
"""Longest seconds between two checks, and seconds after Azure refused or did what it was to do."""
WARNING_S = 60.0
"""Seconds before a cluster's end at which its jobs are ended; a quarter of lives under 4 min."""
LATE_S = 300.0
"""Seconds after a cluster's end at which every node deletes it, whoever leads; a leader takes 120."""
_SLACK_S = 5.0
LIMIT_S, _ALL_S = 20.0, 60.0
"""Seconds for one answer, and for those of all nodes: the shell of a node's user may never answer, and the
agent ends a check after ``LOOK_LIMIT_S``."""
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5")
"""``AGENT_ANSWER_S`` and ``ssh_options`` of :mod:`launch.remote.base.timing`, which a test compares: the
agent comes with cloud-init, whose size Azure limits, and would bring that whole module along."""
_OWN_OPTIONS = ("-F", "none", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-T")
"""No ``~/.ssh/config``: the nodes' user could have it start programs, with the agent's rights."""
_AT_ONCE = 32
_PAGE_BYTES, _ANSWER_BYTES = 16 << 20, 4096
_FULFILLED = (OK, 201, 202, 204)
_UNAUTHORIZED = (401, 403)
_TOKEN = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource="  # noqa: S105  a path
_API = "2024-07-01"
_ENVIRONMENTS = {
    "azurepubliccloud": "https://management.azure.com",
    "azureusgovernmentcloud": "https://management.usgovcloudapi.net",
    "azurechinacloud": "https://management.chinacloudapi.cn",
    "rankliftrehearsal": "",  # whoever answers for the metadata service passes on what is Azure's
}


class Refused(Exception):
    """Azure refused, or its answer is not understood; next check after ``wait`` s."""

    def __init__(self, words: str, wait: float) -> None:
        super().__init__(words)
        self.wait = wait


def pause(status: int, headers: dict[str, str], usual: float) -> float:
    """Return the seconds until the next check after an answer with ``status``.

    >>> pause(429, {"retry-after": "17"}, 60.0), pause(403, {}, 60.0), pause(500, {}, 60.0)
    (17.0, 600.0, 60.0)
    """
    try:
        return max(1.0, min(float(headers["retry-after"]), 3600.0))
    except (KeyError, ValueError):
        return REFUSED_S if status in _UNAUTHORIZED else usual


def members(listed: Any) -> list[tuple[int, str]]:
    """Return instance ids and computer names of a scale set's VMs, lowest first. Raise ValueError for
    anything else."""
    try:
        return sorted(
            (int(one["instanceId"]), str(one["properties"]["osProfile"]["computerName"])) for one in listed
        )
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"the list of VMs: {error!r}") from error


def time_left(document: Any, span: float, azure: float) -> float:
    """Return the seconds until the scale set has existed for ``span``; ``azure`` is the time by Azure's
    clock. Raise ValueError when the time of its creation is missing."""
    made = document["properties"].get("timeCreated") if isinstance(document, dict) else None
    since = moment(str(made))
    if since is None:
        raise ValueError(f"the scale set's timeCreated is {made!r:.60}")
    return since + span - azure


class ScaleSet:
    """The scale set of the VM that ``compute`` of its metadata describes; every method may raise Refused."""

    def __init__(self, compute: dict[str, Any], imds: str, usual: float) -> None:
        self._imds, self._usual = imds, usual
        self.azure = time.time()
        """Time by Azure's clock, from its last answer."""
        name = str(compute.get("azEnvironment", ""))
        if name.lower() not in _ENVIRONMENTS:
            raise Refused(f"azEnvironment {name!r:.60} is not a known cloud", REFUSED_S)
        self._base = _ENVIRONMENTS[name.lower()] or imds
        self._audience = _ENVIRONMENTS[name.lower()] or _ENVIRONMENTS["azurepubliccloud"]
        try:
            place = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers"
            path = place + "/Microsoft.Compute/virtualMachineScaleSets/{vmScaleSetName}"
            self._path = path.format_map(compute)
        except KeyError as error:
            raise Refused(f"the metadata service does not report {error}", REFUSED_S) from error
        self._token, client = "", identity(compute.get("tagsList"))
        self._identity = f"&client_id={quote(client, safe='')}" if client else ""
        """Without which a VM with several identities is refused."""

    def members(self) -> list[tuple[int, str]]:
        """Return :func:`members`, of all pages."""
        listed: list[Any] = []
        path = f"{self._path}/virtualMachines?api-version={_API}"
        while path:
            page = self._ask("GET", path)
            try:
                listed += page["value"]
                following = page.get("nextLink") or ""
            except (TypeError, KeyError, AttributeError) as error:
                raise Refused(f"the list of VMs is malformed: {error!r}", self._usual) from error
            path = "/" + following.partition("://")[2].partition("/")[2] if following else ""
        try:
            return members(listed)
        except ValueError as error:
            raise Refused(str(error), self._usual) from error

    def read(self) -> Any:
        """Return its resource."""
        return self._ask("GET", f"{self._path}?api-version={_API}")

    def delete(self) -> None:
        """Have Azure delete it with all its VMs."""
        self._ask("DELETE", f"{self._path}?api-version={_API}")

    def stop(self, numbers: list[int]) -> None:
        """Have Azure delete the VMs with these ids; the capacity shrinks with them.

        VMs that came meanwhile stay: whoever made the set larger wants its nodes.
        """
        body = {"instanceIds": [str(number) for number in numbers]}
        self._ask("POST", f"{self._path}/delete?api-version={_API}", body)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        if not self._token:
            path_of_it = f"{_TOKEN}{self._audience}/{self._identity}"
            answer = self._send("GET", self._imds, path_of_it, {"Metadata": "true"})
            token = answer.get("access_token") if isinstance(answer, dict) else None
            if not isinstance(token, str) or not token:
                raise Refused("the metadata service returned no token", self._usual)
            self._token = token
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        return self._send(method, self._base, path, headers, body)

    def _send(self, method: str, base: str, path: str, headers: dict[str, str], body: Any = None) -> Any:
        import http.client

        scheme, _, host = base.partition("://")
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        what = f"{method} {path.partition('?')[0]}"
        link = kind(host, timeout=LIMIT_S)
        try:
            link.request(method, path, None if body is None else json.dumps(body), headers)
            answer = link.getresponse()
            data = answer.read(_PAGE_BYTES)
            found = {name.lower(): value for name, value in answer.getheaders()}
            if answer.status not in _FULFILLED:
                raise Refused(
                    f"{what}: {answer.status} {_words(data)}", pause(answer.status, found, self._usual)
                )
            self.azure = moment(found.get("date", "")) or self.azure
            return json.loads(data) if data.strip() else None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Refused(f"{what}: {error!r}", self._usual) from error
        finally:
            link.close()


def _words(data: bytes) -> str:
    """Return an error body's message, in one short line."""
    try:
        error = json.loads(data)["error"]
        text = f"{error['code']}: {error['message']}" if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        text = data.decode("utf-8", "replace")
    return " ".join(text.split())[:300]


class Nodes:
    """The agents of other nodes, queried over ssh with the cluster's own key, many at once: as the nodes'
    user, whose folder is ``home``."""

    def __init__(self, home: str) -> None:
        import pwd

        user = pwd.getpwuid(os.stat(home).st_uid).pw_name
        self._as_user = ("-i", f"{home}/.ssh/id_ed25519", "-l", user)

    def answers(self, names: list[str]) -> dict[str, dict[str, float]]:
        """Return by node :func:`launch.remote.agent.idleness.answer`; nothing where it does not answer."""
        return {name: numbers(answer) for name, answer in self._ask(names, "idle").items()}

    def end_jobs(self, names: list[str], within_s: float, reason: str) -> int:
        """Request the end of all jobs with their heads there; return how many are ending."""
        answers = self._ask(names, "end", f"{within_s:g}", reason)
        return int(sum(numbers(one).get("ended", 0.0) for one in answers.values()))

    def _ask(self, names: list[str], *arguments: str) -> dict[str, bytes]:
        line = "echo; " + " ".join(map(shlex.quote, ["python3", "-I", "-S", WATCH, *arguments]))
        ssh = ("timeout", f"{LIMIT_S:g}", "ssh", *_OWN_OPTIONS, *SSH_OPTIONS, *self._as_user)
        answers, until = dict.fromkeys(names, b""), time.monotonic() + _ALL_S
        for start in range(0, len(names), _AT_ONCE):
            if time.monotonic() > until:
                break
            running = {
                name: subprocess.Popen(
                    [*ssh, name, line],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                for name in names[start : start + _AT_ONCE]
            }
            for name, process in running.items():
                assert process.stdout is not None  # noqa: S101  it is a pipe
                with process.stdout as output:
                    answers[name] = output.read(_ANSWER_BYTES)
            for process in running.values():
                process.wait()
        return answers


def look(request: dict[str, Any], nodes: Nodes) -> dict[str, Any]:
    """Run one leader check; return the delay to the next (``next_s``), log messages by topic (``say``), state
    for the next (``memory``) and whether this node could do all that it wanted (``able``)."""
    spans: dict[str, float] = request["spans"]
    usual = max(1.0, min(LOOK_S, min(spans.values()) / 10))
    memory = {name: value for name, value in request["memory"].items() if name == "used"}
    result: dict[str, Any] = {"next_s": usual, "say": {"azure": ""}, "memory": memory, "able": False}
    try:
        scale_set = ScaleSet(request["compute"], request["imds"], usual)
        listed = scale_set.members()
        own = int(request["compute"]["name"].rpartition("_")[2])
        place = [number for number, _ in listed].index(own)
        before = [name for _, name in listed[:place]]
        for start in range(0, len(before), _AT_ONCE):
            answers = nodes.answers(before[start : start + _AT_ONCE]).values()
            leaders = [one for one in answers if one.get("leads")]
            if leaders and not _is_overdue(request, scale_set, result):
                _remember(result, min((one["used_s"] for one in leaders if "used_s" in one), default=None))
                result["next_s"], result["able"] = usual * (1 + place), True
                return result
        _lead(request, scale_set, nodes, listed, place, result)
        result["able"] = True
    except Refused as refused:
        result["say"]["azure"], result["next_s"] = str(refused), refused.wait
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        result["say"]["azure"] = f"Azure's answer is malformed: {error!r}"
    return result


def _remember(result: dict[str, Any], used_s: float | None) -> None:
    """Remember since when the cluster has had no job: the nodes that had the last ones may go."""
    if used_s is not None:
        result["memory"]["used"] = time.monotonic() - used_s


def _is_overdue(request: dict[str, Any], scale_set: ScaleSet, result: dict[str, Any]) -> bool:
    """Return whether the node that claims to lead has missed the cluster's end: a job can claim it."""
    span = request["spans"].get(TTL)
    if span is None:
        return False
    now, ends = time.monotonic(), request["memory"].get("ends")
    if ends is None or now >= ends + LATE_S:  # else Azure has been asked before
        ends = now + time_left(scale_set.read(), span, scale_set.azure)
    result["memory"]["ends"] = ends
    return bool(now >= ends + LATE_S)


def _lead(
    request: dict[str, Any],
    scale_set: ScaleSet,
    nodes: Nodes,
    listed: list[tuple[int, str]],
    place: int,
    result: dict[str, Any],
) -> None:
    others = [name for number, (_, name) in enumerate(listed) if number != place]
    spans, memory, document = request["spans"], request["memory"], scale_set.read()
    usual, now = result["next_s"], time.monotonic()
    if TTL in spans:
        span = spans[TTL]
        left = time_left(document, span, scale_set.azure)
        reason = f"the cluster's lifetime of {span / 3600:g} h is over"
        warning = min(WARNING_S, span / 4)
        if left <= warning:
            since = memory.get("warned", now)
            result["memory"]["warned"] = since
            left = max(left, since + warning - now)  # nobody is surprised, however late the leader is
            if left <= 0:
                scale_set.delete()
                result["say"]["act"] = f"{reason}: its scale set is being deleted"
                result["next_s"] = REFUSED_S
                return
            all_nodes = [os.uname().nodename, *others]
            ended = nodes.end_jobs(all_nodes, max(1.0, left - _SLACK_S), reason)
            if ended:
                result["say"]["act"] = f"{reason} in {left:.0f} s: ending {ended} job{'s' * (ended != 1)}"
            result["next_s"] = max(1.0, min(usual, left))
            return
        result["next_s"] = min(usual, left - warning)
    if IDLE in spans and document["sku"]["capacity"] > 0:
        span, silent, used = spans[IDLE], memory.get("silent", {}), memory.get("used")
        answers = {"": {"idle_s": float(request["idle_s"]), "new": float(request.get("new", False))}}
        if request["idle_s"]:  # while this node has something to do, no other counts
            answers.update(nodes.answers(others))
        wait, used_s, unheard, obstacle = idleness(
            answers, silent, now, span, None if used is None else max(0.0, now - used)
        )
        _remember(result, used_s)
        result["memory"]["silent"] = {name: silent.get(name, now) for name in unheard}
        result["say"]["nodes"] = obstacle
        if not wait:
            scale_set.stop([number for number, _ in listed])
            why = f"no job for {span / 60:g} minutes"
            result["say"]["act"], result["next_s"] = (
                f"{why}: {len(listed)} nodes are being deleted",
                REFUSED_S,
            )
            return
        limit = result["next_s"]
        if TTL not in spans:  # while idle soon, for a node may have a job and go before the next check
            limit *= 1 + len(listed) // _AT_ONCE if request["idle_s"] else 10
        result["next_s"] = max(1.0, min(limit, wait))


def main(arguments: list[str]) -> int:
    """Run one check, as the one argument asks for in JSON."""
    request = json.loads(arguments[0])
    sys.stdout.write(json.dumps(look(request, Nodes(request["home"]))))
    return 0
