"""Builds images against an engine that records what it is asked for; a process of its own, as for clusters.

Reads ``{variant: settings}`` as JSON from stdin and writes, for each, the resources, their options and the
outputs.
"""

import json
import sys
from typing import Any

import pulumi
from pulumi.runtime import mocks

from images.build.config import KEY, parse
from images.build.program import NodeImage
from tests.infra.recorded_program import Engine, Monitor


def record(settings: dict[str, str]) -> dict[str, Any]:
    """What the image of these settings asks for."""
    config = parse({KEY + key: value for key, value in settings.items()})
    engine = Engine()
    monitor = Monitor(engine)
    mocks.set_mocks(engine, project="ranklift-images", stack="dev", monitor=monitor)
    outputs: dict[str, Any] = {}

    @pulumi.runtime.test  # type: ignore[untyped-decorator]
    def program() -> pulumi.Output[None]:
        async def look(given: dict[str, pulumi.Input[object]]) -> None:
            for key, value in given.items():
                outputs[key] = await pulumi.Output.from_input(value).future()

        return pulumi.Output.from_input(look(NodeImage("dev", config).outputs))

    program()
    return {"resources": engine.resources, "options": monitor.options, "outputs": outputs}


if __name__ == "__main__":
    print(json.dumps({name: record(settings) for name, settings in json.load(sys.stdin).items()}))  # noqa: T201
