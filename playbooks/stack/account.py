"""What there is in the subscription because of the stacks, and what is left of one: ``account``."""

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

__all__ = ["account", "left", "tell_left"]

_RETAIN, _ACCOUNT = "ranklift:retainData", "ranklift:storageAccountId"


@command(
    "account",
    example="fab account --stack dev",
    help={"stack": "only what this stack has made (default: every stack's in the same subscription)"},
)
def account(context: Context, stack: str | None = None, json: bool = False) -> None:
    """Shows everything in the subscription that carries a stack's tag, since when, and what it costs.

    All resource groups are looked through, and what others have put into a stack's group is named apart.
    What Pulumi does not know in this project is marked: it may be a colleague's, kept, or what a lost state
    left. Prices are list prices; what is billed by use, and what the price list does not tell, is unknown.
    """
    from playbooks.stack.cost_tables import account_tables

    chosen = open_from(context, stack)
    found = _compared(chosen, _asked(chosen, None if stack is None else chosen.name.rpartition("/")[2]))
    if json:
        output.as_json(found)
    else:
        account_tables(found)


def left(stack: Stack) -> Account:
    """What carries the stack's tag anywhere in its subscription; what ``retainData`` keeps is marked so.

    Raises :class:`~infra.arm.errors.AzureRefused` when Azure does not say.
    """
    return _asked(stack, stack.name.rpartition("/")[2])


def tell_left(stack: Stack) -> bool:
    """Says what is left of the stack, and what it costs; whether that is nothing but what is to be kept."""
    from playbooks.stack.cost_tables import left_tables

    found = left(stack)
    left_tables(found)
    return not found.left


def _asked(stack: Stack, only: str | None) -> Account:
    from infra.arm.rest import management, retail_prices
    from infra.arm.subscription import KEY, subscription_of
    from infra.naming import data_group_name, is_own_data
    from infra.preflight import usage as accounts
    from playbooks.stack.plan_inputs import answers_to

    settings = _settings(stack)
    name = stack.name.rpartition("/")[2]
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
    """The account with what is not in the states of this project's stacks marked."""
    from infra.preflight.usage import compared
    from playbooks.stack.plan_inputs import answers_to

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
            output.progress(f"what of it is in Pulumi's state could not be asked: {state}")
    return compared(found, {name: s for name, s in answers.items() if not isinstance(s, Exception)})


def _settings(stack: Stack) -> dict[str, object]:
    """The stack's configuration; a stack that is gone may have none any more."""
    try:
        return stack.settings()
    except InputError:
        return {}
