"""Microsoft.Compute as emulated: scale sets, virtual machines, disks, images."""
