"""Azure's plans for this node, watched on every node from its first boot on.

One process of a system user (``ranklift-watch.service``), who alone reaches the metadata service and its
tokens: jobs run as the nodes' user. It reads that user's files, and may not write them. The code of jobs
comes with each push; this comes with cloud-init and stays as it is, with the few modules it needs in
``/usr/local/lib/ranklift``.

Its own files are in ``/run/ranklift``, which ``~/.ranklift/agent`` of the nodes' user leads to. An event of
the metadata service that takes the node becomes ``notice.json`` there, which runners look for, until the
event is over or called off; it is approved once no job needs the node. Where the scale set's tags limit the
cluster's life or idleness, ``watch.py lead`` runs now and then; ``leads`` holds whether this node can lead,
``used`` when the cluster had its last job. ``watch.log`` has what was done and what could not be.
:mod:`launch.remote.agent.metadata_door` answers the nodes' user.

No answer ends this, and none is obeyed that is not understood. Facts and their sources: docs/evictions.md.
"""

from __future__ import annotations

import json
import os
import sys
import time

from launch.remote.agent.activity import Activity, end_jobs, keep_room, overwrite, regular, replace, sweep
from launch.remote.agent.entry import WATCH
from launch.remote.agent.grants import Grants
from launch.remote.agent.idleness import FRESH_S, answer
from launch.remote.agent.imds import OK, ask, events, moment, settings
from launch.remote.agent.metadata_door import Door

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launch.remote.agent.imds import Event

__all__ = ["Log", "Unanswered", "Watch", "decide", "main", "patience"]

AT_ONCE = ("Preempt", "Terminate")
"""Types of events that come within seconds, or that somebody waits for: jobs end as soon as one is known."""
POLL_S = 2.0
"""Azure recommends a second. Of the 30 that an eviction is announced before, two may pass unseen."""
UNHEARD_S, HEARD_S = 60.0, 5.0
"""Longest pauses between questions to a metadata service that has never answered, and to one that has."""
THROTTLED_S = 900.0
"""Longest that a Retry-After is believed."""
FIRST_LIMIT_S, LIMIT_S = 150.0, 10.0
"""Seconds an answer may take: before the first one, which turns events on, Azure takes up to two minutes."""
INSTANCE_S = 20.0
"""Seconds between two looks at the scale set's tags, which may change at any time."""
APPROVE_AGAIN_S = 30.0
SETTLE_S = 4.0
"""Seconds after a job's end in which its user reads how it ended, before the node is let go."""
LOOK_S, LOOK_LIMIT_S, FIRST_LOOK_S = 60.0, 180.0, 600.0
"""Seconds between two runs of ``watch.py lead`` when it does not say; that one may take; to the first at
most."""
_SPREAD = 60
_LOG_BYTES = 256 << 10
_REFUSED = (400, 401, 403)
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_INSTANCE = "/metadata/instance?api-version=2021-02-01"


def decide(
    standing: dict[str, Any] | None,
    found: list[Event],
    node: str,
    azure: float,
    now: float,
    idle_s: float,
    is_whole: bool = True,
) -> list[tuple[str, Any]]:
    """Return the actions for the events that take this node: ``("notice", {...})``, ``("clear", None)`` and
    ``("approve", id)``.

    ``standing`` is the notice on the disk, ``azure`` the time by the metadata service's clock, ``now`` this
    node's monotonic one, ``idle_s`` the seconds since a job needed this node. Unless all of the answer is
    understood (``is_whole``), no event counts as over that is not ``found``. An approval holds for every VM
    of an event, so only events with one VM are approved; an eviction is not, as its seconds are the job's.
    """
    if standing and not is_whole and standing["id"] not in [event.id for event in found]:
        return []
    if not found:
        return [("clear", None)] if standing is not None and is_whole else []
    first = min(found, key=lambda event: event.not_before or 0.0)
    is_known = standing is not None and standing.get("id") == first.id
    if is_known and standing and first.not_before in (None, standing["not_before"]):
        if idle_s < SETTLE_S or not is_whole:
            return []
        ready = [one for one in found if one.alone and one.kind != "Preempt" and one.not_before]
        return [("approve", one.id) for one in ready]
    at = first.not_before or azure
    notice = {
        "id": first.id,
        "type": first.kind,
        "node": node,
        "not_before": at,
        "deadline": now + at - azure,
    }
    notice["at_once"] = first.kind in AT_ONCE or first.by_user or first.not_before is None
    return [("notice", notice)]


def patience(status: int, headers: dict[str, str], failures: int, has_heard: bool) -> float:
    """Return the seconds until the next question after a failure; ``status`` is 0 without an answer.

    >>> patience(429, {"retry-after": "7"}, 1, True), patience(0, {}, 3, True), patience(0, {}, 9, False)
    (7.0, 5.0, 60.0)
    >>> patience(429, {"retry-after": "300"}, 1, True), patience(429, {"retry-after": "86400"}, 1, True)
    (300.0, 900.0)
    """
    try:
        return max(POLL_S, min(float(headers["retry-after"]), THROTTLED_S))
    except (KeyError, ValueError):
        if status in _REFUSED:
            return UNHEARD_S
        return min(POLL_S * (1 << min(failures, 9)), HEARD_S if has_heard else UNHEARD_S)


class Log:
    """``watch.log``, of which the last 256 KiB are kept and as much before."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/watch.log"
        self._last: dict[str, str] = {}

    def write(self, words: str) -> None:
        """Add a line with its time; a full disk loses it."""
        line = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + " ".join(words.split()) + "\n"
        try:
            with open(self._path, "a", encoding="utf-8", opener=regular) as file:
                file.write(line)
                is_full = file.tell() > _LOG_BYTES
            if is_full:
                os.rename(self._path, self._path + ".1")
        except OSError:
            return

    def say(self, topic: str, words: str) -> None:
        """Add a line unless it is the topic's last; empty ``words`` close the topic."""
        if words != self._last.get(topic, ""):
            self._last[topic] = words
            if words:
                self.write(words)


class Unanswered(Exception):
    """The metadata service did not answer; next question after ``wait`` seconds."""

    def __init__(self, words: str, wait: float) -> None:
        super().__init__(f"the metadata service does not answer: {words}")
        self.wait = wait


class Watch:
    """The loop; ``imds`` is another address only in tests, ``lead`` another command than ``watch.py
    lead``."""

    def __init__(
        self, home: str, imds: str = "http://169.254.169.254", lead: tuple[str, ...] | None = None
    ) -> None:
        # systemd's, by the unit's RuntimeDirectory=: what the nodes' user has in its place may lead anywhere
        folder = self._folder = os.environ.get("RUNTIME_DIRECTORY") or f"{home}/.ranklift/agent"
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.log, self._activity = Log(folder), Activity(f"{home}/.ranklift", folder)
        self._home, self._imds, self._lead = home, imds, lead or (sys.executable, "-I", "-S", WATCH, "lead")
        self._path, self._leads = f"{folder}/notice.json", f"{folder}/leads"
        sweep(folder, "notice.json", "notice.json.reserve", "active", "leads", "used")
        self._standing: dict[str, Any] | None = {} if os.path.exists(self._path) else None
        if self._standing is None:
            keep_room(self._path)
        self._name = ""
        self._compute: dict[str, Any] = {}
        self._read_at = self._needed = -INSTANCE_S
        self._approved: dict[str, float] = {}
        self._failures, self._has_heard = 0, False
        self._spans: dict[str, float] = {}
        self._memory: dict[str, Any] = {}
        self._look_at: float | None = None
        self._look_until = 0.0
        self._is_able, self._says_until = False, 0.0
        self._child = self._pipe = -1
        self._said = b""

    def run(self) -> None:
        """Watch until the node ends, or the door's process does: systemd starts both again."""
        self.log.write(f"watches {os.uname().nodename}")
        door = self._open_door()
        while not os.waitpid(door, os.WNOHANG)[0]:
            wait = self.turn()
            while wait > POLL_S:  # jobs and the cluster's end do not wait for the metadata service
                time.sleep(POLL_S)
                wait -= POLL_S
                self.tend()
            time.sleep(wait)
        self.log.write("the process ended that answers the nodes' user")

    def _open_door(self) -> int:
        user, grants = os.stat(self._home).st_uid, None
        state = os.environ.get("STATE_DIRECTORY")  # systemd's, by the unit's StateDirectory=
        if state:
            grants = Grants(state, "/etc/ranklift/allowed_signers", user)
            try:
                grants.settle()  # what an earlier agent granted
            except OSError as error:
                self.log.write(str(error))
        return Door(f"{self._folder}/metadata", self._imds, user, grants).start()

    def tend(self) -> None:
        """Do what needs no answer of the metadata service."""
        try:
            now = time.monotonic()
            idle = self._activity.look()
            if self._activity.is_busy:
                self._needed = now
            self._see_to_lead(now, idle)
            self._say_leads(now)
        except Exception as error:  # noqa: BLE001  whatever it was, the next look may go well
            self.log.say("error", repr(error))

    def turn(self) -> float:
        """Check once and act; return the seconds until the next check."""
        self.tend()
        now = time.monotonic()
        try:
            if now - self._read_at >= INSTANCE_S:
                self._read_instance(now)
            document, headers = self._ask("GET", _EVENTS)
            self._see_to(document, headers)
            self.log.say("imds", "")
        except Unanswered as error:
            self.log.say("imds", str(error))
            return error.wait
        except Exception as error:  # noqa: BLE001  whatever it was, the next look may go well
            self.log.say("error", repr(error))
            return HEARD_S
        return POLL_S

    def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[Any, dict[str, str]]:
        """Return the answer, read as JSON, and its headers."""
        status, answer, why = 0, None, ""
        headers: dict[str, str] = {}
        try:
            limit = LIMIT_S if self._has_heard else FIRST_LIMIT_S
            status, headers, data = ask(method, self._imds, path, body, limit)
            if status == OK:
                answer = json.loads(data) if data.strip() else None
            else:
                why = f"status {status}"
        except (OSError, ValueError) as error:
            why = str(error)
        if why:
            self._failures += 1
            wait = patience(status, headers, self._failures, self._has_heard)
            raise Unanswered(f"{method} {path.partition('?')[0]}: {why}", wait)
        self._failures, self._has_heard = 0, True
        return answer, headers

    def _read_instance(self, now: float) -> None:
        document, _ = self._ask("GET", _INSTANCE)
        compute = document.get("compute") if isinstance(document, dict) else None
        name = compute.get("name") if isinstance(compute, dict) else None
        if not isinstance(compute, dict) or not isinstance(name, str) or not name:
            if not self._name:
                raise Unanswered("the name of this VM", UNHEARD_S)
            self._read_at = now  # the name stays, and events refer to it
            self.log.say(
                "tags", "the metadata service does not describe this VM: its last tags stay in force"
            )
            return
        self._compute, self._name, self._read_at = compute, name, now
        spans, odd = settings(compute.get("tagsList"))
        self.log.say("tags", "; ".join(odd))
        if spans == self._spans:
            return
        self._spans, self._look_at, self._memory = spans, None, {}
        if spans:  # not every node at once: who leads is not known yet
            number = name.rpartition("_")[2]
            place = 1 + int(number) % _SPREAD if number.isdecimal() else 1
            shortest = min(spans.values())
            self._look_at = now + min(min(LOOK_S, shortest / 10) * place, shortest / 2, FIRST_LOOK_S)

    # -- events -----------------------------------------------------------------------------------

    def _see_to(self, document: Any, headers: dict[str, str]) -> None:
        found, odd = events(document, self._name)
        self.log.say("events", "; ".join(odd))
        if not found and self._standing is None:
            return
        now, node = time.monotonic(), os.uname().nodename
        azure = moment(headers.get("date", "")) or time.time()
        for what, value in decide(self._standing, found, node, azure, now, now - self._needed, not odd):
            if what == "notice":
                if not replace(self._path, json.dumps(value)):
                    self.log.say("disk", f"{self._path} cannot be written: jobs get no notice of events")
                    continue
                self._standing = value
                at = time.strftime("%H:%M:%S", time.gmtime(value["not_before"]))
                self.log.write(
                    f"Azure will take this node at {at} UTC ({value['type']}, event {value['id']})"
                )
            elif what == "clear":
                keep_room(self._path)
                self._standing = None
                self.log.write("Azure withdrew its notice for this node")
            elif now - self._approved.get(value, -APPROVE_AGAIN_S) >= APPROVE_AGAIN_S:
                self._approved[value] = now
                self.log.write(f"no job needs this node: event {value} is approved")
                self._ask("POST", _EVENTS, json.dumps({"StartRequests": [{"EventId": value}]}).encode())

    # -- the cluster's end ------------------------------------------------------------------------

    def _see_to_lead(self, now: float, idle: float) -> None:
        """Start ``watch.py lead`` when it is due, without waiting; its answer says when it is due again."""
        if self._child > 0:
            self._hear_lead(now)
        elif self._look_at is not None and now >= self._look_at:
            request = {"compute": self._compute, "spans": self._spans, "idle_s": idle, "imds": self._imds}
            more = {"new": self._activity.is_new, "memory": self._memory, "home": self._home}
            argv = [*self._lead, json.dumps(dict(request, **more))]
            self._pipe, writing = os.pipe()
            self._child = os.fork()
            if not self._child:
                try:
                    os.dup2(writing, 1)
                    os.execv(argv[0], argv)  # noqa: S606
                finally:
                    os._exit(127)
            os.close(writing)
            os.set_blocking(self._pipe, False)
            self._said, self._look_at, self._look_until = b"", None, now + LOOK_LIMIT_S

    def _say_leads(self, now: float) -> None:
        """Report to other nodes that this watch runs and its last check succeeded, while both hold."""
        if self._spans and self._is_able:
            lasts = max(3 * POLL_S, min(FRESH_S, 0.3 * min(self._spans.values())))
            if now >= self._says_until - lasts * 2 / 3:
                self._says_until = now + lasts
                overwrite(self._leads, self._says_until)
        elif os.path.exists(self._leads):
            os.unlink(self._leads)
            self._says_until = 0.0

    def _hear_lead(self, now: float) -> None:
        try:
            piece = os.read(self._pipe, 65536)
        except BlockingIOError:
            if now < self._look_until:
                return
            os.kill(self._child, 9)
            piece = b""
        self._said += piece
        if piece:
            return
        os.close(self._pipe)
        os.waitpid(self._child, 0)
        self._child, next_s, self._is_able = -1, LOOK_S, False
        try:
            answer = json.loads(self._said)
            next_s, self._memory = max(1.0, float(answer["next_s"])), dict(answer["memory"])
            for topic, words in answer["say"].items():
                self.log.say(topic, words)
            self._is_able = answer["able"] is True
            if "used" in self._memory:
                overwrite(f"{self._folder}/used", float(self._memory["used"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.log.say("lead", f"watch.py lead printed {self._said[:200]!r}")
        if self._spans and self._look_at is None:  # else they have changed meanwhile
            self._look_at = now + next_s


def main(arguments: list[str]) -> int:
    """Run ``watch.py watch HOME``; or ``watch.py idle``, ``watch.py end SECONDS REASON`` or ``watch.py lead
    QUESTION``, which answer in JSON."""
    if arguments[:1] == ["lead"]:
        from launch.remote.agent import autostop  # imports Python's TLS, which the watch must not keep

        return autostop.main(arguments[1:])
    home = os.path.expanduser("~")
    folder = f"{home}/.ranklift"
    if arguments[:1] == ["idle"]:
        sys.stdout.write(json.dumps(answer(folder)))
    elif arguments[:1] == ["end"]:
        ended = end_jobs(folder, float(arguments[1]), arguments[2])
        sys.stdout.write(json.dumps({"ended": ended}))
    else:
        Watch(arguments[1]).run()
    return 0
