"""Emulated VMs as namespaces of this machine: disks, boot, network, ports."""
