"""What a head has noted of its nodes: which snapshots, environments and data each of them holds."""

from __future__ import annotations

import contextlib
import os

from launch.remote.base.files import expand_home
from launch.remote.base.records import Plan, data_entry

__all__ = ["find_missing", "forget_contents"]


def find_missing(plan: Plan) -> list[str]:
    """Return the ids of the snapshots, the environment and the data that a node of the plan is not known to
    hold."""
    from launch.remote.store.store import ENVIRONMENTS, SNAPSHOTS, Store  # a supervisor does not need it

    names = {node["name"] for node in plan["nodes"][1:]}
    code = os.path.basename(plan["remote"])
    environment = plan["environment"]["id"]
    missing = []
    for kind, ids in ((SNAPSHOTS, plan["snapshots"]), (ENVIRONMENTS, [environment] if environment else [])):
        store = Store(kind=kind)
        for name in ids:
            if store.has(name) and names <= set(store.confirmed(name, code)):
                store.touch(name)
            else:
                missing.append(name)
    if plan["data"]:
        from launch.remote.data.cache import is_staged

        missing += [one["id"] for one in plan["data"] if not is_staged(one, names)]
    return missing


def forget_contents(plan: Plan) -> None:
    """Have the next launch ask the nodes whether they hold what was pushed and staged for the job: an unfit
    one may not, or may have found it changed."""
    from launch.remote.store.store import Store

    Store().doubt(plan["snapshots"])
    for one in plan["data"]:
        with contextlib.suppress(OSError):  # a shared folder may be what the node lacks
            os.unlink(expand_home(data_entry(one) + ".nodes"))
