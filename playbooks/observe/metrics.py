"""The metrics of a cluster for Prometheus on the operator's machine: ``metrics``."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from invoke.context import Context

from launch.errors import InputError
from launch.numbers import bounded
from playbooks.cli import output
from playbooks.cli.task import command, open_from

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from playbooks.observe.cluster_metrics import ClusterMetrics

__all__ = ["metrics"]

_ADDRESS = "127.0.0.1"
_PORT = 9500
_FIRST_PORT, _LAST_PORT = 1, 65535
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43,}")


@command(
    "metrics",
    example="fab metrics --port 9500",
    help={
        "port": f"port of 127.0.0.1 to serve at (default: {_PORT})",
        "once": "print the metrics once, and serve nothing",
    },
)
def metrics(context: Context, stack: str | None = None, port: str = str(_PORT), once: bool = False) -> None:
    """Serve the metrics of nodes, ranks, jobs, queue and cost to a Prometheus on this machine, until Ctrl-C.

    They come from the jobs' heads over ssh whenever they are read, at most every 5 s, and are served at
    http://127.0.0.1:PORT/metrics alone, to requests with the bearer token in .ranklift/STACK/metrics-token.
    The cost so far is an estimate by list prices. With ranklift:metricsPort the nodes serve the same inside
    the virtual network, without the cluster's cost.
    """
    chosen = open_from(context, stack)
    remedy = f"give a port from {_FIRST_PORT} to {_LAST_PORT}"
    wanted = bounded("--port", port, _FIRST_PORT, _LAST_PORT, problem="is not a port", remedy=remedy)
    listener = None if once else _listen(wanted)
    from playbooks.observe.cluster_metrics import ClusterMetrics

    made = ClusterMetrics(chosen, output.progress)
    try:
        if listener is None:
            output.result(made.text(cost_wait_s=None).rstrip("\n"))
            if made.failure is not None:
                raise made.failure
        else:
            _serve(listener, made, chosen.metrics_token)
    finally:
        made.close()


def _listen(port: int) -> socket.socket:
    from launch.remote.metrics.http_page import listen

    try:
        return listen(_ADDRESS, port)
    except OSError as error:
        problem = f"cannot be served at {_ADDRESS}: {error.strerror}"
        raise InputError("--port", port, problem, "give another --port, or end what has this one") from None


def _serve(listener: socket.socket, made: ClusterMetrics, token_file: Path) -> None:
    from launch.errors import RankliftError
    from launch.remote.metrics.exposition import CONTENT_TYPE
    from launch.remote.metrics.http_page import Unavailable, serve

    def page() -> bytes:
        try:
            return made.text().encode("utf-8", "replace")
        except RankliftError as error:
            raise Unavailable(str(error)) from error

    with listener:
        port, token = listener.getsockname()[1], _token(token_file)
        output.progress(
            f"serving http://{_ADDRESS}:{port}/metrics until Ctrl-C, to requests with the bearer token in "
            f"{token_file}"
        )
        hosts = (f"{_ADDRESS}:{port}", f"localhost:{port}")
        serve(listener, page, CONTENT_TYPE, hosts=hosts, token=token)


def _token(file: Path) -> str:
    """Return the token of a stack's metrics, made once. Raise GiveUpError where it cannot be kept."""
    from launch.errors import GiveUpError
    from launch.remote.base.files import replace_file

    try:
        if file.exists():
            file.chmod(0o600)
            token = file.read_text().strip()
            if _TOKEN.fullmatch(token):
                return token
        token = secrets.token_urlsafe(32)
        replace_file(str(file), f"{token}\n".encode())
    except (OSError, ValueError) as error:
        raise GiveUpError(f"{file}: the token of the metrics cannot be kept there: {error}") from None
    return token
