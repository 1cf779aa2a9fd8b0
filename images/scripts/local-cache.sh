#!/bin/sh
# The user's caches (downloads of models, compiled kernels) on the node's own disk, at every boot: it is fast, large
# and free, and empty after the machine was moved to other hardware. Nothing that cannot be fetched or made again is there.
set -eu
home=$1
for disk in /mnt/resource_nvme /mnt/resource; do
    mountpoint -q "$disk" || continue
    if [ -d "$home/.cache" ] && [ ! -L "$home/.cache" ]; then
        echo "$home/.cache is a folder: it stays where it is"
        exit 0
    fi
    chmod 1777 "$disk"
    owner=$(stat -c %u:%g "$home")
    mkdir -p "$disk/cache"
    chown "$owner" "$disk/cache"
    ln -sfn "$disk/cache" "$home/.cache"
    chown -h "$owner" "$home/.cache"
    exit 0
done
# Where the disk is gone, a link that leads nowhere would be in every program's way.
[ -e "$home/.cache" ] || rm -f "$home/.cache"
