#!/bin/sh
# cloud-init status [--wait] [--long] of a rehearsed node: exit status 1 when a module failed.
[ "${1:-}" = status ] || { echo "cloud-init: only status is known on a rehearsed node" >&2; exit 2; }
result=/run/cloud-init/result.json
case " $* " in *" --wait "*) while [ ! -e $result ]; do sleep 0.2; done ;; esac
if [ ! -e $result ]; then
    echo "status: running"
elif grep -q '"errors": \[\]' $result; then
    echo "status: done"
else
    echo "status: error"
    case " $* " in *" --long "*) sed -n 's/.*"errors": \[\(.*\)\].*/detail: \1/p' $result ;; esac
    exit 1
fi
