"""Daemon of a rehearsal: ARM endpoint, provider, VMs. :mod:`rehearsal.control` starts it.

SIGTERM shuts it down. However it ends, the kernel ends everything that it started with it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from launch.errors import RankliftError
from rehearsal.arm.app import SERVICES, listen, make_app
from rehearsal.arm.auth.directory import Application, make_directory
from rehearsal.arm.core.subscription import Subscription
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.arm.services import SharedState
from rehearsal.azurite import Azurite, installed
from rehearsal.blobs.blob_server import BlobServer
from rehearsal.faults.arm_faults import ArmFaults
from rehearsal.faults.fault_kinds import fault_spec
from rehearsal.faults.node_faults import NodeFaults
from rehearsal.imds.server import Metadata
from rehearsal.imds.tokens import TENANT_ID, Tokens
from rehearsal.listener import loopback_port
from rehearsal.provider import SUBSCRIPTION_ID, serve
from rehearsal.run_dir import Folder, Record, short_path, start_time
from rehearsal.vms.api import Settings
from rehearsal.vms.local import LocalMachines
from rehearsal.vms.visible_paths import environments, visible_paths

__all__ = ["machine_settings", "main", "run"]

_PROJECT_CHECK_S = 2.0
"""Seconds between two checks that the project folder exists: without it no command could stop the daemon."""

_log = logging.getLogger("rehearsal")


async def run(folder: Folder, nodes_limit: int, node_python: Path | None) -> None:
    """Serve until SIGTERM, SIGINT or the removal of the folder; only files remain afterwards."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    azurite = Azurite(folder.root / "storage") if installed() else None
    trusted = azurite.certificate if azurite is not None else None
    settings = machine_settings(folder, node_python, nodes_limit, os.environ, trusted)
    async with contextlib.AsyncExitStack() as stack:
        shared, arm_faults = SharedState(Subscription(SUBSCRIPTION_ID, RESOURCE_TYPES)), ArmFaults()
        # The metadata service passes requests on to the endpoint, whose port must be known before its nodes.
        own = loopback_port()
        arm = f"http://127.0.0.1:{own.getsockname()[1]}"
        metadata = Metadata(shared, arm)
        machines = LocalMachines(settings, metadata, arm_faults)
        stack.push_async_callback(machines.close)
        token = secrets.token_urlsafe(32)
        blobs = BlobServer(azurite, shared, machines, token, arm_faults) if azurite is not None else None
        app = make_app(
            shared,
            machines,
            token,
            faults=arm_faults,
            scarcity=arm_faults,
            middlewares=[arm_faults.middleware],
            blobs=blobs,
        )
        node_faults = NodeFaults(app[SERVICES], machines, arm_faults)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listener = listen(runner, app, own)
        stack.push_async_callback(listener.close)
        application = Application()
        shared.subscription.service_principals.add(application.object_id)
        directory = await _serve_directory(application, shared.tokens, stack)
        blob_port = await blobs.listen() if blobs is not None else 0
        stack.push_async_callback(metadata.close_all)
        stack.push_async_callback(node_faults.close)
        provider = await serve(arm, token, folder.root, RESOURCE_TYPES)
        stack.push_async_callback(provider.stop)
        stack.callback(folder.record_file.unlink, missing_ok=True)
        with short_path(folder.control) as path:
            server = await asyncio.start_unix_server(_Control(machines, node_faults, blobs).serve, path)
        stack.callback(server.close)
        pid = os.getpid()
        folder.write_application(application.variables, application.assertion)
        folder.write_record(
            Record(
                *(pid, start_time(pid), listener.port, provider.port, SUBSCRIPTION_ID, nodes_limit),
                blob_port=blob_port,
                blob_certificate=str(trusted or ""),
                directory_port=directory,
                tenant_id=TENANT_ID,
            ),
            token,
        )
        _log.info("ready: ARM on port %d, provider on port %d", listener.port, provider.port)
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), _PROJECT_CHECK_S)
            if not folder.record_file.exists():
                _log.warning("the project folder was removed")
                break
        _log.info("stopping")
    _log.info("stopped")


async def _serve_directory(application: Application, tokens: Tokens, stack: contextlib.AsyncExitStack) -> int:
    """Serve the token endpoint until the stack unwinds; return its port."""
    directory = make_directory(application, tokens)
    runner = web.AppRunner(directory, access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    listener = listen(runner, directory, loopback_port())
    stack.push_async_callback(listener.close)
    return listener.port


def machine_settings(
    folder: Folder,
    node_python: Path | None,
    nodes_limit: int,
    environment: Mapping[str, str],
    trusted: Path | None = None,
) -> Settings:
    """Return the settings of a rehearsal's nodes, with the paths of this machine that they see."""
    # Besides the nodes' own Python, this one: a network's first process goes on in it.
    needed = (*(environments(node_python) if node_python else ()), Path(sys.base_prefix))
    view = visible_paths(environment, folder.project, needed, bare=node_python is None)
    return Settings(folder.disks, node_python, nodes_limit, view, trusted)


class _Control:
    """Server of the control socket: one line of JSON each way."""

    def __init__(self, machines: LocalMachines, node_faults: NodeFaults, blobs: BlobServer | None) -> None:
        self._machines, self._node_faults, self._blobs = machines, node_faults, blobs

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        try:
            request = json.loads(await reader.readline())
            answer = {"result": await self._answer(**request)}
        except (RankliftError, ValueError, TypeError) as error:
            answer = {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - sent to the caller; the daemon goes on
            _log.exception("control")
            answer = {"error": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def _answer(self, op: str, **arguments: Any) -> Any:
        if op == "status":
            traffic = self._blobs.traffic if self._blobs is not None else {}
            storage = {account: asdict(one) for account, one in traffic.items()}
            return {**await self._machines.status(), "storage": storage}
        if op == "fault":
            for name in arguments["names"]:
                await self._machines.fault(arguments["network"], name, arguments["fault"])
            return None
        if op == "disturb":
            numbers = arguments.pop("nodes", ())
            group = arguments.pop("group")
            return await self._node_faults.inject(fault_spec(nodes=tuple(numbers), **arguments), group)
        if op == "faults":
            return self._node_faults.listed()
        if op == "clear":
            return await self._node_faults.clear()
        raise ValueError(f"{op}: the rehearsal knows status, fault, disturb, faults and clear")


def main(arguments: list[str]) -> None:
    """Run ``python -m rehearsal.daemon PROJECT --nodes-limit N [--node-python FOLDER] --lock FD``."""
    parser = argparse.ArgumentParser(prog="rehearsal")
    parser.add_argument("project", type=Path)
    parser.add_argument("--nodes-limit", type=int, required=True)
    parser.add_argument("--node-python", type=Path)
    parser.add_argument("--lock", type=int, required=True, help="the locked folder; held until the end")
    options = parser.parse_args(arguments)
    os.set_inheritable(options.lock, False)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run(Folder(options.project), options.nodes_limit, options.node_python))


if __name__ == "__main__":
    main(sys.argv[1:])
