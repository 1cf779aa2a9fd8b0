#!/bin/bash
# Stands in for `enroot start`, which Debian does not have: what it takes, refuses, passes on and runs, as
# NVIDIA/enroot describes it (doc/cmd/start.md, doc/image-format.md) and does it (src/runtime.sh, src/common.sh,
# bin/enroot-switchroot.c of version 3). An image is a folder here, and no FUSE mounts it: the process that would
# do so only notes a SIGTERM, after which the image would be gone.
set -euo pipefail

refuse() { echo "[ERROR] Invalid argument: $1" >&2; exit 1; }

[ "$1" = start ] || refuse "$1"
shift
mounts=() names=() rc=
while [[ "$1" = --* ]]; do
    case "$1" in
    --mount) mounts+=("$2") ;;
    --env) names+=("$2") ;;
    --rc) rc=$2 ;;
    *) refuse "$1" ;;
    esac
    shift 2
done
for mount in "${mounts[@]}"; do [[ "$mount" =~ ^[^[:space:]]+:[^[:space:]]+$ ]] || refuse "$mount"; done
for name in "${names[@]}"; do [[ "$name" =~ ^[[:alpha:]_][[:alnum:]_]*$ ]] || refuse "$name"; done
[ -f "$rc" ] || refuse "$rc"

# Variables become lines of a file; what is not NAME=VALUE is dropped, and quotes around a value go.
variables=$(for name in "${names[@]}"; do printf '%s=%s\n' "$name" "${!name-}"; done |
    sed -e '/^[[:alpha:]_][[:alnum:]_]*=/!d' -e '/^ENROOT_/d' \
        -e "s/^\([[:alpha:]_][[:alnum:]_]*\)=[\"']\(.*\)[\"'][[:space:]]*\$/\1=\2/")
case "${ENROOT_LOGIN_SHELL-yes}" in n | no | No | NO | false) profile= ;; *) profile='. /etc/profile;' ;; esac

export VARIABLES=$variables MOUNTS=$(printf '%s\n' "${mounts[@]}") PROFILE=$profile
exec unshare --user --map-current-user --keep-caps --mount -- bash -c '
    set -euo pipefail
    root=$(readlink -f "$1") rc=$2
    shift 2
    mount --rbind "$root" "$root"
    printf "%s\n" "$MOUNTS" /proc:/proc /sys:/sys /dev:/dev | while IFS=: read -r source point _; do
        source=$(printf "%b" "$source") point=$root$(printf "%b" "$point")
        if [ -d "$source" ]; then mkdir -p "$point"; else mkdir -p "${point%/*}"; touch "$point"; fi
        mount --rbind "$source" "$point"
    done
    set -m
    (exec -a squashfuse bash -c "trap \"touch \$1/unmounted; exit\" TERM; while :; do read -rt 0.1 <> <(:) || :; done" \
        squashfuse "${rc%/*}") >/dev/null 2>&1 &
    set +m
    disown
    mapfile -t variables <<<"$VARIABLES"
    for fd in /proc/self/fd/*; do
        fd=${fd##*/}
        [ "$fd" -le 2 ] || eval "exec $fd>&-"
    done
    exec env -i "${variables[@]}" /usr/sbin/chroot "$root" /bin/sh -c "$PROFILE"'"'"' exec /bin/sh "$@"'"'"' sh "$rc" "$@"
' enroot "$1" "$rc" "${@:2}"
