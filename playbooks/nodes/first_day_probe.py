"""What a node shows of itself to ``fab check --first-day``, which sends this file to ``python3`` on the node.

Standard library and Python 3.8, as everything that runs on nodes. Nothing here changes the node, and what
IMDS has of keys and identities stays there.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["probe"]

_DOOR, _INSTANCE = "/run/ranklift/metadata", "/metadata/instance?api-version=2021-02-01"
_IMAGE = ("publisher", "offer", "sku", "version")
_GIB = 1 << 30
_STEP_S = 10
_RESULT = Path("/run/cloud-init/result.json")


def probe() -> dict[str, Any]:
    """Return what is known; what could not be read is an ``unknown:`` with the reason."""
    found: dict[str, Any] = {}
    for name, ask in (
        ("cloud_init_errors", _cloud_init_errors),
        ("seconds_from_boot_to_ready", _seconds_to_ready),
        ("system_disk", _system_disk),
        ("rdma_ports", _rdma_ports),
        ("ucx_devices", _ucx_devices),
        ("gpus", _gpus),
        ("components", _components),
        ("imds", _imds),
    ):
        try:
            found[name] = ask()
        except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
            found[name] = f"unknown: {error}"
    return found


def _cloud_init_errors() -> list[str]:
    return [str(error) for error in json.loads(_RESULT.read_text("utf-8"))["v1"]["errors"]]


def _seconds_to_ready() -> float:
    ticks = int(Path("/proc/1/stat").read_text("ascii").rpartition(")")[2].split()[19])
    lines = Path("/proc/stat").read_text("ascii").splitlines()
    up_since = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
    started = up_since + ticks / os.sysconf("SC_CLK_TCK")
    return round(_RESULT.stat().st_mtime - started, 1)


def _system_disk() -> dict[str, float]:
    disk = shutil.disk_usage("/")
    return {"total_gib": round(disk.total / _GIB, 1), "free_gib": round(disk.free / _GIB, 1)}


def _rdma_ports() -> list[str]:
    lines = []
    for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*")):
        values = [_line(port / name) for name in ("link_layer", "state", "rate")]
        lines.append(f"{port.parts[-3]}:{port.name} {', '.join(values)}")
    return lines


def _line(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return "unknown"


def _ucx_devices() -> list[str]:
    lines = _output("ucx_info", "-d").splitlines()
    return sorted({line.partition("Device:")[2].strip() for line in lines if "Device:" in line})


def _gpus() -> list[str]:
    return _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()


def _output(*argv: str) -> str:
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_STEP_S, check=True
    )
    return done.stdout.decode("utf-8", "replace")


def _components() -> dict[str, str]:
    versions = json.loads(Path("/opt/azurehpc/component_versions.txt").read_text("utf-8"))
    return {name: str(version) for name, version in versions.items()}


def _imds() -> dict[str, Any]:
    link = http.client.HTTPConnection("node")
    link.sock = socket.socket(socket.AF_UNIX)
    try:
        link.sock.settimeout(_STEP_S)
        link.sock.connect(_DOOR)
        link.request("GET", _INSTANCE)
        compute = json.loads(link.getresponse().read())["compute"]
    finally:
        link.close()
    return {
        "cloud": compute["azEnvironment"],
        "image": ":".join(compute.get(name, "") for name in _IMAGE),
        "tags": {tag["name"]: tag["value"] for tag in compute["tagsList"]},
    }


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
