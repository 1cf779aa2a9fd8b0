"""What a rehearsed VM shows of its hardware: PCI, InfiniBand, NVIDIA's driver and the kernel's log."""
