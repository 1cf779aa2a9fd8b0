"""Whole records for tests, which give the fields that matter to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from launch.remote.base.job_dir import PLAN_VERSION, first_state
from launch.remote.base.records import BARE

if TYPE_CHECKING:
    from launch.remote.base.records import Plan, State

__all__ = ["sample_plan", "sample_state"]


def sample_plan(job: str = "t-1", **fields: Any) -> Plan:
    """The plan of a job without nodes, with these fields in place of its own."""
    plan: Plan = {
        "version": PLAN_VERSION,
        "id": job,
        "name": job,
        "display_name": "",
        "experiment": "",
        "description": "",
        "tags": {},
        "kind": "pytorch",
        "per_node": False,
        "command": ["train.py"],
        "snapshot": "",
        "snapshots": [],
        "remote": ".ranklift/remote/hash",
        "cwd": f"~/.ranklift/jobs/{job}/work",
        "environment": BARE,
        "data": [],
        "uploads": [],
        "upload_every_s": None,
        "argv": ["train.py"],
        "expand": [],
        "python": "python3",
        "checks": {},
        "health": {"mode": "off", "promise": {}},
        "probe": {"mode": "auto", "rehearsal": 0},
        "stages": [],
        "setup": "",
        "output_folders": [],
        "services": [],
        "first_port": 2222,
        "drop": [],
        "defaults": {},
        "files": {},
        "infiniband": 0,
        "paths": {},
        "env": {},
        "user_env": {},
        "master_addr": "",
        "port": 6105,
        "timeout_s": None,
        "start_limit_s": 60.0,
        "grace_s": 30.0,
        "max_restarts": 0,
        "hang_after_s": None,
        "py_spy": "",
        "identity": "",
        "min_nodes": None,
        "hostfile": "",
        "metrics": {},
        "machinefile": "",
        "mpirun": {},
        "nodes": [],
        "node_price": None,
    }
    return cast("Plan", {**plan, **fields})


def sample_state(job: str = "t-1", **fields: Any) -> State:
    """The state of a job that runs and has no supervisor, with these fields in place of its own."""
    state = first_state(job, sample_plan(job), 1.0, None)
    return cast("State", {**state, "state": "RUNNING", **fields})
