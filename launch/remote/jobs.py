"""A job's folder on its head, ``~/.ranklift/jobs/<id>/``: what is in it and who may change it.

========== =====================================================================================
job.json   the plan, exactly as the operator sent it
state.json where the job is; replaced by rename, changed by the job's supervisor alone
events.jsonl what happened to the job, one event a line, see :meth:`Folder.event`
stream.000001.log ... the ranks' merged output, see :mod:`launch.remote.segments`
exits.jsonl how each rank ended, in the order in which it was heard
cancel     exists once somebody asked for the job's end
========== =====================================================================================
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

__all__ = [
    "TERMINAL",
    "Folder",
    "all_jobs",
    "identity",
    "is_alive",
    "runner_spec",
]

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "LOST")
"""States that never change again; before them come QUEUED, STARTING and RUNNING."""

ROOT = "~/.ranklift/jobs"

_RATE, _SLOWEST = 8 << 20, 16 << 10
"""Bytes of output a second that the ranks of a job together, and each of them at least, may send to the head:
what is more stays in the rank's own log."""
_BURST = 1 << 20
"""Bytes that a rank may send at once after a silence."""


def identity(pid: int) -> dict[str, Any]:
    """What tells a process from a later one with the same number, also after a reboot.

    Raises OSError when there is no such process.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        boot = file.read().strip()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(f"process {pid} has ended")
    return {"pid": pid, "started": int(fields[19]), "boot": boot}


def is_alive(process: dict[str, Any] | None) -> bool:
    """Whether the process that :func:`identity` described still runs."""
    try:
        return bool(process) and identity(process["pid"]) == process  # type: ignore[index]
    except OSError:
        return False


class Folder:
    """One job's folder."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.path = os.path.join(os.path.expanduser(ROOT), job)

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    def create(self, plan: dict[str, Any]) -> None:
        """Makes the folder and writes job.json. Raises FileExistsError when there is such a job."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        os.mkdir(self.path, 0o700)
        self._replace("job.json", plan)

    def plan(self) -> dict[str, Any]:
        """The plan. Raises FileNotFoundError when there is no such job."""
        with open(self.file("job.json"), encoding="utf-8") as file:
            plan: dict[str, Any] = json.load(file)
        return plan

    def state(self) -> dict[str, Any]:
        """Where the job is; LOST when its supervisor is gone without having written an end."""
        with open(self.file("state.json"), encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
        if state["state"] not in TERMINAL and not is_alive(state["supervisor"]):
            with open(self.file("state.json"), encoding="utf-8") as file:
                state = json.load(file)  # it may have ended between the two looks
            if state["state"] not in TERMINAL:
                state = dict(state, state="LOST", exit_status=255, ended=time.time())
                state["reason"] = (
                    "the job's supervisor ended without a word: the head was restarted, or out of memory"
                )
                self.write_state(state)
        return state

    def write_state(self, state: dict[str, Any]) -> None:
        """Replaces state.json and notes the change."""
        self._replace("state.json", state)
        self.event("state", state=state["state"], reason=state["reason"])

    def event(self, what: str, **fields: Any) -> None:
        """Notes an event with its time.

        ========= ==================================================================================
        state     ``state``, ``reason``: the job's state became this one
        exit      ``rank``, ``node``, ``status``, ``signal`` (None when it was none), ``stopped`` (whether
                  it had been told to end), ``attempt`` (0 for the job's first launch)
        failure   ``rank`` (None: the launcher), ``node``, ``status``, ``last_lines``: why a launch failed
        restart   ``count``, ``reason``: the job is launched anew
        lost-node ``node``, ``reason``: its runner went away or fell silent
        ========= ==================================================================================
        """
        self.append("events.jsonl", dict(fields, time=time.time(), event=what))

    def append(self, name: str, record: dict[str, Any]) -> None:
        """Adds one line to a file of records."""
        with open(self.file(name), "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _replace(self, name: str, value: dict[str, Any]) -> None:
        temporary = f"{self.file(name)}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(temporary, self.file(name))


def all_jobs() -> list[dict[str, Any]]:
    """The state of every job this head has, oldest first; half-made ones left out."""
    try:
        names = sorted(os.listdir(os.path.expanduser(ROOT)))
    except FileNotFoundError:
        return []
    states = []
    for name in names:
        try:
            states.append(Folder(name).state())
        except (FileNotFoundError, ValueError, KeyError):
            continue
    return sorted(states, key=lambda state: float(state["created"]))


def runner_spec(
    plan: dict[str, Any], index: int, rank: int | None, port: int, slots: list[int], restarts: int = 0
) -> dict[str, Any]:
    """What the runner of node ``index`` is told; with ``rank`` only that rank's part of it.

    ``port`` and ``slots`` are known on the head alone, when the job's turn has come.
    """
    node = plan["nodes"][index]
    given = {
        "MASTER_PORT": str(port),
        "AZ_BATCH_MASTER_NODE": f"{plan['master_addr']}:{port}",
        "RANKLIFT_RESTART_COUNT": str(restarts),
    }
    if node["reserve"] < node["slots"]:
        given["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, slots))
    world_size = sum(len(one["ranks"]) for one in plan["nodes"])
    ranks = _with_devices(node["ranks"], slots)
    first = rank is None or rank == ranks[0]["rank"]
    if rank is not None:
        local = [one["rank"] for one in ranks].index(rank)
        slots = slots[local : local + 1] if local else slots[:1] + slots[len(ranks) :]
        ranks = [ranks[local]]
    return {
        "job": plan["id"],
        "folder": f"{ROOT}/{plan['id']}",
        "cwd": plan["cwd"],
        "hostfile": plan["hostfile"],
        "drop": plan["drop"],
        "defaults": plan["defaults"],
        "files": plan["files"],
        "paths": plan["paths"],
        "env": dict(plan["env"], **node["env"], **given),
        "user_env": plan["user_env"],
        "argv": plan["argv"],
        "expand": plan["expand"],
        "python": plan["python"],
        "outputs": plan["output_folders"],
        "checks": plan["checks"] if first else {},
        "ports": sum(1 for one in ranks if one["task"]),
        "first_port": plan["first_port"],
        "slots": slots,
        "of": node["slots"],
        "grace_ms": int(plan["grace_s"] * 1000),
        "rate": max(_SLOWEST, _RATE // world_size),
        "burst": _BURST,
        "ranks": ranks,
    }


def _with_devices(ranks: list[dict[str, Any]], slots: list[int]) -> list[dict[str, Any]]:
    """The ranks, TensorFlow tasks that share a node with a share of its devices: each would take all."""
    needy = [one["rank"] for one in ranks if one["task"] not in ("", "ps")]
    if len(ranks) == 1 or not any(one["task"] for one in ranks):
        return ranks
    each = len(slots) // max(1, len(needy))
    given = []
    for one in ranks:
        mine: list[int] = []
        if one["rank"] in needy:
            first = needy.index(one["rank"]) * each
            mine = slots[first : first + each]
        given.append(dict(one, env=dict(one["env"], CUDA_VISIBLE_DEVICES=",".join(map(str, mine)))))
    return given
