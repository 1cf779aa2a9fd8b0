"""A resource type is one file and one registry entry: shown with one that is not in the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.resource_types import ENTRIES, RESOURCE_TYPES
from rehearsal.provider.values import decode
from tests.rehearsal.arm import route_tables
from tests.rehearsal.bodies import VNET, vnet
from tests.rehearsal.doubles import BASE, Endpoint, RecordingMachines, endpoint
from tests.rehearsal.provider.engine import Engine, Refused, with_engine

TYPES = ResourceTypes((*ENTRIES, *route_tables.ENTRIES))
TABLE = "providers/Microsoft.Network/routeTables/own"
TOKEN = route_tables.TABLES.token


@pytest.fixture
def azure(recorded: RecordingMachines) -> Iterator[Endpoint]:
    """An endpoint that knows route tables, with an empty group."""
    route_tables.APPLIED.clear()
    with endpoint(recorded, types=TYPES) as running:
        assert running.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
        yield running


def table(*names: str) -> dict[str, Any]:
    routes = [
        {"name": name, "properties": {"addressPrefix": "10.1.0.0/16", "nextHopType": "None"}}
        for name in names
    ]
    return {"location": "westeurope", "properties": {"routes": routes}}


def test_it_is_written_shown_and_deleted_over_http(azure: Endpoint) -> None:
    assert azure.settle("PUT", TABLE, table("a", "b"))["status"] == "Succeeded"
    status, shown, _ = azure.ask("GET", TABLE)
    assert (status, shown["type"]) == (200, "Microsoft.Network/routeTables")
    assert shown["tags"] == {"routes": "2"}
    assert azure.ask("POST", f"{TABLE}/count")[:2] == (200, {"count": 2})
    assert [one["id"] for one in azure.ask("GET", "providers/Microsoft.Network/routeTables")[1]["value"]] == [
        f"{BASE}/{TABLE}"
    ]
    assert azure.settle("DELETE", TABLE)["status"] == "Succeeded"
    assert azure.ask("GET", TABLE)[0] == 404
    assert route_tables.APPLIED == [("apply", "own"), ("remove", "own")]


def test_its_body_is_checked_against_its_model_and_by_its_hook(azure: Endpoint) -> None:
    misspelt = {"location": "westeurope", "properties": {"route": []}}
    assert "Could not find member 'route'" in azure.ask("PUT", TABLE, misspelt)[1]["error"]["message"]
    assert azure.ask("PUT", TABLE, table("a", "a"))[1]["error"]["code"] == "DuplicateRoute"
    assert route_tables.APPLIED == []


def test_what_refers_to_it_is_shown_and_keeps_it(azure: Endpoint) -> None:
    azure.settle("PUT", TABLE, table("a"))
    azure.settle("PUT", VNET, vnet(routeTable={"id": f"{BASE}/{TABLE}"}))
    subnets = azure.ask("GET", TABLE)[1]["properties"]["subnets"]
    assert subnets == [{"id": f"{BASE}/{VNET}/subnets/nodes"}]
    assert azure.ask("DELETE", TABLE)[1]["error"]["code"] == "InUseRouteTableCannotBeDeleted"


def test_pulumi_creates_changes_and_deletes_it(azure: Endpoint) -> None:
    inputs = {"resourceGroupName": "lab", "routeTableName": "own", "location": "westeurope"}

    async def scenario(engine: Engine) -> tuple[Any, ...]:
        checked = decode((await engine.check(TOKEN, "own", inputs)).inputs)
        made = await engine.make(TOKEN, checked)
        fixed = await engine.diff(
            TOKEN,
            {**inputs, "disableBgpRoutePropagation": True},
            {**inputs, "disableBgpRoutePropagation": False},
        )
        await engine.delete(TOKEN, made["id"])
        return checked, made, list(fixed.replaces)

    checked, made, replaces = with_engine(azure.url, scenario, TYPES)
    assert checked == inputs
    assert (made["id"], made["tags"]) == (f"{BASE}/{TABLE}", {"routes": "0"})
    assert replaces == ["disableBgpRoutePropagation"]
    assert route_tables.APPLIED == [("apply", "own"), ("remove", "own")]


def test_without_its_entry_it_is_unknown(recorded: RecordingMachines) -> None:
    with endpoint(recorded) as plain:
        plain.ask("PUT", BASE, {"location": "westeurope"})
        assert plain.ask("PUT", TABLE, table())[1]["error"]["code"] == "InvalidResourceType"

        async def scenario(engine: Engine) -> None:
            with pytest.raises(Refused, match="does not emulate azure-native:network:RouteTable"):
                await engine.check(TOKEN, "own", {})

        with_engine(plain.url, scenario)


def test_every_type_has_a_model_and_one_entry() -> None:
    names = [kind.type for kind, _ in ENTRIES]
    assert len(names) == len(set(names))
    assert all(kind.model is not None and kind.shown is not None for kind in RESOURCE_TYPES)
    children = {child for kind in RESOURCE_TYPES for child in kind.children.values()}
    assert {kind.type for kind in RESOURCE_TYPES if kind.embedded} <= children
