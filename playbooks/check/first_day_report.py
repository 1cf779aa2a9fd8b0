"""Answers, on a real cluster, what no rehearsal can: ``check --first-day``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.inventory import Inventory, StackOutputs
from playbooks.cli import output
from playbooks.private_file import write_private
from playbooks.project import Stack

if TYPE_CHECKING:
    from launch.host import Host
    from playbooks.nodes.first_day import NodeAnswer, ScaleSetFacts

__all__ = ["report_first_day", "summary"]

_FILE = "first-day.json"
_PROBE_S = 60.0


def report_first_day(chosen: Stack, *, json: bool) -> None:
    """Answer the open questions as far as the scale set and the nodes show it, in a file of the stack."""
    from playbooks.nodes.first_day import Findings, report
    from playbooks.nodes.vm_ops import refresh
    from playbooks.stack.converge import wanted_of

    outputs = chosen.outputs()
    inventory = refresh(chosen, outputs)
    found = Findings(
        stack=chosen.short_name,
        size=inventory.size,
        wanted=wanted_of(chosen) or outputs.node_count,
        scale_set=_scale_set(chosen, outputs),
        nodes=_probed(chosen, inventory),
    )
    made = report(found, datetime.now(UTC).isoformat(timespec="seconds"))
    path = chosen.folder / _FILE
    _write(path, made)
    if json:
        output.as_json(made)
        return
    output.result(summary(made, path))


def summary(made: dict[str, Any], path: Path) -> str:
    """Return each question of a report with what answers it by hand, and where the answers are."""
    lines = [
        f"{name}: {one['question']}\n    by hand: {one['by_hand']}" for name, one in made["answers"].items()
    ]
    return "\n".join([*lines, f"{made['where']}: answers are in {path}; read it before you send it"])


def _write(path: Path, made: dict[str, Any]) -> None:
    import json

    write_private(path, json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def _scale_set(stack: Stack, outputs: StackOutputs) -> ScaleSetFacts:
    from azure.core.exceptions import AzureError

    from infra.arm import clients
    from infra.arm.errors import explained
    from playbooks.nodes.first_day import ScaleSetFacts
    from playbooks.nodes.vm_ops import scale_set_of

    subscription, group, name = scale_set_of(outputs.scale_set_id)
    compute = clients.clients(subscription, stack.environment).compute
    try:
        there: Any = compute.virtual_machine_scale_sets.get(group, name)
        instances: Sequence[Any] = list(compute.virtual_machine_scale_set_vms.list(group, name))
    except AzureError as error:
        raise explained(error) from error
    return ScaleSetFacts(
        tags=dict(there.tags or {}),
        upgrade_mode=str(there.properties.upgrade_policy.mode),
        capacity=int(there.sku.capacity),
        states=[str(one.properties.provisioning_state) for one in instances],
        older_model=sum(one.properties.latest_model_applied is False for one in instances),
    )


def _probed(stack: Stack, inventory: Inventory) -> dict[str, NodeAnswer]:
    from launch.remote.reading import Malformed, parse, read
    from playbooks.nodes import first_day_probe
    from playbooks.nodes.first_day import NodeAnswer
    from playbooks.ssh.connection import Cluster
    from playbooks.ssh.fanout import fan_out_hosts

    program = Path(first_day_probe.__file__).read_bytes()

    def probe(host: Host) -> NodeAnswer:
        done = host.run(["python3", "-I", "-S", "-"], stdin=program, timeout=_PROBE_S)
        try:
            return read(NodeAnswer, parse(done.stdout))
        except Malformed as error:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return {"error": lines[-1] if lines else f"its answer is malformed: {error}"}

    with Cluster(inventory, stack.folder) as cluster:
        answers = fan_out_hosts(
            cluster.host, inventory.nodes, probe, what="the check of a first day", timeout=_PROBE_S + 1
        )
    return {
        name: {"error": str(answer)} if isinstance(answer, Exception) else answer
        for name, answer in answers.items()
    }
