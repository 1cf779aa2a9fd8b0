"""A cheap look at whether Azure still has what Pulumi remembers of a stack.

``pulumi refresh`` reads every resource through the engine, which takes as long as an update; this asks once
for each group's resources, once for each child resource, and for the scale set's capacity, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from infra.arm.pulumi_state import SCALE_SET, resources
from infra.arm.update_errors import AzureFailed
from infra.scale_plan import Drift
from launch.errors import RankliftError
from playbooks.nodes.vm_ops import scale_set_of
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out

__all__ = ["look", "tell_end"]

GROUP = "azure-native:resources:ResourceGroup"
GONE = ("ResourceNotFound", "ResourceGroupNotFound")
LOOK_S = 60.0
_TOP = 9
"""Parts of the id of a resource that lies directly in its group."""


def look(stack: Stack, wanted: int | None, state: Mapping[str, Any] | None = None) -> Drift | None:
    """Where Azure differs from what Pulumi remembers; None when Pulumi knows of nothing there.

    ``state`` is what Pulumi remembers, where that is known already.

    Raises :class:`~playbooks.nodes.vm_ops.AzureFailed` when Azure does not tell.
    """
    state = stack.state() if state is None else state
    known = {
        str(one["id"]): one
        for one in resources(state)
        if str(one["type"]).startswith("azure-native:")
        and str(one.get("id", "")).startswith("/subscriptions/")
    }
    if not known:
        return None
    questions = _questions(stack, known)
    answers = fan_out(lambda name: questions[name](), questions, what="the look", timeout=LOOK_S)
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise AzureFailed(f"stack {stack.name}: Azure did not say what it has", stack.name, answer)
    there: set[str] = set()
    capacity: int | None = None
    for name, found in answers.items():
        if isinstance(found, int) and not name:
            capacity = found
        elif isinstance(found, set):
            there |= found
        elif found:
            there.add(name.lower())
    remembered = next((one for one in known.values() if one["type"] == SCALE_SET), None)
    asked = {name for name in known if _is_listed(name) or name in questions}
    gone = sorted(_kind(known[name]) for name in asked if name.lower() not in there)
    before = None if remembered is None else int(remembered["inputs"]["sku"]["capacity"])
    return Drift(
        wanted=(before or 0) if wanted is None else wanted,
        remembered=before,
        present=capacity,
        gone=tuple(gone),
    )


def tell_end(stack: Stack, failed: AzureFailed) -> None:
    """Says so when Azure has no scale set any more because its own time was over.

    What else is known of ``failed`` stays as it is, and so does an error for which that is not the reason.
    """
    if failed.trouble.code not in GONE:
        return
    from infra.preflight.stale import end_remembered

    try:
        end = end_remembered(stack.state())
    except RankliftError:
        return  # what Azure said is said all the same
    if end is not None and end.at <= datetime.now(UTC):
        failed.args = (
            f"stack {stack.name} has no nodes any more: their time was over at {end}, when they delete their "
            f"scale set\n`fab up --stack {stack.name}` makes it anew, with a new time; "
            f"`fab down --stack {stack.name}` removes the rest, which still costs",
        )


def _questions(stack: Stack, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Callable[[], Any]]:
    """By what is asked after: a group's name gives ids, a resource's whether it is there, "" the capacity."""
    from azure.core.exceptions import ResourceNotFoundError

    from infra.arm import clients
    from infra.arm.types import REMOVABLE, api_version

    subscription = next(iter(known)).split("/")[2]
    client = clients.resource_client(subscription, stack.environment)

    def or_none(ask: Callable[[], Any], nothing: Any) -> Any:
        try:
            return ask()
        except ResourceNotFoundError:
            return nothing

    def list_group(group: str) -> set[str]:
        listed = {
            str(one.id).lower()
            for one in or_none(lambda: list(client.resources.list_by_resource_group(group)), ())
        }
        if or_none(lambda: client.resource_groups.get(group), None) is not None:
            listed.add(f"/subscriptions/{subscription}/resourcegroups/{group}".lower())
        return listed

    def is_there(identifier: str, version: str) -> bool:
        asked = client.resources.get_by_id
        return or_none(lambda: asked(identifier, api_version=version), None) is not None

    def capacity(identifier: str) -> int | None:
        _, group, name = scale_set_of(identifier)
        sets = clients.clients(subscription, stack.environment).compute.virtual_machine_scale_sets
        found = or_none(lambda: sets.get(group, name), None)
        return None if found is None else int(found.sku.capacity)

    questions: dict[str, Callable[[], Any]] = {}
    for group in {identifier.split("/")[4] for identifier in known}:
        questions[group] = partial(list_group, group)
    for identifier, one in known.items():
        if one["type"] == SCALE_SET:
            questions[""] = partial(capacity, identifier)
        elif not _is_listed(identifier) and one["type"] in REMOVABLE:
            version = api_version(REMOVABLE[one["type"]].azure)
            questions[identifier] = partial(is_there, identifier, version)
    return questions


def _is_listed(identifier: str) -> bool:
    """Whether its group's list of resources has it. Roles are in none."""
    return len(identifier.split("/")) <= _TOP and "/microsoft.authorization/" not in identifier.lower()


def _kind(resource: Mapping[str, Any]) -> str:
    """A resource as people know it.

    >>> _kind({"type": "azure-native:network:NatGateway", "urn": "urn:pulumi:dev::ranklift::a$b::way-out"})
    'NatGateway way-out'
    """
    return f"{str(resource['type']).rpartition(':')[2]} {str(resource['urn']).rpartition('::')[2]}"
