"""A rule takes metrics of those who may send them, and of nobody else."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from launch.remote.metrics.remote_write import HEADERS, STALE, encode_requests, labels_of
from rehearsal.arm.monitor.data_collection import METADATA
from rehearsal.arm.monitor.ingestion import take_metrics
from rehearsal.imds.tokens import Identity
from tests.rehearsal.doubles import BASE, Endpoint

WORKSPACE = "providers/Microsoft.Monitor/accounts/own"
ENDPOINT = "providers/Microsoft.Insights/dataCollectionEndpoints/own"
RULE = "providers/Microsoft.Insights/dataCollectionRules/own"
RIGHT = f"{RULE}/providers/Microsoft.Authorization/roleAssignments/2f1f1f70-2a9f-4f3f-8d5a-000000000001"
PUBLISHER = "3913510d-42f4-4e42-8a64-420c390055eb"
NODES = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
AUDIENCE = "https://monitor.azure.com/"


def rule(**properties: Any) -> dict[str, Any]:
    flow = {"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["workspace"]}
    target = {"name": "workspace", "accountResourceId": f"{BASE}/{WORKSPACE}"}
    made = {
        "dataCollectionEndpointId": f"{BASE}/{ENDPOINT}",
        "dataSources": {},
        "destinations": {"monitoringAccounts": [target]},
        "dataFlows": [flow],
        **properties,
    }
    return {"location": "westeurope", "properties": made}


@dataclass
class Sender:
    """A node that sends to a rule."""

    azure: Endpoint
    base: str
    """What stands for the metadata service."""

    @property
    def path(self) -> str:
        """The address of the rule's stream, without the service's."""
        endpoint = self.azure.ask("GET", ENDPOINT)[1]["properties"]["metricsIngestion"]["endpoint"]
        name = self.azure.ask("GET", RULE)[1]["properties"]["immutableId"]
        where = endpoint.removeprefix(METADATA)
        return (
            f"{where}/dataCollectionRules/{name}/streams/Microsoft-PrometheusMetrics/api/v1/write"
            "?api-version=2023-04-24"
        )

    def token(self, audience: str = AUDIENCE) -> str:
        return self.azure.shared.tokens.issue(identity(self.azure), audience).text

    def send(
        self,
        body: bytes,
        *,
        path: str = "",
        token: str | None = None,
        headers: dict[str, str] | None = None,
        method: str = "POST",
    ) -> tuple[int, str]:
        """Status and error code of a request."""
        own = {"Authorization": f"Bearer {self.token() if token is None else token}"}
        sent = {**HEADERS, **own, **(headers or {})}
        url = self.base + (path or self.path)

        async def ask() -> tuple[int, str]:
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, url, data=io.BytesIO(body), headers=sent) as answer,
            ):
                found = await answer.json() if answer.status >= 400 else {"error": {"code": ""}}
                return answer.status, found["error"]["code"]

        result: tuple[int, str] = self.azure.run(ask())
        return result

    def arrived(self) -> dict[str, Any]:
        """By the label ``n``, the values that the workspace keeps."""
        found = self.azure.ask("GET", f"{WORKSPACE}/rehearsed-series")[1]["value"]
        return {one["labels"]["n"]: one["value"] for one in found}


@pytest.fixture
def sender(azure: Endpoint) -> Iterator[Sender]:
    """A sender with the role on the rule."""
    assert azure.ask("PUT", BASE, {"location": "westeurope"})[0] == 201
    assert azure.ask("PUT", NODES, {"location": "westeurope"})[0] in (200, 201)
    assert azure.ask("PUT", WORKSPACE, {"location": "westeurope"})[0] in (200, 201)
    assert azure.ask("PUT", ENDPOINT, {"location": "westeurope", "properties": {}})[0] in (200, 201)
    assert azure.ask("PUT", RULE, rule())[0] in (200, 201)
    subscription = azure.subscription

    async def serve() -> tuple[web.Server, asyncio.Server, int]:
        server = web.Server(lambda request: take_metrics(request, subscription, azure.shared.tokens))
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        running = await asyncio.get_running_loop().create_server(server, sock=listener)
        return server, running, listener.getsockname()[1]

    server, running, port = azure.run(serve())
    made = Sender(azure, f"http://127.0.0.1:{port}")
    allow(azure)
    yield made

    async def end() -> None:
        running.close()
        await server.shutdown(0.1)

    azure.run(end())


def identity(azure: Endpoint) -> Identity:
    shown = azure.ask("GET", NODES)[1]
    return Identity(shown["id"], shown["properties"]["principalId"], shown["properties"]["clientId"])


def allow(azure: Endpoint) -> None:
    own = f"/subscriptions/{azure.subscription.id}"
    role = f"{own}/providers/Microsoft.Authorization/roleDefinitions/{PUBLISHER}"
    properties = {
        "roleDefinitionId": role,
        "principalId": identity(azure).principal_id,
        "principalType": "ServicePrincipal",
    }
    status, answer, _ = azure.ask("PUT", RIGHT, {"properties": properties})
    assert status in (200, 201), answer


def body(*values: tuple[str, float]) -> bytes:
    series = [(labels_of("ranklift_test", [("n", name)]), value) for name, value in values]
    ((made, _),) = encode_requests(series, 1_700_000_000_000)
    return made


def test_what_is_sent_is_in_the_workspace_until_its_series_ends(sender: Sender) -> None:
    assert sender.send(body(("a", 1), ("b", 2))) == (204, "")
    assert sender.arrived() == {"a": 1, "b": 2}
    assert sender.send(body(("a", 3), ("b", STALE), ("c", float("inf")))) == (204, "")
    assert sender.arrived() == {"a": 3, "c": "inf"}


def test_a_sender_without_the_role_on_the_rule_is_refused(sender: Sender) -> None:
    sender.azure.settle("DELETE", RIGHT)
    assert sender.send(body(("a", 1))) == (403, "OperationFailed")
    allow(sender.azure)
    assert sender.send(body(("a", 1))) == (204, "")


def test_a_token_of_nobody_or_for_another_service_is_refused(sender: Sender) -> None:
    assert sender.send(body(("a", 1)), token="made-up") == (401, "InvalidToken")
    other = sender.token("https://management.azure.com/")
    assert sender.send(body(("a", 1)), token=other) == (401, "InvalidToken")
    assert sender.send(body(("a", 1)), token=sender.token("https://monitor.azure.com")) == (204, "")


def test_a_rule_that_does_not_exist_is_not_found(sender: Sender) -> None:
    name = sender.path.split("/")[4]
    wrong = sender.path.replace(name, "dcr-" + "0" * 32)
    assert sender.send(body(("a", 1)), path=wrong) == (404, "NotFound")
    assert sender.send(body(("a", 1)), path=sender.path.replace("/own/", "/another/")) == (404, "NotFound")
    assert sender.send(body(("a", 1)), path=sender.path.replace("2023-04-24", "2020-01-01")) == (
        404,
        "NotFound",
    )


def test_anything_but_remote_write_is_refused(sender: Sender) -> None:
    assert sender.send(b"up 1\n") == (400, "InvalidPayload")
    assert sender.send(body(("a", 1)), headers={"Content-Encoding": "identity"}) == (
        415,
        "UnsupportedMediaType",
    )
    assert sender.send(b"x" * (1 << 20 | 1)) == (413, "ContentLengthLimitExceeded")
    assert sender.send(b"", method="GET") == (405, "MethodNotAllowed")
    assert sender.arrived() == {}


def test_a_rule_needs_an_endpoint_and_a_workspace_that_exist(sender: Sender) -> None:
    target = {"name": "workspace", "accountResourceId": f"{BASE}/{WORKSPACE}x"}
    for wrong in (
        {"dataCollectionEndpointId": f"{BASE}/{ENDPOINT}x"},
        {"destinations": {"monitoringAccounts": [target]}},
        {"dataFlows": [{"streams": ["Microsoft-PrometheusMetrics"], "destinations": ["elsewhere"]}]},
    ):
        status, answer, _ = sender.azure.ask("PUT", f"{RULE}2", rule(**wrong))
        assert (status, answer["error"]["code"]) == (400, "InvalidPayload")


def test_azure_names_what_it_makes(sender: Sender) -> None:
    shown = sender.azure.ask("GET", WORKSPACE)[1]["properties"]
    assert shown["metrics"]["prometheusQueryEndpoint"].endswith(".westeurope.prometheus.monitor.azure.com")
    assert sender.azure.ask("GET", RULE)[1]["properties"]["immutableId"].startswith("dcr-")
