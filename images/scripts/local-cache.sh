#!/bin/sh
# The user's caches (downloads of models, compiled kernels) on the node's own disk, at every boot: it is fast, large
# and free, and empty after the machine was moved to other hardware. Nothing that cannot be fetched or made again is there.
# Every user of the node may write to the top of that disk. So root follows no name there: the user's own rights make
# the folder, and a link or another user's folder of that name is refused.
set -eu
home=$1
uid=$(stat -c %u "$home")
gid=$(stat -c %g "$home")
as_user() {
    if [ "$(id -u)" = "$uid" ]; then "$@"; else setpriv --reuid="$uid" --regid="$gid" --clear-groups "$@"; fi
}
remove_link() { [ ! -L "$home/.cache" ] || as_user rm -f "$home/.cache"; }
for disk in /mnt/resource_nvme /mnt/resource; do
    mountpoint -q "$disk" || continue
    if [ -d "$home/.cache" ] && [ ! -L "$home/.cache" ]; then
        echo "$home/.cache is a folder: it stays where it is"
        exit 0
    fi
    chmod 1777 "$disk"
    as_user mkdir -m 0700 "$disk/cache" 2>/dev/null || true
    if [ "$(stat -c %F:%u "$disk/cache")" != "directory:$uid" ]; then
        remove_link
        echo "$disk/cache is not a folder of user $uid: remove it and restart ranklift-cache.service" >&2
        exit 1
    fi
    as_user ln -sfn "$disk/cache" "$home/.cache"
    exit 0
done
# Where the disk is gone, a link that leads nowhere would be in every program's way.
[ -e "$home/.cache" ] || remove_link
