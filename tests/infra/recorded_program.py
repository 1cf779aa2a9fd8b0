"""Builds clusters against an engine that records what it is asked for; a process of its own.

Reads ``{variant: settings}`` as JSON from stdin and writes, for each, the resources asked for, which of their
inputs are secret, the providers that the state would hold, the options that go with them, the outputs and
which of those are secret. It is a process of its own because Pulumi's mocks leave event loops behind in their
threads.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pulumi
from pulumi.runtime import mocks, rpc

from infra.cluster.component import TrainingCluster
from infra.config.schema import parse
from rehearsal.arm.resource_types import RESOURCE_TYPES
from rehearsal.provider.translate import resource_id

STACK = "dev"
NAMES = (
    "virtualNetworkName",
    "accountName",
    "privateEndpointName",
    "privateZoneName",
    "resourceGroupName",
)
"""Inputs of which one is the resource's own name; a child's parent comes before the group, too."""


GIVEN: dict[str, dict[Any, Any]] = {
    "StorageAccount": {
        "name": "corpdata",
        "primaryEndpoints": {"blob": "https://corpdata.blob.core.windows.net/"},
    },
    "VirtualNetwork": {
        "location": "southcentralus",
        "addressSpace": {"addressPrefixes": ["10.40.0.0/16"]},
        "subnets": [
            {
                "name": "training",
                "addressPrefix": "10.40.8.0/24",
                "serviceEndpoints": [{"service": "Microsoft.Storage"}],
            }
        ],
    },
}
"""What Azure says of the resources that are given instead of made."""


class Engine(mocks.Mocks):
    """Creates everything at once."""

    def __init__(self) -> None:
        self.resources: dict[str, Any] = {}
        self.providers: dict[str, str] = {}
        self.hidden: dict[str, list[str]] = {}
        self.reads: list[str] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        if args.resource_id:
            self.reads.append(args.resource_id)
            return args.resource_id, GIVEN[args.typ.rpartition(":")[2]]
        self.hidden[f"{args.typ} {args.name}"] = list(hidden(args.inputs))
        inputs = {key: plain(value) for key, value in args.inputs.items() if key != "__provider"}
        self.resources[f"{args.typ} {args.name}"] = inputs
        if "__provider" in args.inputs:
            self.providers[f"{args.typ} {args.name}"] = plain(args.inputs["__provider"])
        made = dict(args.inputs)
        if args.typ.endswith(":KeyPair"):
            made |= {"private_key": f"PRIVATE {args.name}", "public_key": f"ssh-ed25519 AAAA{args.name}"}
        if args.typ.endswith(":PublicIPAddress"):
            made["ipAddress"] = "198.51.100.9"
        if args.typ.endswith(":UserAssignedIdentity"):
            made |= {"principalId": "PRINCIPAL", "clientId": "CLIENT"}
        if "userAssignedIdentities" in inputs.get("identity", {}):
            # Pulumi takes a list of ids, Azure answers with a map of them.
            ids = inputs["identity"]["userAssignedIdentities"]
            made["identity"] = inputs["identity"] | {"userAssignedIdentities": {own: {} for own in ids}}
        if args.typ.endswith(":StorageAccount"):
            made["primaryEndpoints"] = {"blob": f"https://{inputs['accountName']}.blob.core.windows.net/"}
        if args.typ.endswith(":AzureMonitorWorkspace"):
            made["metrics"] = {"prometheusQueryEndpoint": "https://own.prometheus.monitor.azure.com"}
        if args.typ.endswith(":DataCollectionEndpoint"):
            made["metricsIngestion"] = {"endpoint": "https://own.metrics.ingest.monitor.azure.com"}
        if args.typ.endswith(":DataCollectionRule"):
            made["immutableId"] = "dcr-1"
        if args.typ.endswith(":NetworkInterface"):
            made["ipConfigurations"] = [{"name": "primary", "privateIPAddress": "10.0.0.4"}]
        made["name"] = next((inputs[key] for key in NAMES if key in inputs), None)
        kind = RESOURCE_TYPES.by_token(args.typ)
        return str(resource_id(kind, "s", inputs)) if kind is not None else args.name, made

    def call(self, args: mocks.MockCallArgs) -> NoReturn:
        raise AssertionError(f"{args.token} was called")


class Monitor(mocks.MockMonitor):
    """Keeps the options too, which mocks are not shown."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.options: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:
        self.options[f"{request.type} {request.name}"] = {
            "ignoreChanges": list(request.ignoreChanges),
            "replaceOnChanges": list(request.replaceOnChanges),
            "additionalSecretOutputs": list(request.additionalSecretOutputs),
            "retainOnDelete": request.retainOnDelete,
            "dependsOn": sorted(urn.rpartition("::")[2] for urn in request.dependencies),
            "parent": request.parent.rpartition("::")[2],
        }
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


def plain(value: Any) -> Any:
    """The value without marks of secrecy, whole numbers as such."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return int(value) if isinstance(value, float) else value


def hidden(value: Any, path: str = "") -> Iterator[str]:
    """The paths of what is secret in ``value``."""
    if rpc.is_rpc_secret(value):
        yield path
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from hidden(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from hidden(part, f"{path}[{index}]")


def record(settings: dict[str, str]) -> dict[str, Any]:
    """What the cluster of these settings asks for; ``*changed`` names those that the update changes."""
    changed = frozenset(settings.get("*changed", "").split())
    config = parse({f"ranklift:{key}": value for key, value in settings.items() if key != "*changed"})
    engine = Engine()
    monitor = Monitor(engine)
    mocks.set_mocks(engine, project="ranklift", stack=STACK, monitor=monitor)
    outputs: dict[str, Any] = {}
    secrets: list[str] = []

    @pulumi.runtime.test  # type: ignore[untyped-decorator]
    def program() -> pulumi.Output[None]:
        async def look(given: dict[str, pulumi.Input[object]]) -> None:
            for key, value in given.items():
                output = pulumi.Output.from_input(value)
                outputs[key] = await output.future()
                if await output.is_secret():
                    secrets.append(key)

        return pulumi.Output.from_input(look(TrainingCluster(STACK, config, changed=changed).outputs))

    program()
    resources = dict(sorted(engine.resources.items()))
    return {
        "resources": resources,
        "providers": engine.providers,
        "reads": engine.reads,
        "hidden": {name: paths for name, paths in engine.hidden.items() if paths},
        "options": monitor.options,
        "outputs": outputs,
        "secrets": secrets,
    }


if __name__ == "__main__":
    print(json.dumps({name: record(settings) for name, settings in json.load(sys.stdin).items()}))  # noqa: T201
