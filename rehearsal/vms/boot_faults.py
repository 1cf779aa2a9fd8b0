"""Faults of VMs that boot: what each changes in a VM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from rehearsal.hardware.devices import NodeDevices, devices_of
from rehearsal.vms.api import Machine
from rehearsal.vms.cloud_init import CloudConfig, File

__all__ = ["BootFaults", "booted_config", "booted_devices"]

_BROKEN_RUNCMD = "#!/bin/sh\necho 'E: rehearsed: nothing can be installed on this node' >&2\nexit 100\n"
_IMAGE_ERROR = b"('ssh_import_id', OSError('rehearsed: a module of the image'))"

Hits = Callable[[str, Machine], bool]
"""Whether a fault of that kind hits the VM."""


class BootFaults(Protocol):
    """Faults of VMs that boot."""

    def hits_boot(self, kind: str, name: str) -> bool:
        """Whether a fault of that kind hits a VM that boots now."""


def booted_config(config: CloudConfig, machine: Machine, is_hit: Hits) -> CloudConfig:
    """Return what the VM's cloud-init does."""
    if is_hit("cloud-init", machine):
        config = replace(config, runcmd=_BROKEN_RUNCMD)
    if is_hit("cloud-init-image", machine):
        config = replace(config, files=(*config.files, File("/etc/cloud/image-error", _IMAGE_ERROR, 0o644)))
    return config


def booted_devices(machine: Machine, is_hit: Hits) -> NodeDevices:
    """Return the VM's devices."""
    return devices_of(
        machine.size,
        kernel_names=is_hit("ib-names", machine),
        without_infiniband=is_hit("no-ib", machine),
    )
