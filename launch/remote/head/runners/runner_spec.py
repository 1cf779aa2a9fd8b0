"""A runner's SPEC, cut from the plan: its ranks, their environment and limits."""

from __future__ import annotations

from launch.remote.base.health_records import NOT_CHECKED
from launch.remote.base.payloads import RunnerSpec
from launch.remote.base.records import BARE, Plan, PlannedRank, data_entry

__all__ = ["promises_infiniband", "runner_spec"]

_SNAPSHOTS = "~/.ranklift/snapshots"
_RATE, _SLOWEST = 8 << 20, 16 << 10
"""Bytes of output a second that all ranks of a job together, and each rank at least, may send to the head;
the rest stays in the rank's own log."""
_BURST = 1 << 20
"""Bytes that a rank may send at once after a silence."""


def runner_spec(
    plan: Plan, index: int, rank: int | None, port: int, slots: list[int], restarts: int = 0
) -> RunnerSpec:
    """Return the SPEC for the runner of node ``index``; with ``rank``, for the runner of that rank alone.

    ``port`` and ``slots`` come from the head's queue: the plan does not have them.
    """
    node = plan["nodes"][index]
    given = {
        "MASTER_PORT": str(port),
        "AZ_BATCH_MASTER_NODE": f"{plan['master_addr']}:{port}",
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"tcp://{plan['master_addr']}:{port}",
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
        "folder": plan["cwd"].rpartition("/")[0],
        "environment": plan.get("environment", BARE),
        "data": sorted({data_entry(one) for one in plan.get("data", [])}),
        "cwd": plan["cwd"],
        "snapshot": f"{_SNAPSHOTS}/{plan['snapshot']}" if plan["snapshot"] else "",
        "in_place": [f"{_SNAPSHOTS}/{one}" for one in plan["snapshots"] if first and one != plan["snapshot"]],
        "keep": int(plan["max_restarts"] > 0),
        "hostfile": plan["hostfile"],
        "drop": plan["drop"],
        "defaults": plan["defaults"],
        "files": plan["files"],
        "infiniband": plan["infiniband"],
        "paths": plan["paths"],
        "env": dict(plan["env"], **node["env"], **given),
        "user_env": plan["user_env"],
        "argv": plan["argv"],
        "expand": plan["expand"],
        "python": plan["python"],
        "outputs": plan["output_folders"],
        "metrics": plan.get("metrics", {}),
        "identity": (plan.get("identity") or "") if first else "",
        "with_identity": int(plan.get("identity", "") != ""),  # None: nobody signed, so no rank starts
        "first": int(first),
        "checks": plan["checks"] if first else {},
        "network": int(first and promises_infiniband(plan) and not plan["probe"]["rehearsal"]),
        "health": plan["health"] if first else NOT_CHECKED,
        "ports": sum(1 for one in ranks if one["task"]),
        "first_port": plan["first_port"],
        "slots": slots,
        "of": node["slots"],
        "restarts": restarts,
        "grace_ms": int(plan["grace_s"] * 1000),
        "rate": max(_SLOWEST, _RATE // world_size),
        "burst": _BURST,
        "ranks": ranks,
    }


def promises_infiniband(plan: Plan) -> bool:
    """Return whether the job's nodes are several, whose size has InfiniBand, and its owner wants it."""
    wants = plan.get("probe", {"mode": "off"})["mode"] != "off"
    return wants and len(plan["nodes"]) > 1 and plan["health"]["promise"].get("hcas", 0) > 0


def _with_devices(ranks: list[PlannedRank], slots: list[int]) -> list[PlannedRank]:
    """Return the ranks, with a share of the node's devices for each TensorFlow task of several: by itself,
    each would take all of them."""
    needy = [one["rank"] for one in ranks if one["task"] not in ("", "ps")]
    if len(ranks) == 1 or not any(one["task"] for one in ranks):
        return ranks
    each = len(slots) // max(1, len(needy))
    given: list[PlannedRank] = []
    for one in ranks:
        mine: list[int] = []
        if one["rank"] in needy:
            first = needy.index(one["rank"]) * each
            mine = slots[first : first + each]
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine))}
        given.append({**one, "env": {**one["env"], **devices}})
    return given
