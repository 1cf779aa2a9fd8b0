"""The stacks' resources in the subscription, and what is left of a stack: ``account``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from launch.errors import InputError, RankliftError
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.project import Stack

if TYPE_CHECKING:
    from infra.preflight.usage import Account

__all__ = ["account", "query_account", "report_left"]

_RETAIN, _ACCOUNT = "ranklift:retainData", "ranklift:storageAccountId"


@command(
    "account",
    example="fab account --stack dev",
    help={"stack": "only the resources of this stack (default: every stack in the same subscription)"},
)
def account(context: Context, stack: str | None = None, json: bool = False) -> None:
    """List everything in the subscription that carries a stack's tag, since when, and what it costs.

    Searches all resource groups, and names apart what others have put into a stack's group. Marks what Pulumi
    does not know in this project: it may be a colleague's, kept, or left by a lost state. Prices are list
    prices; what is billed by use, or is not in the price list, is unknown.
    """
    from playbooks.stack.cost_tables import print_account

    chosen = open_from(context, stack)
    found = _compared(chosen, query_account(chosen, None if stack is None else chosen.short_name))
    if json:
        output.as_json(found)
    else:
        print_account(found)


def report_left(stack: Stack, *, json: bool = False) -> bool:
    """Print what is left of the stack, and what it costs; return whether all of it is kept on purpose.

    Raises :class:`~infra.arm.errors.AzureRefused` when Azure does not answer.
    """
    from playbooks.stack.cost_tables import print_left

    found = query_account(stack, stack.short_name)
    if json:
        output.as_json(found)
    else:
        print_left(found)
    return not found.left


def query_account(stack: Stack, only: str | None) -> Account:
    """Return what carries a stack's tag in the subscription; what ``retainData`` keeps is marked."""
    from infra.arm.rest import management, retail_prices
    from infra.arm.subscription import KEY, subscription_of
    from infra.naming import data_group_name, is_own_data
    from infra.preflight import usage as accounts
    from playbooks.stack.preflight import answers_to

    settings = _settings(stack)
    name = stack.short_name
    group = data_group_name(name)
    kept = is_own_data(name, str(settings.get(_ACCOUNT, ""))) or (
        str(settings.get(_RETAIN, "")).lower() == "true"
    )
    return accounts.account(
        management(stack.environment),
        retail_prices(stack.environment),
        subscription_of(settings.get(KEY), stack.environment),
        only,
        kept_groups=[group] if kept else (),
        ask=answers_to,
    )


def _compared(stack: Stack, found: Account) -> Account:
    """Return the account, with what is not in the states of this project's stacks marked."""
    from infra.preflight.usage import compared
    from playbooks.stack.preflight import answers_to

    named = {one.stack for one in found.things if one.stack is not None}
    if not named:
        return found
    try:
        known = {name.rpartition("/")[2]: name for name in stack.siblings()}
        questions = {name: replace(stack, name=known[name]).state for name in named & known.keys()}
        answers: dict[str, Any] = {name: {} for name in named} | answers_to(questions)
    except RankliftError as error:
        answers = {"": error}
    for state in answers.values():
        if isinstance(state, Exception):
            output.progress(f"which resources are in Pulumi's state is unknown: {state}")
    return compared(found, {name: s for name, s in answers.items() if not isinstance(s, Exception)})


def _settings(stack: Stack) -> dict[str, object]:
    """Return the stack's configuration; empty for a removed stack that has none any more."""
    try:
        return stack.settings()
    except InputError:
        return {}
