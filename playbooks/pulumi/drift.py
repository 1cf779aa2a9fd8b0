"""Whether Azure still has what Pulumi's state of a stack lists, without a ``pulumi refresh``.

A refresh reads every resource through the engine, which takes as long as an update; this sends one query for
each group's resources, one for each child resource, and one for the scale set's capacity, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from infra.arm.pulumi_state import SCALE_SET, resource_name, resources
from infra.arm.update_errors import AzureFailed
from infra.scale_plan import Drift
from launch.errors import RetryError
from playbooks.cli import output
from playbooks.nodes import vm_ops
from playbooks.project import Stack
from playbooks.ssh.fanout import ask_all

__all__ = ["find_drift", "find_settled_drift"]

LIMIT_S = 60.0
"""Limit of all queries together."""
_TOP = 9
"""Number of parts in the id of a resource directly in its group."""
_POLL_S = 2.0


def find_drift(stack: Stack, wanted: int | None, state: Mapping[str, Any] | None = None) -> Drift | None:
    """Return how Azure differs from Pulumi's state; None when the state has nothing in Azure.

    ``state`` is Pulumi's state, where the caller has it.

    Raises :class:`~infra.arm.update_errors.AzureFailed` when Azure does not answer.
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
    answers = ask_all(questions, what="the comparison with Azure", timeout=LIMIT_S)
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise AzureFailed(f"stack {stack.name}: Azure did not list its resources", stack.name, answer)
    there: set[str] = set()
    capacity: int | None = None
    changing = False
    for name, found in answers.items():
        if isinstance(found, tuple):
            capacity, changing = found
        elif isinstance(found, set):
            there |= found
        elif found:
            there.add(name.lower())
    remembered = next((one for one in known.values() if one["type"] == SCALE_SET), None)
    queried = {name for name in known if _is_listed(name) or name in questions}
    gone = sorted(resource_name(str(known[name]["urn"])) for name in queried if name.lower() not in there)
    before = None if remembered is None else int(remembered["inputs"]["sku"]["capacity"])
    return Drift(
        wanted=(before or 0) if wanted is None else wanted,
        remembered=before,
        present=capacity,
        gone=tuple(gone),
        changing=changing,
    )


def find_settled_drift(stack: Stack, wanted: int | None, deadline: float) -> Drift | None:
    """Return what :func:`find_drift` returns, once Azure has ended what a killed command asked of the nodes.

    Before that they are all still listed, and one that goes would be counted. Raises
    :class:`~launch.errors.RetryError` at the ``deadline``.
    """
    reported = False
    while (drift := find_drift(stack, wanted)) is not None and drift.changing:
        if time.monotonic() > deadline:
            raise RetryError(f"stack {stack.name}: Azure is still changing its nodes; nothing was changed")
        if not reported:
            output.progress(
                "Azure is still changing the nodes, as an earlier command asked; waiting for its end"
            )
            reported = True
        time.sleep(_POLL_S)
    return drift


def _questions(stack: Stack, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Callable[[], Any]]:
    """Return the queries: a group's name gives ids, a resource's whether it exists, "" the capacity and
    whether it is being changed."""
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
        get = client.resources.get_by_id
        return or_none(lambda: get(identifier, api_version=version), None) is not None

    def capacity(identifier: str) -> tuple[int, bool] | None:
        _, group, name = vm_ops.scale_set_of(identifier)
        sets = vm_ops.scale_sets(stack, subscription)
        found = or_none(lambda: sets.get(group, name), None)
        # learn.microsoft.com rest/api/compute/virtual-machine-scale-sets: provisioningState.
        return None if found is None else (int(found.sku.capacity), found.provisioning_state == "Updating")

    questions: dict[str, Callable[[], Any]] = {}
    for group in {identifier.split("/")[4] for identifier in known}:
        questions[group] = partial(list_group, group)
    for identifier, one in known.items():
        if one["type"] == SCALE_SET:
            questions[""] = partial(capacity, identifier)
        elif not _is_listed(identifier) and one["type"] in REMOVABLE:
            version = api_version(REMOVABLE[one["type"]])
            questions[identifier] = partial(is_there, identifier, version)
    return questions


def _is_listed(identifier: str) -> bool:
    """Return whether the group's list of resources has it. No list has roles."""
    return len(identifier.split("/")) <= _TOP and "/microsoft.authorization/" not in identifier.lower()
