"""A look at many nodes at once: the code of the look goes with the call, as no push has come to new nodes."""

from __future__ import annotations

import functools
import json
import os
import zlib
from collections.abc import Mapping, Sequence

from infra.inventory import Inventory, Node
from launch.client.rpc import readable
from launch.errors import ReplaceNodeError, RetryError
from launch.nodeset import fold
from launch.promise import promise_of
from launch.remote.base import frames, timing
from launch.remote.base.health_records import Finding, Look
from launch.remote.login import SILENCE_LOGIN
from launch.remote.node.health_gate import NotLooked, finding_text, read_look
from launch.remote.reading import read
from playbooks.project import Stack
from playbooks.ssh.fanout import fan_out_hosts

__all__ = ["errors_of", "finding_lines", "findings_of", "is_passing", "look"]

_MODULES = (
    *("base.files", "base.frames", "base.timing", "health.sysfs", "health.pci", "health.ib_ports"),
    *("health.kernel_log", "health.nvml_library", "health.nvml", "health.host", "health.facts"),
    *("health.gpu_checks", "health.port_checks", "health.host_checks", "health.rules", "health.readings"),
    "health.look",
)
"""Modules of the node code that a look consists of, each after those that it imports."""
_PROGRAM = """\
import json, sys, types, zlib
for name, source in json.loads(zlib.decompress(sys.stdin.buffer.read())):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
sys.exit(sys.modules["launch.remote.health.look"].main(sys.argv[1]))
"""
_TIMED_OUT = (124, 137)
"""Exit statuses of ``timeout``: its command ended by SIGTERM, or by SIGKILL."""
_PASSING = frozenset(
    {"ib-missing", "ib-state", "ib-phys-state", "ib-rate", "ib-pkey", "gpu-driver", "fabric-manager"}
)
"""Rules that a node may break soon after its boot: drivers and links come up one after the other."""


def look(stack: Stack, inventory: Inventory, nodes: Sequence[Node]) -> dict[str, Look | Exception]:
    """Look at every node; return what was found, or the error of a node about which nothing was found out."""
    from playbooks.ssh.connection import Cluster, SshHost

    promise = os.fsdecode(frames.pack(promise_of(inventory.size)))
    argv = ["timeout", "-k", "1", f"{timing.LOOK_S:g}", "python3", "-I", "-S", "-c", _PROGRAM, promise]
    limit = timing.LOOK_S + timing.LOOK_KILLED_S + timing.SSH_CONNECT_S

    def query(host: SshHost) -> Look:
        done = host.run(argv, stdin=_code(), timeout=limit)
        status = None if done.exit_status in _TIMED_OUT else done.exit_status
        with readable(host):
            try:
                found = read(Look, read_look(status, done.stdout if status == 0 else done.stderr))
            except NotLooked as error:
                raise RetryError(f"{host.name}: the look at its devices: {error}") from None
        return {**found, "findings": [*found["findings"], *_login_output(host.login.printed)]}

    with Cluster(inventory, stack.folder) as cluster:
        return fan_out_hosts(cluster.host, nodes, query, what="the look at its devices", timeout=limit + 1)


def _login_output(printed: str) -> list[Finding]:
    """Return the finding that a login prints, which comes before the output of whatever is run over ssh."""
    if not printed:
        return []
    finding: Finding = {
        "rule": "login-output",
        "level": "warning",
        "subject": "login",
        "measured": f"prints {printed}",
        "expected": "no output without a terminal",
        "source": "bash(1), INVOCATION",
        "remedy": SILENCE_LOGIN,
    }
    return [finding]


@functools.cache
def _code() -> bytes:
    from launch.code.node_code import modules

    sources = json.loads(modules())
    packages = [
        (name, "__path__ = []")
        for name in ("launch", "launch.remote", "launch.remote.base", "launch.remote.health")
    ]
    found = [(f"launch.remote.{name}", sources[f"{name.replace('.', '/')}.py"]) for name in _MODULES]
    return zlib.compress(json.dumps([*packages, *found]).encode(), 6)


def errors_of(looks: Mapping[str, Look | Exception], nodes: Mapping[str, int]) -> dict[str, ReplaceNodeError]:
    """Return the nodes with errors, each with what was found and the remedy; ``nodes`` are instance ids by
    name."""
    found = {}
    for name, answer in looks.items():
        errors = [] if isinstance(answer, Exception) else _at_level(answer, "error")
        if errors:
            text = "; ".join(map(finding_text, errors))
            text = text.replace("`fab replace` the node", f"`fab replace {nodes[name]}`")
            found[name] = ReplaceNodeError(
                name, text.replace("`fab replace` it", f"`fab replace {nodes[name]}`")
            )
    return found


def finding_lines(looks: Mapping[str, Look | Exception]) -> list[str]:
    """Return a line for each finding that is not an error, with the nodes that have it."""
    nodes: dict[str, list[str]] = {}
    for name, answer in looks.items():
        for one in () if isinstance(answer, Exception) else answer["findings"]:
            if one["level"] != "error":
                nodes.setdefault(f"{one['level']}: {finding_text(one)}", []).append(name)
    return [f"{fold(names)}: {line}" for line, names in nodes.items()]


def findings_of(look: Look | Exception | None) -> tuple[Finding, ...]:
    """Return all findings of a look; none where there was no look."""
    return () if look is None or isinstance(look, Exception) else tuple(look["findings"])


def is_passing(look: Look | Exception) -> bool:
    """Return whether what is wrong with a node may pass by itself, soon after its boot."""
    return isinstance(look, Exception) or {one["rule"] for one in _at_level(look, "error")} <= _PASSING


def _at_level(look: Look, level: str) -> list[Finding]:
    return [one for one in look["findings"] if one["level"] == level]
