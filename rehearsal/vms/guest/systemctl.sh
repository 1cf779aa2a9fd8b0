#!/bin/sh
# What a rehearsed node, which has no systemd, understands of systemctl: units below /etc/systemd/system.
# A unit runs as the node's one user, whatever its User= is: no other exists there. The rehearsal's metadata
# service goes by that name all the same.
set -u
state=/run/rehearsal/units
mkdir -p "$state"

unit_of() { case $1 in *.*) echo "$1" ;; *) echo "$1.service" ;; esac; }
runs() { [ -s "$state/$1.pid" ] && kill -0 "$(cat "$state/$1.pid")" 2>/dev/null; }
field() { sed -n "s/^$2=//p" "/etc/systemd/system/$1" | tail -n 1; }

known() {
    [ -r "/etc/systemd/system/$1" ] && return 0
    echo "Unit $1 could not be found." >&2
    return 1
}

begin() {
    runs "$1" && return 0
    if [ "$(field "$1" Type)" = oneshot ]; then
        /etc/rehearsal/bin/keep "$1" once && : >"$state/$1.done" && return 0
        echo "Job for $1 failed: see /var/log/${1%.service}.log" >&2
        return 1
    fi
    setsid /etc/rehearsal/bin/keep "$1" </dev/null >/dev/null 2>&1 &
    echo $! >"$state/$1.pid"
}

finish() {
    rm -f "$state/$1.done"
    runs "$1" || return 0
    kill -TERM "-$(cat "$state/$1.pid")"
    rm -f "$state/$1.pid"
}

quiet=no now=no verb=
units=
for word; do
    case $word in
    --now) now=yes ;;
    -q | --quiet) quiet=yes ;;
    --no-block | --no-pager) ;;
    -*) echo "systemctl: $word is not known on a rehearsed node" >&2; exit 1 ;;
    *) if [ -z "$verb" ]; then verb=$word; else units="$units $(unit_of "$word")"; fi ;;
    esac
done

failed=0
case $verb in
daemon-reload) exit 0 ;;
is-active)
    for unit in $units; do
        if runs "$unit" || [ -e "$state/$unit.done" ]; then word=active; else word=inactive failed=3; fi
        [ "$quiet" = yes ] || echo "$word"
    done
    ;;
enable | start | restart | stop | disable)
    for unit in $units; do
        known "$unit" || { failed=1; continue; }
        case $verb.$now in
        enable.no | disable.no) ;;
        enable.yes | start.*) begin "$unit" || failed=1 ;;
        restart.*) finish "$unit"; begin "$unit" || failed=1 ;;
        *) finish "$unit" ;;
        esac
    done
    ;;
*) echo "systemctl: '$verb' is not known on a rehearsed node" >&2; exit 1 ;;
esac
exit $failed
