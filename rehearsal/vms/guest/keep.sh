#!/bin/sh
# keep UNIT [once]: runs a unit's ExecStart, again if the unit is to be restarted. Its output goes to
# /var/log/<unit>.log. A program that ends at once is given more and more time, 30 s at most.
set -u
unit=$1 file=/etc/systemd/system/$1
log=/var/log/${unit%.service}.log
field() { sed -n "s/^$1=//p" "$file" | tail -n 1; }

command=$(field ExecStart)
command=${command#-}
restart=$(field Restart)
least=$(field RestartSec)
least=${least%s}
case $least in '' | *[!0-9]*) least=1 ;; esac
pause=$least
for own in $(field RuntimeDirectory); do mkdir -p "/run/$own" && export RUNTIME_DIRECTORY="/run/$own"; done
for own in $(field StateDirectory); do mkdir -p "/var/lib/$own" && export STATE_DIRECTORY="/var/lib/$own"; done
folder=$(field WorkingDirectory)
cd "${folder:-/}" || exit 1
# As systemd sets it: what starts units at the first boot has root's.
eval "HOME=~$(field User)" && export HOME
eval "$(sed -n 's/^Environment=/export /p' "$file")"

if [ "${2:-}" = once ]; then
    eval "exec $command" >>"$log" 2>&1
fi
trap 'kill "$child" 2>/dev/null; exit 0' TERM
while :; do
    began=$(date +%s)
    eval "exec $command" >>"$log" 2>&1 &
    child=$!
    wait "$child"
    status=$?
    case $restart in
    always) ;;
    on-failure) [ $status = 0 ] && exit 0 ;;
    *) exit $status ;;
    esac
    echo "$unit ended with status $status; it is started again in $pause s" >>"$log"
    if [ $(($(date +%s) - began)) -lt 10 ]; then
        sleep "$pause" & wait $!
        pause=$((pause * 2 > 30 ? 30 : pause * 2 + 1))
    else
        pause=$least
    fi
done
