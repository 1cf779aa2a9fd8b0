"""Machines that only remember, and the endpoint over them on a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp import web
from azure.core.pipeline.policies import HeadersPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.resources import ResourceManagementClient

from launch.errors import ReplaceNodeError
from rehearsal.arm.app import MANAGER, SERVICES, listen, make_app
from rehearsal.arm.core.operations import Faults
from rehearsal.arm.core.registry import ResourceTypes
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.arm.services import Services, SharedState
from rehearsal.azurite import Azurite
from rehearsal.blobs.blob_server import BlobServer
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.listener import Listener, loopback_port
from rehearsal.vms.api import Machine, VmFault

SUBSCRIPTION_ID = "00000000-0000-0000-0000-000000000001"
TOKEN = "the operator's token"
"""Of every endpoint of the tests."""
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
BASE = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/lab"


@dataclass
class RecordingMachines:
    """Fulfils the Machines protocol in memory; ``calls`` is what was asked, in order."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    networks: dict[str, str] = field(default_factory=dict)
    outbound: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By network: the subnets that reach the world."""
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    """By network: the names that resolve besides those of its VMs."""
    ports: dict[tuple[str, str], int] = field(default_factory=dict)
    """By network and address: the loopback port that stands for one of its own."""
    up: dict[str, dict[str, Machine]] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    forwards: dict[tuple[str, tuple[str, int]], tuple[str, int]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """VMs that will not come up."""
    boot_seconds: float = 0.0
    addresses: int = 0

    async def create_network(self, network: str, address_prefix: str, *, own_dns: bool = False) -> None:
        self.calls.append(("create_network", network, address_prefix, *(["own DNS"] if own_dns else [])))
        self.networks[network] = address_prefix
        self.up.setdefault(network, {})

    async def set_outbound(self, network: str, subnets: Sequence[str]) -> None:
        self.outbound[network] = tuple(subnets)

    async def open_port(self, network: str, address: str, port: int) -> socket.socket | None:
        if network not in self.networks:
            return None
        listener = socket.socket()
        listener.bind((address if address.startswith("127.") else "127.0.0.1", 0))
        self.ports[network, address] = listener.getsockname()[1]
        return listener

    async def close_port(self, network: str, address: str) -> None:
        del self.ports[network, address]

    async def set_names(self, network: str, names: Mapping[str, str]) -> None:
        self.names[network] = dict(names)

    async def delete_network(self, network: str) -> None:
        self.calls.append(("delete_network", network))
        self.networks.pop(network, None)
        self.up.pop(network, None)

    async def boot(self, network: str, machines: Sequence[Machine]) -> None:
        self.calls.append(("boot", network, tuple(m.name for m in machines)))
        await asyncio.sleep(self.boot_seconds)
        for machine in machines:
            if machine.name in self.broken:
                raise ReplaceNodeError(machine.name, "sshd does not listen")
            self.up[network][machine.name] = machine
            self.dead.discard(machine.name)

    async def remove(self, network: str, names: Sequence[str]) -> None:
        self.calls.append(("remove", network, tuple(names)))
        for name in names:
            self.up.get(network, {}).pop(name, None)

    async def public_address(self) -> str:
        self.addresses += 1
        return f"127.64.0.{self.addresses}"

    async def release_address(self, address: str) -> None:
        self.calls.append(("release_address", address))

    async def forward(self, network: str, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.forwards[network, listen] = target

    async def unforward(self, network: str, listen: tuple[str, int]) -> None:
        self.forwards.pop((network, listen), None)

    async def running(self, network: str) -> frozenset[str]:
        return frozenset(self.up.get(network, {})) - self.dead

    async def fault(self, network: str, name: str, fault: VmFault) -> None:
        self.dead.add(name)

    async def close(self) -> None:
        self.calls.append(("close",))

    def booted(self) -> list[str]:
        """Names of all VMs ever booted, in order."""
        return [name for call in self.calls if call[0] == "boot" for name in call[2]]


class Endpoint:
    """A running ARM endpoint, asked synchronously."""

    def __init__(
        self, url: str, app: web.Application, shared: SharedState, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.url, self.app, self.shared, self.loop = url, app, shared, loop

    @property
    def subscription(self) -> Subscription:
        return self.app[MANAGER].subscription

    @property
    def services(self) -> Services:
        return self.app[SERVICES]

    def run(self, coroutine: Any) -> Any:
        """Runs a coroutine on the endpoint's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def ask(
        self, method: str, path: str, body: Any = None, version: str | None = "2024-11-01"
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON body and headers of one request; path below the host, or below the group ``lab``."""

        async def send() -> tuple[int, Any, dict[str, str]]:
            url = (
                path
                if path.startswith("http")
                else self.url + (path if path.startswith("/") else f"{BASE}/{path}")
            )
            params = {"api-version": version} if version and "api-version" not in url else {}
            async with (
                aiohttp.ClientSession(headers=AUTHORIZED) as session,
                session.request(method, url, json=body, params=params) as answer,
            ):
                text = await answer.text()
                return answer.status, (await answer.json() if text else None), dict(answer.headers)

        result: tuple[int, Any, dict[str, str]] = self.run(send())
        return result

    def ask_as(self, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of a request that carries a token; path below the host."""

        async def send() -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            params = {"api-version": "2024-11-01"}
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.request(method, self.url + path, json=body, params=params) as answer,
            ):
                text = await answer.text()
                return answer.status, (await answer.json() if text else None)

        result: tuple[int, Any] = self.run(send())
        return result

    def settle(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Sends a write, waits for its operation; what the status document says in the end."""
        status, answer, headers = self.ask(method, path, body)
        if status >= 400:
            return {"status": "Refused", "http": status, **answer}
        while "Azure-AsyncOperation" in headers:
            _, answer, _ = self.ask("GET", headers["Azure-AsyncOperation"])
            if answer["status"] != "InProgress":
                return dict(answer)
        return {"status": "Succeeded"}

    def clients(self) -> SimpleNamespace:
        """Microsoft's own clients against this endpoint."""
        common: Any = {
            "base_url": self.url,
            "authentication_policy": HeadersPolicy(AUTHORIZED),
            "credential_scopes": ["x"],
        }
        credential: Any = object()
        return SimpleNamespace(
            compute=ComputeManagementClient(credential, SUBSCRIPTION_ID, **common),
            network=NetworkManagementClient(credential, SUBSCRIPTION_ID, **common),
            resources=ResourceManagementClient(credential, SUBSCRIPTION_ID, **common),
        )


@contextmanager
def endpoint(
    machines: RecordingMachines,
    faults: Faults | None = None,
    types: ResourceTypes = RESOURCE_TYPES,
    store: Azurite | None = None,
) -> Iterator[Endpoint]:
    """The endpoint on a free loopback port; with a ``store`` blobs are real."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    shared = SharedState(Subscription(SUBSCRIPTION_ID, types))

    async def start() -> tuple[Listener, web.AppRunner, web.Application]:
        scarcity = faults if isinstance(faults, ArmFaults) else None
        blobs = None
        if store is not None:
            blobs = BlobServer(store, shared, machines, TOKEN, scarcity or ArmFaults())
        middlewares = [scarcity.middleware] if scarcity is not None else []
        app = make_app(
            shared, machines, TOKEN, faults=faults, scarcity=scarcity, middlewares=middlewares, blobs=blobs
        )
        runner = web.AppRunner(app)
        await runner.setup()
        return listen(runner, app, loopback_port()), runner, app

    listener, runner, app = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield Endpoint(f"http://127.0.0.1:{listener.port}", app, shared, loop)
    finally:
        asyncio.run_coroutine_threadsafe(listener.close(), loop).result(30)
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
