#!/bin/bash
# The node's empty local NVMe disks as one striped file system at /mnt/resource_nvme. They are lost with the
# node, and come back empty after a redeployment: it is made anew then.
set -euo pipefail
array=/dev/md128 place=/mnt/resource_nvme label=rl-nvme

if mountpoint --quiet "$place"; then exit 0; fi
# What an earlier boot made, under whatever number it is assembled today.
udevadm settle || true
mdadm --assemble --scan --quiet || true
made=$(blkid -L "$label" || true)
if [ -n "$made" ]; then
    array=$made
else
    disks=()
    for disk in /dev/nvme*n1; do
        [ -b "$disk" ] || continue
        # No remote disk of Azure's, and none that holds anything.
        case $(lsblk --nodeps --noheadings --output MODEL "$disk") in *"MSFT NVMe Accelerator"*) continue ;; esac
        [ "$(lsblk --noheadings --output NAME "$disk" | wc -l)" = 1 ] || continue
        found=0
        blkid --probe "$disk" >/dev/null || found=$?
        [ "$found" = 2 ] || continue # 2: nothing is on it
        disks+=("$disk")
    done
    if [ "${#disks[@]}" = 0 ]; then
        echo "no empty local NVMe disk here: $place stays a plain folder"
        exit 0
    fi
    mdadm --create "$array" --run --level=0 --force --raid-devices="${#disks[@]}" "${disks[@]}"
    mkfs.xfs -q -L "$label" "$array"
fi
mkdir -p "$place"
mount -o noatime "$array" "$place"
chmod 1777 "$place"
